#include "sim/planted.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "oplog/sqlite_database.h"
#include "sim/channels.h"
#include "sim/written_arenas.h"

namespace mooncake::sim {
namespace {

// Shows every record to the judge before it is appended.
class WatchedLog : public oplog::LogStore {
 public:
  WatchedLog(std::unique_ptr<oplog::LogStore> inner, Judge& judge)
      : inner_(std::move(inner)), judge_(judge) {}

  Status AppendAll(std::span<const oplog::LogRecordView> records) override {
    for (const oplog::LogRecordView& record : records) judge_.OnLogRecord(record.payload);
    return inner_->AppendAll(records);
  }
  Status Scan(uint64_t sequence, const Visitor& visit) override {
    return inner_->Scan(sequence, visit);
  }
  Result<uint64_t> LastSequence() override { return inner_->LastSequence(); }
  Result<uint64_t> FirstSequence() override { return inner_->FirstSequence(); }
  Result<bool> DropBefore(uint64_t sequence, uint64_t records_max) override {
    return inner_->DropBefore(sequence, records_max);
  }
  Status CheckSpace() override { return inner_->CheckSpace(); }
  Result<std::optional<std::string>> ReadMeta(std::string_view key) override {
    return inner_->ReadMeta(key);
  }
  Status WriteMeta(std::string_view key, std::string_view value) override {
    return inner_->WriteMeta(key, value);
  }
  Status Close() override { return inner_->Close(); }

 private:
  const std::unique_ptr<oplog::LogStore> inner_;
  Judge& judge_;
};

// Says that a record is durable, and writes it with the next one.
class HastyLog final : public WatchedLog {
 public:
  using WatchedLog::WatchedLog;

  Status AppendAll(std::span<const oplog::LogRecordView> records) override {
    MC_RETURN_IF_ERROR(WritePending());
    for (const oplog::LogRecordView& record : records) {
      payloads_.emplace_back(record.payload);
      pending_.push_back(record);
      pending_.back().payload = payloads_.back();
    }
    return OkStatus();
  }
  Status Scan(uint64_t sequence, const Visitor& visit) override {
    MC_RETURN_IF_ERROR(WritePending());
    return WatchedLog::Scan(sequence, visit);
  }
  Result<uint64_t> LastSequence() override {
    MC_RETURN_IF_ERROR(WritePending());
    return WatchedLog::LastSequence();
  }

 private:
  Status WritePending() {
    const std::deque<std::string> payloads = std::exchange(payloads_, {});
    return WatchedLog::AppendAll(std::exchange(pending_, {}));
  }

