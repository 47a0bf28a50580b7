#include "client/loader.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>

#include "client/steps.h"
#include "env/clock.h"
#include "env/memory_file.h"
#include "env/sync.h"
#include "geometry/strided_region.h"
#include "reshard/fusion.h"

namespace mooncake::client {
namespace {

// Bytes that one call of the copy engine moves, about: enough to keep its threads busy, little
// enough that cancellation, lease and mapped memory stay under control.
constexpr uint64_t kGroupBytes = uint64_t{512} << 20;
constexpr int kProgressMs = 100;
static_assert(transfer::kLoopsMax >= geometry::kMaxRank);

class Stopwatch {
 public:
  double Seconds() {
    const int64_t now_ns = env::SystemClock::Instance().MonotonicNs();
    const double seconds = static_cast<double>(now_ns - last_ns_) / 1e9;
    last_ns_ = now_ns;
    return seconds;
  }

 private:
  int64_t last_ns_ = env::SystemClock::Instance().MonotonicNs();
};

transfer::ObjectRegion RegionOf(const geometry::StridedRegion& region) {
  transfer::ObjectRegion made;
  made.source_offset = region.source_base_offset;
  made.target = reinterpret_cast<std::byte*>(region.target_base_offset);
  made.inner_bytes = region.inner_bytes;
  made.loops = region.loops;
  for (int loop = 0; loop < region.loops; ++loop) {
    made.counts[loop] = region.counts[loop];
    made.source_strides[loop] = region.source_strides[loop];
    made.target_strides[loop] = static_cast<int64_t>(region.target_strides[loop]);
  }
  return made;
}

}  // namespace

Loader::Loader(std::shared_ptr<Session> session, const LoadOptions& options)
    : session_(std::move(session)),
      options_(options),
      own_engine_(options.threads == 0 || options.threads == session_->engine.threads()
                      ? nullptr
                      : std::make_unique<transfer::CopyEngine>(
                            transfer::CopyEngineOptions{.threads = options.threads})),
      engine_(own_engine_ == nullptr ? session_->engine : *own_engine_) {}

Result<LoadReport> Loader::Run(const model::WeightIdentity& identity,
                               const std::vector<LoadTarget>& targets) {
  Stopwatch total;
  const std::stop_callback on_cancel(options_.cancel, [this] { Cancel(); });
  Status status = Prepare(identity, targets);
  if (status.ok()) {
    status = WithProgress([this] {
      MC_RETURN_IF_ERROR(CopyAll());
      return CompareAliases();
    });
    // Memory freed under a dead lease reads as damage: then the lease is the reason.
    if (!status.ok() && status.code() != Code::kCancelled) {
      const Status lease = reader_->CheckLease();
      if (lease.code() == Code::kLeaseExpired) status = lease;
    }
  }
  if (status.ok()) status = session_->Step(load_step::kCopied);
  if (status.ok()) status = reader_->CheckLease();
  if (status.ok()) status = session_->Step(load_step::kLeaseChecked);
  reader_.reset();
  if (status.ok()) status = session_->Step(load_step::kReleased);
  if (!status.ok()) return Explain(status.WithContext("loading " + model::Describe(identity)));
  report_.bytes_moved = bytes_done_;
  report_.bytes_verified = bytes_verified_;
  report_.seconds_total = total.Seconds();
  return std::move(report_);
}

Status Loader::Explain(const Status& status) const {
  return {
      status.code(),
      status.message() + (writing_ ? " (the targets are invalid: a part of their bytes may have "
                                     "been written)"
                                   : " (no byte of a target was written)")};
}

Status Loader::Prepare(const model::WeightIdentity& identity,
                       const std::vector<LoadTarget>& targets) {
  Stopwatch watch;
  MC_ASSIGN_OR_RETURN(reader_, RevisionReader::Open(session_, identity, stop_.get_token()));
  report_.metadata = reader_->metadata();
  MC_ASSIGN_OR_RETURN(report_.manifest, reader_->ReadManifest());
  report_.seconds_resolve = watch.Seconds();

  MC_ASSIGN_OR_RETURN(work_, PlanLoad(session_->plans, report_.manifest, targets));
  MC_RETURN_IF_ERROR(session_->Step(load_step::kPlanned));
  report_.tensors = work_.tensors;
  report_.regions = work_.regions;
  report_.objects = work_.objects.size();
  report_.bytes_needed = work_.bytes_needed;
  report_.plan_reused = work_.plan_reused;
  report_.seconds_plan = watch.Seconds();

  MC_RETURN_IF_ERROR(LocateAll());
  if (options_.verify) MC_RETURN_IF_ERROR(ReadAllDigests());
  MC_RETURN_IF_ERROR(session_->Step(load_step::kLocated));
  report_.seconds_map = watch.Seconds();
  return CheckGoing();
}

Status Loader::LocateAll() {
  std::vector<std::string> names;
  names.reserve(work_.objects.size());
  for (const ObjectWork& object : work_.objects) names.emplace_back(object.name);
  MC_ASSIGN_OR_RETURN(locations_, reader_->Locate(names));
  return OkStatus();
}

Status Loader::ReadAllDigests() {
  std::set<std::string> participants;
  for (const auto& [name, object] : locations_.objects) participants.insert(object.participant_id);
  for (const std::string& participant : participants) {
    MC_ASSIGN_OR_RETURN(DigestsTable table, reader_->ReadDigests(participant));
    digests_.emplace(participant, std::move(table));
  }
  return OkStatus();
}

std::vector<Loader::ArenaWork> Loader::WorkByArena() const {
  std::map<uint64_t, ArenaWork> by_arena;
  for (const ObjectWork& object : work_.objects) {
    const LocatedObject& located = locations_.objects.find(object.name)->second;
    ArenaWork& arena = by_arena[located.arena_id];
    arena.arena_id = located.arena_id;
    arena.bytes_needed += object.bytes_needed;
    arena.objects.push_back(&object);
  }
  std::vector<ArenaWork> arenas;
  for (auto& [id, arena] : by_arena) {
    std::sort(arena.objects.begin(), arena.objects.end(),
              [this](const ObjectWork* a, const ObjectWork* b) {
                return locations_.objects.find(a->name)->second.offset <
                       locations_.objects.find(b->name)->second.offset;
              });
    arenas.push_back(std::move(arena));
  }
  return arenas;
}

void Loader::Cancel() {
  cancelled_ = true;
  stop_.request_stop();
}

Status Loader::CheckGoing() {
  if (cancelled_) return Cancelled("cancelled by the caller");
  return reader_->lease_state();
}

Status Loader::CopyAll() {
  std::vector<ArenaWork> group;
  uint64_t group_bytes = 0;
  std::vector<ArenaWork> arenas = WorkByArena();
  for (size_t i = 0; i < arenas.size(); ++i) {
    group_bytes += arenas[i].bytes_needed;
    group.push_back(std::move(arenas[i]));
    if (group_bytes < kGroupBytes && i + 1 < arenas.size()) continue;
    MC_RETURN_IF_ERROR(CheckGoing());
    MC_RETURN_IF_ERROR(CopyGroup(group));
    MC_RETURN_IF_ERROR(session_->Step(load_step::kGroupCopied));
    group.clear();
    group_bytes = 0;
  }
  return OkStatus();
}

Status Loader::CopyGroup(const std::vector<ArenaWork>& group) {
  Stopwatch watch;
  Mappings mappings;
  std::vector<transfer::ObjectRead> reads;
  for (const ArenaWork& arena : group) {
    MC_ASSIGN_OR_RETURN(mappings[arena.arena_id], MapArena(arena));
    for (const ObjectWork* object : arena.objects) {
      if (object->copies.empty()) continue;
      MC_ASSIGN_OR_RETURN(transfer::ObjectRead read, MakeRead(*object, DataOf(mappings, *object)));
      report_.copies += read.regions.size();
      reads.push_back(std::move(read));
    }
  }
  report_.seconds_map += watch.Seconds();
  writing_ = true;
  Status status = engine_.ReadObjects(
      reads, options_.verify ? transfer::Verify::kBlocks : transfer::Verify::kOff,
      {.cancelled = &cancelled_,
       .progress_bytes = &bytes_done_,
       .verified_bytes = &bytes_verified_});
  report_.seconds_copy += watch.Seconds();
  return status;
}

Result<env::Mapping> Loader::MapArena(const ArenaWork& arena) {
  env::Mapping mapping;
  const CallLimits limits = session_->Limits(stop_.get_token());
  const rpc::CallBounds bounds = limits.Bounds();
  MC_RETURN_IF_ERROR(Repeat(limits, [&]() -> Status {
    const auto located = locations_.arenas.find(arena.arena_id);
    if (located == locations_.arenas.end()) {
      return Unavailable("arena " + std::to_string(arena.arena_id) + " has moved");
    }
    const v1::Grant& grant = located->second.grant;
    Result<std::shared_ptr<rpc::NodeChannel>> node =
        session_->nodes.Get(located->second.node, bounds);
    Result<env::UniqueFd> fd = node.ok() ? (*node)->OpenArena(grant, bounds) : node.status();
    if (!fd.ok()) {
      // The node may have been restarted: ask for its address and a new grant.
      if (fd.status().code() == Code::kUnavailable) MC_RETURN_IF_ERROR(LocateAll());
      return fd.status();
    }
    MC_ASSIGN_OR_RETURN(const env::MemoryFile file,
                        env::MemoryFile::Adopt(*std::move(fd), grant.arena_bytes()));
    // Where most of an arena is read, one call fills the page tables that faults would fill one by
    // one.
    MC_ASSIGN_OR_RETURN(mapping, file.Map(env::MapAccess::kReadOnly,
                                          {.populate = arena.bytes_needed * 2 >= file.size()}));
    return OkStatus();
  }));
  return mapping;
}

const std::byte* Loader::DataOf(const Mappings& mappings, const ObjectWork& object) const {
  const LocatedObject& located = locations_.objects.find(object.name)->second;
  return mappings.at(located.arena_id).data() + located.offset;
}

Result<transfer::ObjectRead> Loader::MakeRead(const ObjectWork& object,
                                              const std::byte* data) const {
  const LocatedObject& located = locations_.objects.find(object.name)->second;
  transfer::ObjectRead read;
  read.name = "payload " + std::string(object.name) + " of participant " + located.participant_id;
  read.data = data;
  read.bytes = located.bytes;
  if (options_.verify) {
    const DigestsTable::Entry* entry =
        digests_.find(located.participant_id)->second.Find(object.name);
    if (entry == nullptr) {
      return Corrupt(read.name + " has no digests: its evidence is missing");
    }
    if (entry->nbytes != located.bytes) {
      return Corrupt(read.name + ": its digests are of " + std::to_string(entry->nbytes) +
                     " bytes, it has " + std::to_string(located.bytes));
    }
    read.digests = entry->blocks;
  }
  std::vector<reshard::ObjectCopy> copies;
  copies.reserve(object.copies.size());
  for (const LoadOperation& copy : object.copies) {
    copies.push_back(reshard::CopyOf(work_.plans[copy.plan]->operation(copy.operation)));
  }
  copies = reshard::FuseCopies(std::move(copies));
  read.regions.reserve(copies.size());
  for (const reshard::ObjectCopy& copy : copies) read.regions.push_back(RegionOf(copy.region));
  return read;
}

Status Loader::CompareAliases() {
  for (const ArenaWork& arena : WorkByArena()) {
    const bool any =
        std::any_of(arena.objects.begin(), arena.objects.end(),
                    [](const ObjectWork* object) { return !object->compares.empty(); });
    if (!any) continue;
    Mappings mappings;
    MC_ASSIGN_OR_RETURN(mappings[arena.arena_id], MapArena(arena));
    for (const ObjectWork* object : arena.objects) {
      for (const LoadOperation& operation : object->compares) {
        MC_RETURN_IF_ERROR(CheckGoing());
        MC_RETURN_IF_ERROR(CompareOne(DataOf(mappings, *object), operation));
      }
    }
  }
  return OkStatus();
}

Status Loader::CompareOne(const std::byte* object, const LoadOperation& operation) const {
  const reshard::BoundPlan& plan = *work_.plans[operation.plan];
  const reshard::BoundOperation bound = plan.operation(operation.operation);
  const auto* target = reinterpret_cast<const std::byte*>(bound.target_address);
  bool equal = true;
  geometry::ForEachSegment(geometry::Coalesced(bound.region),
                           [&](uint64_t source_offset, uint64_t target_offset, uint64_t bytes) {
                             equal =
                                 equal && std::memcmp(object + bound.object_offset + source_offset,
                                                      target + target_offset, bytes) == 0;
                           });
  if (equal) return OkStatus();
  return InvalidArgument("the target declares " + plan.plan().tensor_id(operation.operation) +
                         " an alias of another tensor, but their stored bytes differ");
}

Status Loader::WithProgress(const std::function<Status()>& work) {
  if (!options_.progress) return work();
  env::Mutex mutex;
  env::CondVar done_changed;
  bool done = false;
  Status status;
  env::Thread worker([&] {
    Status result = work();
    std::lock_guard lock(mutex);
    status = std::move(result);
    done = true;
    done_changed.notify_all();
  });
  std::unique_lock lock(mutex);
  while (
      !done_changed.wait_for(lock, std::chrono::milliseconds(kProgressMs), [&] { return done; })) {
    lock.unlock();
    if (!options_.progress({bytes_done_, work_.bytes_needed})) Cancel();
    lock.lock();
  }
  lock.unlock();
  worker.join();
  if (status.ok() && !options_.progress({bytes_done_, work_.bytes_needed})) {
    return Cancelled("cancelled by the caller");
  }
  return status;
}

}  // namespace mooncake::client
