#include "client/object_reader.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/probe.h"
#include "client/replica_reader.h"
#include "env/clock.h"
#include "rpc/status_proto.h"

namespace mooncake::client {

struct LookedUp {
  v1::LookupObjectsReply reply;
  std::map<uint64_t, const v1::Grant*> grants;          // by slab
  std::map<std::string, const v1::NodeAddress*> nodes;  // by node id
  int64_t lease_end_ms = 0;
};

namespace {

int64_t NowMs() { return env::SystemClock::Instance().MonotonicMs(); }

bool SameExtent(const v1::SlabExtent& a, const v1::SlabExtent& b) {
  return a.node_id() == b.node_id() && a.slab_id() == b.slab_id() && a.offset() == b.offset();
}

class Reader {
 public:
  Reader(ObjectSession& session, std::span<ReadTask> tasks, const FitObject& fit)
      : session_(session), tasks_(tasks), fit_(fit) {}

  void Run() {
    std::vector<size_t> wanted(tasks_.size());
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = i;
    while (!wanted.empty()) {
      std::vector<size_t> readable = LookUp(wanted);
      wanted.clear();
      while (!readable.empty()) readable = ReadOnce(readable, &wanted);
    }
  }

 private:
  ReadTask& Task(size_t i) { return tasks_[i]; }
  void Finish(ReadTask& task, const Status& status, bool of_transfer = false) {
    task.result.status = status.WithContext("object " + KeyText(task.key));
    task.result.of_transfer = of_transfer;
  }

  // Those that can be read, with their segments.
  std::vector<size_t> LookUp(const std::vector<size_t>& wanted) {
    std::vector<size_t> readable;
    for (size_t begin = 0; begin < wanted.size();) {
      const size_t end =
          EndOfRequest(begin, wanted.size(), [&](size_t i) { return Task(wanted[i]).key.size(); });
      const std::span<const size_t> some(wanted.data() + begin, end - begin);
      begin = end;
      const Result<std::shared_ptr<const LookedUp>> found = Ask(some);
      for (size_t i = 0; i < some.size(); ++i) {
        ReadTask& task = Task(some[i]);
        const Status status =
            found.ok() ? Take(some[i], *found, (*found)->reply.entries(static_cast<int>(i)))
                       : found.status();
        if (!status.ok()) {
          Finish(task, status);
        } else if (!task.replicas.empty()) {
          readable.push_back(some[i]);
        }
      }
    }
    return readable;
  }

  Result<std::shared_ptr<const LookedUp>> Ask(std::span<const size_t> some) {
    v1::LookupObjectsRequest request;
    request.set_tenant_id(session_.options.tenant_id);
    request.set_renew_lease(true);
    request.set_locate(true);
    for (const size_t i : some) request.add_keys(Task(i).key.data(), Task(i).key.size());
    auto found = std::make_shared<LookedUp>();
    int64_t sent_ms = 0;
    const Status asked = Repeat(session_.Limits(), [&]() -> Status {
      sent_ms = NowMs();
      MC_ASSIGN_OR_RETURN(found->reply, session_.calls.Ask(&rpc::MasterApi::LookupObjects, request,
                                                           {.retry_ms = 0, .cancel = {}}));
      return OkStatus();
    });
    if (!asked.ok()) return asked;
    if (found->reply.entries_size() != static_cast<int>(some.size())) {
      return Internal("LookupObjects: expected " + std::to_string(some.size()) + " entries, got " +
                      std::to_string(found->reply.entries_size()));
    }
    found->lease_end_ms = sent_ms + static_cast<int64_t>(found->reply.lease_ms());
    for (const v1::Grant& grant : found->reply.grants()) found->grants[grant.arena_id()] = &grant;
    for (const v1::NodeAddress& node : found->reply.nodes()) found->nodes[node.node_id()] = &node;
    return std::shared_ptr<const LookedUp>(std::move(found));
  }

  // The Master's answer about one task. OK without replicas: there is nothing more to do.
  Status Take(size_t i, const std::shared_ptr<const LookedUp>& found,
              const v1::ObjectEntry& entry) {
    ReadTask& task = Task(i);
    const std::vector<v1::SlabExtent> tried = std::move(task.replicas);
    task.replicas.clear();
    const bool again = ++task.lookups > 1;
    MC_RETURN_IF_ERROR(rpc::StatusFromProto(entry.status()));
    if (task.expected_id != 0 && entry.object_id() != task.expected_id) {
      return LeaseExpired("object " + std::to_string(task.expected_id) +
                          " was replaced by object " + std::to_string(entry.object_id()));
    }
    if (again && entry.object_id() == task.object_id) {
      // Only the extents that were seen to hold something else come here.
      ReportUnreadable(task, tried, entry);
      for (const v1::SlabExtent& replica : entry.replicas()) {
        const bool bad = std::any_of(tried.begin(), tried.end(), [&](const v1::SlabExtent& t) {
          return SameExtent(t, replica);
        });
        if (!bad) task.replicas.push_back(replica);
      }
      task.found = found;
      SortReplicas(task);
      if (!task.replicas.empty()) return OkStatus();
      // The Master came back without what it had told relaxed: the bytes went with that.
      return NotFound("its extents hold other bytes by now, and the Master forgets it");
    }
    if (again) MC_PROBE("client.object_replaced_while_read");
    task.object_id = entry.object_id();
    task.result.bytes = entry.bytes();
    task.found = found;
    task.segments.clear();
    MC_RETURN_IF_ERROR(fit_(i, entry.bytes(), &task.segments));
    if (task.segments.empty()) return OkStatus();
    task.replicas.assign(entry.replicas().begin(), entry.replicas().end());
    if (task.replicas.empty()) return Unavailable("no node that holds it reports to the Master");
    SortReplicas(task);
    return OkStatus();
  }