  std::vector<oplog::LogRecordView> pending_;
  std::deque<std::string> payloads_;  // of pending_
};

void PlantMissedFence(SimCluster& cluster, const std::shared_ptr<WrittenArenas>& arenas) {
  // A writer that was not fenced off writes once more after the commit.
  const auto write = std::make_shared<std::function<void()>>();
  *write = [&cluster, arenas, write] {
    (void)arenas->FlipBit();
    cluster.simulation().After(kSecond, *write);
  };
  cluster.simulation().After(kSecond, *write);
}

// The Master's answer to a node's report names an arena of a READY revision.
void PlantExtentFreedEarly(SimCluster& cluster) {
  auto next = std::move(cluster.network().on_answer);
  cluster.network().on_answer = [&cluster, next = std::move(next)](const std::string& address,
                                                                   const std::string& request,
                                                                   std::string& answer) {
    const std::string method = "ReportNode\n";
    const std::shared_ptr<master::Master> master = cluster.master();
    v1::ReportNodeReply reply;
    if (address == kMasterAddress && request.starts_with(method) && master != nullptr &&
        cluster.simulation().dice().Chance(20'000) && reply.ParseFromString(answer)) {
      for (const auto& [id, arena] : master->state().objects.arenas()) {
        const weights::Revision* revision = master->state().weights.FindImport(arena.import_id);
        if (arena.state != objects::ArenaState::kLive || revision == nullptr ||
            revision->availability != model::Availability::kReady) {
          continue;
        }
        reply.add_drop_arena_ids(id.value);
        answer = reply.SerializeAsString();
        break;
      }
    }
    next(address, request, answer);
  };
}

// A restart begins without the newest records.
void PlantForgottenTombstone(SimCluster& cluster) {
  cluster.before_log = [&cluster] {
    const auto database = oplog::SqliteDatabase::Open(
        kLogPath, oplog::SqliteDatabase::Mode::kReadWrite, 0, cluster.vfs_name());
    if (!database.ok()) return;
    (void)(*database)->Execute(
        "DELETE FROM log WHERE sequence > (SELECT max(sequence) - 3 FROM log)");
  };
}

// Before a removal is looked at, the leases that stand in its way are over.
void PlantIgnoredLease(SimCluster& cluster) {
  auto next = std::move(cluster.network().on_request);
  cluster.network().on_request = [&cluster, next = std::move(next), sequence = uint64_t{0}](
                                     const std::string& address, std::string& request) mutable {
    const std::string method = "RemoveWeight\n";
    const std::shared_ptr<master::Master> master = cluster.master();
    v1::RemoveWeightRequest removal;
    if (address == kMasterAddress && request.starts_with(method) && master != nullptr &&
        removal.ParseFromString(request.substr(method.size()))) {
      for (const auto& [id, lease] : master->state().weights.leases()) {
        struct Call {
          v1::ReleaseLeaseRequest request;
          v1::ReleaseLeaseReply reply;
        };
        auto call = std::make_shared<Call>();
        call->request.mutable_command()->set_client_id(std::string(32, 'f'));
        call->request.mutable_command()->set_sequence(++sequence);
        call->request.mutable_command()->set_acked_below(sequence);
        call->request.set_lease_id(id.value);
        master->ReleaseLease(rpc::Caller::Operator(), call->request, &call->reply, [call] {});
      }
    }
    next(address, request);
  };
}

// What the Master is asked is changed on its way in, behind the judge's back.
template <class Request>
void ChangeRequests(SimCluster& cluster, const std::string& method, void (*change)(Request&)) {
  auto next = std::move(cluster.network().on_request);
  cluster.network().on_request = [next = std::move(next), prefix = method + "\n", change](
                                     const std::string& address, std::string& request) {
    next(address, request);
    Request parsed;
    if (address != kMasterAddress || !request.starts_with(prefix) ||
        !parsed.ParseFromString(request.substr(prefix.size()))) {
      return;
    }
    change(parsed);
    request = prefix + parsed.SerializeAsString();
  };
}

// A lookup that should extend the lease does not, and its answer says that it did.
void PlantForgottenRead(SimCluster& cluster) {
  ChangeRequests<v1::LookupObjectsRequest>(cluster, "LookupObjects",
                                           [](v1::LookupObjectsRequest& asked) {
                                             // Left behind so that the answer can be told from one
                                             // to a probe.
                                             if (asked.renew_lease()) asked.set_describe(true);
                                             asked.set_renew_lease(false);
                                           });
  auto next = std::move(cluster.network().on_answer);
  cluster.network().on_answer = [next = std::move(next)](const std::string& address,
                                                         const std::string& request,
                                                         std::string& answer) {
    const std::string prefix = "LookupObjects\n";
    v1::LookupObjectsRequest asked;
    v1::LookupObjectsReply reply;
    const bool renewed = address == kMasterAddress && request.starts_with(prefix) &&
                         asked.ParseFromString(request.substr(prefix.size())) && asked.describe() &&
                         asked.locate() && reply.ParseFromString(answer);
    if (!renewed) return next(address, request, answer);
    reply.set_lease_ms(2'000);
    answer = reply.SerializeAsString();
    asked.set_describe(false);
    asked.set_renew_lease(true);
    next(address, prefix + asked.SerializeAsString(), answer);
  };
}

void PlantHastyPut(SimCluster& cluster) {
  ChangeRequests<v1::PutEndRequest>(cluster, "PutEnd",
                                    [](v1::PutEndRequest& end) { end.set_relaxed(true); });
}

}  // namespace

void Plant(PlantedBug bug, SimCluster& cluster, Judge& judge,
           const std::shared_ptr<WrittenArenas>& arenas) {
  cluster.wrap_log =
      [&judge, bug](std::unique_ptr<oplog::LogStore> log) -> std::unique_ptr<oplog::LogStore> {
    if (bug == PlantedBug::kReplyBeforeFlush) {
      return std::make_unique<HastyLog>(std::move(log), judge);
    }
    return std::make_unique<WatchedLog>(std::move(log), judge);
  };
  switch (bug) {
    case PlantedBug::kNone:
    case PlantedBug::kReplyBeforeFlush:
      break;
    case PlantedBug::kMissedFence:
      PlantMissedFence(cluster, arenas);
      break;
    case PlantedBug::kExtentFreedEarly:
      PlantExtentFreedEarly(cluster);
      break;
    case PlantedBug::kForgottenTombstone:
      PlantForgottenTombstone(cluster);
      break;
    case PlantedBug::kIgnoredLease:
      PlantIgnoredLease(cluster);
      break;
    case PlantedBug::kForgottenRead:
      PlantForgottenRead(cluster);
      break;
    case PlantedBug::kHastyPut:
      PlantHastyPut(cluster);
      break;
  }
}

}  // namespace mooncake::sim
