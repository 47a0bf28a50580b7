#include "node/slab_table.h"

#include <chrono>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/probe.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/host_id.h"

namespace mooncake::node {
namespace {

constexpr char kInUseFile[] = "in_use";

std::string Text(uint64_t slab_id) { return "slab " + std::to_string(slab_id); }

}  // namespace

struct SlabTable::Use::Place {
  explicit Place(uint64_t id) : slab_id(id) {}
  const uint64_t slab_id;

  env::Mutex making;           // held while the memory is made
  std::unique_ptr<Slab> slab;  // set once, under `making` and `mutex`

  env::Mutex mutex;  // guards what follows
  env::CondVar left;
  std::string tenant_id;  // empty: nobody's yet
  bool dropping = false;
  int users = 0;
};

SlabTable::Use::~Use() {
  if (place_ == nullptr) return;
  {
    std::lock_guard lock(place_->mutex);
    --place_->users;
  }
  place_->left.notify_all();
}

Slab& SlabTable::Use::operator*() const { return *place_->slab; }

Result<std::unique_ptr<SlabTable>> SlabTable::Open(ArenaTable& arenas, std::string folder) {
  std::unique_ptr<SlabTable> table(new SlabTable(arenas, std::move(folder)));
  if (arenas.durable()) MC_RETURN_IF_ERROR(table->Adopt());
  return table;
}

SlabTable::~SlabTable() {
  if (!arenas_.durable()) return;
  if (const Status closed = CloseCleanly(); !closed.ok()) {
    Log().warn("node: slabs are kept only until the machine stops: {}", closed.ToString());
  }
}

std::string SlabTable::IndexPath(uint64_t slab_id) const {
  return folder_ + "/" + std::to_string(slab_id);
}

Status SlabTable::Adopt() {
  const std::string in_use = folder_ + "/" + kInUseFile;
  MC_RETURN_IF_ERROR(env::MakeFolders(folder_));
  const std::string host_id = env::HostId();
  const Result<std::string> user = env::ReadFile(in_use, 4096);
  if (!user.ok() && user.status().code() != Code::kNotFound) return user.status();
  const bool trusted = !user.ok() || *user == host_id;
  for (const HeldArena& held : arenas_.Held()) {
    if (held.import_id != kSlabImport) continue;
    // Opened here, so that a slab without a good index is reported as gone from the first report
    // on.
    const Status usable = trusted ? ExtentIndex::Open(IndexPath(held.arena_id), held.bytes).status()
                                  : Corrupt("the machine went down while it was in use");
    if (usable.ok()) {
      places_[held.arena_id] = std::make_shared<Place>(held.arena_id);
      continue;
    }
    MC_PROBE("node.slab_not_adopted");
    Log().warn("node: {} is given up: {}", Text(held.arena_id), usable.ToString());
    MC_RETURN_IF_ERROR(arenas_.Drop(held.arena_id));
  }
  MC_ASSIGN_OR_RETURN(const std::vector<std::string> names, env::ListFolder(folder_));
  for (const std::string& name : names) {
    bool known = name == kInUseFile;
    for (const auto& [slab_id, place] : places_) known = known || name == std::to_string(slab_id);
    if (!known) MC_RETURN_IF_ERROR(env::RemoveFile(folder_ + "/" + name));
  }
  return env::WriteFileDurably(in_use, host_id);
}

Status SlabTable::CloseCleanly() {
  MC_RETURN_IF_ERROR(arenas_.Sync(kSlabImport));
  for (const auto& [slab_id, place] : places_) {
    if (place->slab != nullptr) MC_RETURN_IF_ERROR(place->slab->Sync());
  }
  MC_RETURN_IF_ERROR(env::SyncFolder(folder_));
  MC_RETURN_IF_ERROR(env::RemoveFile(folder_ + "/" + kInUseFile));
  return env::SyncFolder(folder_);
}

Result<std::shared_ptr<SlabTable::Place>> SlabTable::FindOrAdd(uint64_t slab_id, bool add) {
  std::lock_guard lock(mutex_);
  const auto found = places_.find(slab_id);
  if (found != places_.end()) return found->second;
  if (!add) return NotFound("no " + Text(slab_id));
  return places_[slab_id] = std::make_shared<Place>(slab_id);
}

Result<SlabTable::Use> SlabTable::Enter(uint64_t slab_id, const std::string& tenant_id,
                                        uint64_t bytes, bool make) {
  MC_ASSIGN_OR_RETURN(const std::shared_ptr<Place> place, FindOrAdd(slab_id, make));
  {
    std::lock_guard lock(place->mutex);
    if (place->dropping) return NotFound(Text(slab_id) + " was dropped");
    if (place->tenant_id.empty()) place->tenant_id = tenant_id;
    if (place->tenant_id != tenant_id) {
      return InvalidArgument(Text(slab_id) + " belongs to tenant " + place->tenant_id +
                             ", not to tenant " + tenant_id);
    }
    ++place->users;
  }
  Use use(place);
  if (const Status made = MakeSlab(*place, bytes); !made.ok()) {
    ForgetUnmade(place);
    return made;
  }
  if (use->bytes() != bytes) {
    return Corrupt(Text(slab_id) + ": expected " + std::to_string(bytes) + " bytes, got " +
                   std::to_string(use->bytes()));
  }
  return use;
}

Status SlabTable::MakeSlab(Place& place, uint64_t bytes) {
  std::lock_guard making(place.making);
  if (place.slab != nullptr) return OkStatus();
  const std::string path = IndexPath(place.slab_id);
  const bool kept = arenas_.Holds(place.slab_id);
  std::optional<ExtentIndex> index;
  if (arenas_.durable()) {
    // Before the slab, which is nothing without it.
    Result<ExtentIndex> opened =
        kept ? ExtentIndex::Open(path, bytes) : ExtentIndex::Create(path, bytes);
    if (!opened.ok()) return opened.status();
    index = *std::move(opened);
  }
  const Result<env::UniqueFd> fd = arenas_.OpenToWrite(kSlabImport, place.slab_id, bytes);
  if (!fd.ok()) {
    if (index && !kept) (void)env::RemoveFile(path);  // what is left goes at the next start
    return fd.status();
  }
  // Page tables are filled now: an object should not pay for each page when it is put.
  MC_ASSIGN_OR_RETURN(env::Mapping memory,
                      env::Mapping::Map(fd->get(), 0, bytes, env::MapAccess::kReadWrite,
                                        {.populate = !arenas_.durable()}));
  auto slab = std::make_unique<Slab>(std::move(memory), std::move(index));
  std::lock_guard lock(place.mutex);
  place.slab = std::move(slab);
  return OkStatus();
}

void SlabTable::ForgetUnmade(const std::shared_ptr<Place>& place) {
  std::lock_guard lock(mutex_);
  std::lock_guard place_lock(place->mutex);
  const auto found = places_.find(place->slab_id);
  if (found == places_.end() || found->second != place) return;
  if (place->users == 1 && place->slab == nullptr && !place->dropping) places_.erase(found);
}

Result<env::UniqueFd> SlabTable::OpenToRead(uint64_t slab_id, const std::string& tenant_id,
                                            uint64_t bytes) {
  MC_ASSIGN_OR_RETURN(const Use use, Enter(slab_id, tenant_id, bytes, /*make=*/false));
  return arenas_.OpenToRead(kSlabImport, slab_id, bytes);
}

Status SlabTable::Drop(uint64_t arena_id) {
  // Also of an id that is not there: a late first permit must not make it meanwhile.
  MC_ASSIGN_OR_RETURN(const std::shared_ptr<Place> place, FindOrAdd(arena_id, /*add=*/true));
  {
    std::unique_lock lock(place->mutex);
    place->dropping = true;
    place->left.wait_for(lock, std::chrono::milliseconds(kDropMs),
                         [&] { return place->users == 0; });
    if (place->users != 0) {
      MC_PROBE("node.slab_drop_waits");
      return Busy(Text(arena_id) + ": " + std::to_string(place->users) + " calls work in it");
    }
    if (place->slab != nullptr) place->slab->GiveUpAll();
  }
  MC_RETURN_IF_ERROR(arenas_.Drop(arena_id));
  if (arenas_.durable()) MC_RETURN_IF_ERROR(env::RemoveFile(IndexPath(arena_id)));
  std::lock_guard lock(mutex_);
  places_.erase(arena_id);
  return OkStatus();
}

}  // namespace mooncake::node
