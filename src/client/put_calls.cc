#include "client/put_calls.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/log.h"
#include "rpc/status_proto.h"

namespace mooncake::client {
namespace {

using NodesByInstance = std::map<std::string, std::shared_ptr<const v1::NodeAddress>>;

Result<v1::PutStartReply> Ask(ObjectSession& session, std::span<const PutName> names,
                              const PutOptions& options) {
  v1::PutStartRequest request;
  request.set_client_id(session.options.client_id);
  request.set_put_id(session.next_put_id++);
  request.set_tenant_id(session.options.tenant_id);
  const bool grouped = std::any_of(names.begin(), names.end(),
                                   [](const PutName& name) { return !name.group_id.empty(); });
  for (const PutName& name : names) {
    request.add_keys(name.key.data(), name.key.size());
    request.add_sizes(name.bytes);
    if (grouped) request.add_group_ids(name.group_id.data(), name.group_id.size());
  }
  *request.mutable_config() = options.config;
  request.set_upsert(options.upsert);
  request.set_all_or_nothing(options.all_or_nothing);
  request.set_no_eviction(options.no_eviction);
  request.set_preferred_host_id(session.options.host_id);
  MC_ASSIGN_OR_RETURN(v1::PutStartReply reply,
                      session.calls.Ask(&rpc::MasterApi::PutStart, request, session.Limits()));
  if (reply.entries_size() != static_cast<int>(names.size())) {
    return Internal("PutStart: expected " + std::to_string(names.size()) + " entries, got " +
                    std::to_string(reply.entries_size()));
  }
  return reply;
}

Status TakeReplicas(const PutName& name, v1::PutEntry& answer, const NodesByInstance& nodes,
                    std::vector<PutReplica>* replicas) {
  if (answer.permits_size() == 0) return Internal("the Master gave it no extent");
  for (v1::ExtentPermit& permit : *answer.mutable_permits()) {
    if (permit.bytes() != name.bytes) {
      return Internal("expected an extent of " + std::to_string(name.bytes) + " bytes, got " +
                      std::to_string(permit.bytes()));
    }
    const auto node = nodes.find(permit.instance_id());
    if (node == nodes.end()) {
      return Internal("no address of node instance " + permit.instance_id());
    }
    replicas->push_back({std::move(permit), node->second});
  }
  return OkStatus();
}

StartedPut Take(const PutName& name, v1::PutEntry& answer, const NodesByInstance& nodes) {
  StartedPut started;
  PutResult& result = started.result;
  result.status = rpc::StatusFromProto(answer.status()).WithContext("object " + KeyText(name.key));
  result.refusal = answer.refusal();
  if (!result.status.ok()) return started;
  result.existed = answer.state() == v1::PUT_STATE_EXISTS;
  if (answer.state() != v1::PUT_STATE_WRITE) return started;
  started.object_id = answer.object_id();
  const Status taken = TakeReplicas(name, answer, nodes, &started.replicas);
  if (!taken.ok()) {
    result.status = taken.WithContext("object " + KeyText(name.key));
    started.replicas.clear();
  }
  return started;
}

}  // namespace

std::vector<StartedPut> StartPuts(ObjectSession& session, std::span<const PutName> names,
                                  const PutOptions& options) {
  std::vector<StartedPut> puts;
  puts.reserve(names.size());
  Result<v1::PutStartReply> reply = Ask(session, names, options);
  if (!reply.ok()) {
    puts.resize(names.size());
    for (StartedPut& put : puts) put.result.status = reply.status();
    return puts;
  }
  NodesByInstance nodes;
  for (const v1::NodeAddress& node : reply->nodes()) {
    nodes[node.instance_id()] = std::make_shared<const v1::NodeAddress>(node);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    puts.push_back(Take(names[i], *reply->mutable_entries(static_cast<int>(i)), nodes));
  }
  return puts;
}

EndedPuts EndPuts(ObjectSession& session, std::span<const uint64_t> ids,
                  const PutOptions& options) {
  v1::PutEndRequest request;
  request.set_client_id(session.options.client_id);
  request.set_tenant_id(session.options.tenant_id);
  request.set_relaxed(options.relaxed);
  request.set_all_or_nothing(options.all_or_nothing);
  for (const uint64_t id : ids) request.add_object_ids(id);
  const Result<v1::PutEndReply> reply =
      session.calls.Ask(&rpc::MasterApi::PutEnd, request, session.Limits());
  Status all = reply.status();
  if (all.ok() && reply->results_size() != static_cast<int>(ids.size())) {
    all = Internal("PutEnd: expected " + std::to_string(ids.size()) + " results, got " +
                   std::to_string(reply->results_size()));
  }
  EndedPuts ended;
  ended.lost = all.code() == Code::kUnavailable || all.code() == Code::kOutcomeUnknown;
  ended.statuses.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    ended.statuses.push_back(all.ok() ? rpc::StatusFromProto(reply->results(static_cast<int>(i)))
                                      : all);
  }
  return ended;
}

Status RevokePuts(ObjectSession& session, std::span<const uint64_t> ids, const CallLimits& limits) {
  if (ids.empty()) return OkStatus();
  v1::PutRevokeRequest request;
  request.set_client_id(session.options.client_id);
  request.set_tenant_id(session.options.tenant_id);
  for (const uint64_t id : ids) request.add_object_ids(id);
  Status status = session.calls.Ask(&rpc::MasterApi::PutRevoke, request, limits).status();
  if (!status.ok()) {
    Log().warn("client {}: revoking {} puts: {}", session.options.client_id, ids.size(),
               status.ToString());
  }
  return status;
}

}  // namespace mooncake::client