  // This host's last, which are tried first.
  void SortReplicas(ReadTask& task) {
    std::stable_partition(
        task.replicas.begin(), task.replicas.end(), [&](const v1::SlabExtent& replica) {
          const auto node = task.found->nodes.find(replica.node_id());
          return node == task.found->nodes.end() || !session_.Shares(*node->second);
        });
  }

  void ReportUnreadable(const ReadTask& task, const std::vector<v1::SlabExtent>& bad,
                        const v1::ObjectEntry& entry) {
    for (const v1::SlabExtent& replica : entry.replicas()) {
      for (const v1::SlabExtent& extent : bad) {
        if (SameExtent(replica, extent)) {
          Report(task, extent, "the extent's header names another object");
        }
      }
    }
  }

  void Report(const ReadTask& task, const v1::SlabExtent& replica, const std::string& reason) {
    MC_PROBE("client.object_unreadable");
    Log().warn("object {}: its replica in slab {} of node {} cannot be read: {}", KeyText(task.key),
               replica.slab_id(), replica.node_id(), reason);
    v1::ReportUnreadableRequest request;
    request.set_tenant_id(session_.options.tenant_id);
    request.set_key(task.key.data(), task.key.size());
    request.set_object_id(task.object_id);
    *request.mutable_replica() = replica;
    request.set_reason(reason);
    const Result<v1::ReportUnreadableReply> reply =
        session_.calls.Ask(&rpc::MasterApi::ReportUnreadable, request, session_.Limits());
    if (!reply.ok()) Log().warn("reporting it: {}", reply.status().ToString());
  }

  // Reads the best replica of each. Returns those that have another one to try; those that must be
  // looked up once more go to `again`.
  std::vector<size_t> ReadOnce(const std::vector<size_t>& readable, std::vector<size_t>* again) {
    std::vector<ReplicaRead> reads;
    std::vector<size_t> reading;
    std::vector<size_t> next;
    for (const size_t i : readable) {
      ReadTask& task = Task(i);
      const v1::SlabExtent& extent = task.replicas.back();
      const auto node = task.found->nodes.find(extent.node_id());
      const auto grant = task.found->grants.find(extent.slab_id());
      if (node == task.found->nodes.end() || grant == task.found->grants.end()) {
        task.failed = Internal("the Master gave no grant or address for slab " +
                               std::to_string(extent.slab_id()) + " of node " + extent.node_id());
        GoOn(i, &next);
        continue;
      }
      reads.push_back({.extent = &extent,
                       .node = node->second,
                       .grant = grant->second,
                       .object_id = task.object_id,
                       .segments = task.segments,
                       .verify = task.whole && session_.options.checksum,
                       .status = {}});
      reading.push_back(i);
    }
    ReadReplicas(session_, reads);
    for (size_t i = 0; i < reads.size(); ++i) Judge(reading[i], reads[i], &next, again);
    return next;
  }

  void Judge(size_t i, const ReplicaRead& read, std::vector<size_t>* next,
             std::vector<size_t>* again) {
    ReadTask& task = Task(i);
    switch (read.outcome) {
      case ReplicaRead::Outcome::kRead:
        task.result.status = OkStatus();
        return;
      case ReplicaRead::Outcome::kGone:
        if (NowMs() >= task.found->lease_end_ms || task.lookups > 2) {
          return Finish(task, LeaseExpired("it went while it was read"), true);
        }
        // Take compares what is named then with this extent alone.
        task.replicas = {task.replicas.back()};
        again->push_back(i);
        return;
      case ReplicaRead::Outcome::kDamaged:
        Report(task, task.replicas.back(), read.status.message());
        task.failed = read.status;
        return GoOn(i, next);
      case ReplicaRead::Outcome::kUnreachable:
        task.failed = read.status;
        return GoOn(i, next);
    }
  }

  // To the next replica, if there is one.
  void GoOn(size_t i, std::vector<size_t>* next) {
    ReadTask& task = Task(i);
    task.replicas.pop_back();
    if (!task.replicas.empty()) return next->push_back(i);
    Finish(task, task.failed, true);
  }

  ObjectSession& session_;
  const std::span<ReadTask> tasks_;
  const FitObject& fit_;
};

}  // namespace

void ReadObjects(ObjectSession& session, std::span<ReadTask> tasks, const FitObject& fit) {
  Reader(session, tasks, fit).Run();
}

}  // namespace mooncake::client
