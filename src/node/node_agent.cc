#include "node/node_agent.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "base/probe.h"
#include "env/sync.h"
#include "rpc/status_proto.h"

namespace mooncake::node {
namespace {

constexpr uint64_t kBackoffMsMin = 50;
constexpr uint64_t kBackoffMsMax = 2000;

// The Master's decision about this node, which no waiting changes.
bool IsRefusal(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kCorrupt ||
         status.code() == Code::kPermissionDenied;
}

}  // namespace

NodeAgent::NodeAgent(Node& node, std::shared_ptr<rpc::MasterApi> master, NodeAgentOptions options)
    : node_(node), master_(std::move(master)), options_(std::move(options)) {
  thread_ = env::Thread([this] { Run(); });
}

NodeAgent::~NodeAgent() { Stop(); }

void NodeAgent::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status NodeAgent::Register() {
  v1::RegisterNodeRequest request;
  request.mutable_address()->set_node_id(node_.node_id());
  request.mutable_address()->set_instance_id(node_.instance_id());
  request.mutable_address()->set_host_id(options_.host_id);
  request.mutable_address()->set_socket_path(options_.socket_path);
  request.mutable_address()->set_tcp_address(options_.tcp_address);
  request.set_capacity_bytes(node_.capacity_bytes());
  request.set_grant_key(node_.grant_key());
  request.set_durable_arenas(node_.durable_arenas());
  request.set_objects_only(options_.objects_only);
  request.set_cluster_id(node_.cluster_id());
  for (const HeldImport& held : node_.Report()) request.add_held_import_ids(held.import_id);
  const v1::RegisterNodeReply reply = master_->RegisterNode(request);
  MC_RETURN_IF_ERROR(rpc::StatusFromProto(reply.status()));
  // Before the first report: what that makes the node drop must be known to be this Master's.
  MC_RETURN_IF_ERROR(node_.JoinCluster(reply.cluster_id()));
  std::lock_guard lock(mutex_);
  interval_ms_ =
      options_.report_interval_ms != 0 ? options_.report_interval_ms : reply.report_interval_ms();
  interval_ms_ = std::max<uint64_t>(interval_ms_, 1);
  return OkStatus();
}

Status NodeAgent::Report() {
  v1::ReportNodeRequest request;
  request.set_node_id(node_.node_id());
  request.set_instance_id(node_.instance_id());
  request.set_prepared_bytes(node_.prepared_bytes());
  for (const HeldImport& held : node_.Report()) {
    v1::HeldImport* import = request.add_held();
    import->set_import_id(held.import_id);
    for (const uint64_t arena_id : held.arena_ids) import->add_arena_ids(arena_id);
    import->set_metadata_objects(held.metadata_objects);
    import->set_sealed(held.sealed);
  }
  const v1::ReportNodeReply reply = master_->ReportNode(request);
  MC_RETURN_IF_ERROR(rpc::StatusFromProto(reply.status()));
  if (reply.drop_arena_ids_size() == 0 && reply.drop_import_ids_size() == 0) return OkStatus();
  const Status dropped =
      node_.Drop({reply.drop_arena_ids().begin(), reply.drop_arena_ids().end()},
                 {reply.drop_import_ids().begin(), reply.drop_import_ids().end()});
  if (!dropped.ok()) return OkStatus();  // logged; the next regular report names it again
  // What was dropped is confirmed by its absence: at once, and not an interval later.
  std::lock_guard lock(mutex_);
  wanted_ = true;
  return OkStatus();
}

void NodeAgent::Run() {
  uint64_t backoff_ms = kBackoffMsMin;
  bool registered = false;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wanted_ = false;
    const uint64_t begun = ++reports_begun_;
    lock.unlock();
    Status status = registered ? OkStatus() : Register();
    if (status.ok()) {
      registered = true;
      status = Report();
    }
    lock.lock();
    if (status.code() == Code::kNotFound && registered) {
      MC_PROBE("node.registered_again");
      Log().info("node {}: the Master does not know this instance, registering again",
                 node_.node_id());
    } else if (!status.ok() && (last_.ok() || (IsRefusal(status) && !IsRefusal(last_)))) {
      Log().warn("node {}: {}", node_.node_id(), status.ToString());
    }
    if (IsRefusal(status)) reports_refused_ = begun;
    if (status.ok()) {
      reports_answered_ = begun;
      backoff_ms = kBackoffMsMin;
    } else if (status.code() == Code::kNotFound) {
      registered = false;
    }
    registered_ = registered;
    last_ = status;
    changed_.notify_all();
    uint64_t pause_ms = interval_ms_;
    if (!status.ok()) {
      pause_ms = backoff_ms;
      backoff_ms = std::min(backoff_ms * 2, kBackoffMsMax);
    }
    changed_.wait_for(lock, std::chrono::milliseconds(pause_ms),
                      [this] { return stopping_ || wanted_; });
  }
  changed_.notify_all();
}

Status NodeAgent::WaitFor(std::unique_lock<env::Mutex>& lock, env::Deadline deadline,
                          uint64_t reports) {
  const auto done = [&] { return stopping_ || reports_answered_ >= reports; };
  while (!done()) {
    if (reports_refused_ >= reports && IsRefusal(last_)) return last_;
    const int64_t left_ms = deadline.RemainingMs();
    if (left_ms == 0) {
      return Unavailable("node " + node_.node_id() +
                         ": no report was answered in time: " + last_.ToString());
    }
    changed_.wait_for(lock, std::chrono::milliseconds(std::min<int64_t>(left_ms, 60'000)));
  }
  if (stopping_ && reports_answered_ < reports) {
    return Cancelled("node " + node_.node_id() + " is stopping");
  }
  return OkStatus();
}

Status NodeAgent::WaitRegistered(env::Deadline deadline) {
  std::unique_lock lock(mutex_);
  return WaitFor(lock, deadline, 1);
}

Status NodeAgent::ReportNow(env::Deadline deadline) {
  std::unique_lock lock(mutex_);
  const uint64_t wanted = reports_begun_ + 1;
  wanted_ = true;
  changed_.notify_all();
  return WaitFor(lock, deadline, wanted);
}

}  // namespace mooncake::node
