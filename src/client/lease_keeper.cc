#include "client/lease_keeper.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "env/clock.h"
#include "rpc/status_proto.h"

namespace mooncake::client {
namespace {

// An unreachable Master is asked again this soon, whatever the TTL.
constexpr int64_t kRetryMsMax = 500;

int64_t NowMs() { return env::SystemClock::Instance().MonotonicMs(); }

bool IsUnclear(Code code) {
  return code == Code::kUnavailable || code == Code::kOutcomeUnknown ||
         code == Code::kDurabilityFailed;
}

}  // namespace

Status LeaseKeeper::KeptLease::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

void LeaseKeeper::KeptLease::MarkLost(Status why) {
  std::lock_guard lock(mutex_);
  if (state_.ok()) state_ = std::move(why);
}

LeaseKeeper::KeptLease::KeptLease(Kind kind, uint64_t id, std::string client_id, uint64_t ttl_ms)
    : kind_(kind),
      id_(id),
      client_id_(std::move(client_id)),
      ttl_ms_(static_cast<int64_t>(std::max<uint64_t>(ttl_ms, 3))) {}

LeaseKeeper::LeaseKeeper(std::shared_ptr<rpc::MasterApi> master)
    : master_(std::move(master)), thread_([this] { Run(); }) {}

LeaseKeeper::~LeaseKeeper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

LeaseKeeper::Kept LeaseKeeper::KeepRevision(uint64_t lease_id, uint64_t ttl_ms) {
  return Keep(Kept(new KeptLease(Kind::kRevision, lease_id, {}, ttl_ms)));
}

LeaseKeeper::Kept LeaseKeeper::KeepImport(uint64_t import_id, std::string client_id,
                                          uint64_t ttl_ms) {
  return Keep(Kept(new KeptLease(Kind::kImport, import_id, std::move(client_id), ttl_ms)));
}

LeaseKeeper::Kept LeaseKeeper::Keep(Kept kept) {
  {
    std::lock_guard lock(mutex_);
    kept->number_ = next_number_++;
    entries_[kept->number_] = Entry{kept, NowMs() + kept->ttl_ms_ / 3};
  }
  changed_.notify_all();
  return kept;
}

void LeaseKeeper::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::vector<Kept> due;
    const int64_t now = NowMs();
    int64_t next = now + 3'600'000;
    for (auto entry = entries_.begin(); entry != entries_.end();) {
      Kept kept = entry->second.lease.lock();
      if (kept == nullptr || !kept->state().ok()) {
        entry = entries_.erase(entry);
        continue;
      }
      if (entry->second.due_ms <= now) {
        due.push_back(std::move(kept));
      } else {
        next = std::min(next, entry->second.due_ms);
      }
      ++entry;
    }
    if (due.empty()) {
      changed_.wait_for(lock, std::chrono::milliseconds(next - now));
      continue;
    }
    lock.unlock();
    Renew(due);
    due.clear();
    lock.lock();
  }
}

void LeaseKeeper::Renew(const std::vector<Kept>& due) {
  std::vector<Kept> revisions;
  for (const Kept& kept : due) {
    if (kept->kind() == Kind::kImport) {
      RenewImport(kept);
    } else {
      revisions.push_back(kept);
    }
  }
  if (!revisions.empty()) RenewRevisions(revisions);
}

void LeaseKeeper::RenewRevisions(const std::vector<Kept>& due) {
  v1::RenewLeasesRequest request;
  for (const Kept& kept : due) request.add_lease_ids(kept->id());
  const v1::RenewLeasesReply reply = master_->RenewLeases(request);
  const Status status = rpc::StatusFromProto(reply.status());
  const bool answered = status.ok() && reply.leases_size() == static_cast<int>(due.size());
  for (size_t i = 0; i < due.size(); ++i) {
    const Status lease =
        answered ? rpc::StatusFromProto(reply.leases(static_cast<int>(i))) : status;
    if (!lease.ok() && !IsUnclear(lease.code())) due[i]->MarkLost(lease);
    Reschedule(due[i], lease.ok());
  }
}

void LeaseKeeper::RenewImport(const Kept& kept) {
  v1::KeepImportRequest request;
  request.set_import_id(kept->id());
  request.set_client_id(kept->client_id_);
  const v1::KeepImportReply reply = master_->KeepImport(request);
  const Status status = rpc::StatusFromProto(reply.status());
  if (!status.ok() && !IsUnclear(status.code())) {
    kept->MarkLost(status);
  } else if (status.ok() && reply.state() == v1::IMPORT_STATE_ABORTED) {
    kept->MarkLost(NotFound("import " + std::to_string(kept->id()) + " was aborted by the Master"));
  }
  Reschedule(kept, status.ok());
}

void LeaseKeeper::Reschedule(const Kept& kept, bool reached) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(kept->number_);
  if (found == entries_.end()) return;
  const int64_t pause = reached ? kept->ttl_ms_ / 3 : std::min(kept->ttl_ms_ / 10, kRetryMsMax);
  found->second.due_ms = NowMs() + std::max<int64_t>(pause, 1);
}

}  // namespace mooncake::client
