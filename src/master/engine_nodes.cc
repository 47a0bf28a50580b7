// Nodes and the cluster as a whole.

#include <fmt/format.h>

#include "base/log.h"
#include "base/probe.h"
#include "codec/values.h"
#include "master/engine.h"
#include "master/version.h"

namespace mooncake::master {
namespace {

constexpr size_t kGrantKeyBytes = 32;

std::string AboutNode(const v1::RegisterNodeRequest& request, std::string_view what) {
  return fmt::format("node {} {}", request.address().node_id(), what);
}

}  // namespace

// A report makes the node drop what this log does not know. So the node's data must be of this log:
//   - its folder is this cluster's; one that is older than that mark is taken in when it holds
//     nothing but what the log places on this node;
//   - this log knows the node, if it holds anything;
//   - it holds nothing of imports that this log has yet to number: the log would be an older copy.
Status Engine::CheckIsOurs(const v1::RegisterNodeRequest& request) const {
  if (!request.cluster_id().empty() && request.cluster_id() != cluster_id_) {
    return InvalidArgument(AboutNode(
        request,
        fmt::format("has the folder of cluster {}, this is the Master of cluster {}: start "
                    "it with that cluster's Master, or with a new folder",
                    request.cluster_id(), cluster_id_)));
  }
  const std::string& node_id = request.address().node_id();
  const objects::Node* known = state_.objects.FindNode(node_id);
  const bool same_files = known != nullptr && known->durable_arenas &&
                          known->address.instance_id == request.address().instance_id();
  std::set<model::ImportId> ours;
  for (const model::ImportId id : state_.objects.ImportsOn(node_id)) ours.insert(id);
  for (const uint64_t id : request.held_import_ids()) {
    MC_RETURN_IF_ERROR(CheckIsNumbered(model::ImportId(id)).WithContext("node " + node_id));
    const bool marked = known != nullptr && !request.cluster_id().empty();
    // Slabs: what this log does not know of them is dropped, which loses no weights.
    if (marked || same_files || id == 0 || ours.contains(model::ImportId(id))) continue;
    return Corrupt(AboutNode(
        request, fmt::format("holds import {}, which the log of cluster {} does not place there: "
                             "its folder may be another cluster's (if not, remove that import)",
                             id, cluster_id_)));
  }
  return OkStatus();
}

Status Engine::CheckIsNumbered(model::ImportId id) const {
  if (id < state_.weights.next_import_id()) return OkStatus();
  return Corrupt(fmt::format(
      "import {} is held, and the log of cluster {} has numbered imports only up to {}: "
      "it is an older copy of the log, and nothing is dropped",
      id.value, cluster_id_, state_.weights.next_import_id().value - 1));
}

Status Engine::Run(const v1::RegisterNodeRequest& request, v1::RegisterNodeReply* reply,
                   Batch& batch) {
  if (request.grant_key().size() != kGrantKeyBytes) {
    return InvalidArgument(fmt::format("expected {} bytes of grant_key, got {}", kGrantKeyBytes,
                                       request.grant_key().size()));
  }
  MC_RETURN_IF_ERROR(CheckIsOurs(request));
  const model::NodeAddress address = codec::FromProto(request.address());
  MC_ASSIGN_OR_RETURN(const std::vector<objects::Event> events,
                      objects::DecideNodeJoin(state_.objects, address, request.capacity_bytes(),
                                              request.durable_arenas(), request.objects_only()));
  const objects::Node* known = state_.objects.FindNode(address.node_id);
  const bool memory_is_lost = known != nullptr && !request.durable_arenas() &&
                              known->address.instance_id != address.instance_id;
  if (memory_is_lost) {
    if (const auto slabs = SlabsOn(address.node_id); !slabs.empty()) {
      MC_PROBE("master.slabs_lost");
      batch.Emit(pool::Event(pool::SlabsGone{slabs}));
    }
  }
  batch.Emit(events);
  nodes_.Register(address.node_id, address.instance_id, request.grant_key(), batch.now_ms());
  // A new instance may have lost what the one before it held.
  if (!events.empty()) LookAgain(address.node_id);
  Log().info("master: node {} registers as instance {} with {} bytes", address.node_id,
             address.instance_id, request.capacity_bytes());
  reply->set_report_interval_ms(static_cast<uint64_t>(options_.report_interval_ms));
  reply->set_cluster_id(cluster_id_);
  return OkStatus();
}

Status Engine::Run(const v1::ReportNodeRequest& request, v1::ReportNodeReply* reply, Batch& batch) {
  if (nodes_.Find(request.node_id(), request.instance_id()) == nullptr) {
    return NotFound(fmt::format("node {} has not registered as instance {}", request.node_id(),
                                request.instance_id()));
  }
  std::vector<objects::HeldImport> held;
  held.reserve(static_cast<size_t>(request.held_size()));
  for (const v1::HeldImport& one : request.held()) {
    objects::HeldImport& import = held.emplace_back();
    import.import_id = model::ImportId(one.import_id());
    MC_RETURN_IF_ERROR(CheckIsNumbered(import.import_id).WithContext("node " + request.node_id()));
    import.metadata_objects = one.metadata_objects();
    for (const uint64_t arena_id : one.arena_ids()) import.arena_ids.emplace_back(arena_id);
  }
  MC_ASSIGN_OR_RETURN(
      objects::Reconciliation result,
      objects::ReconcileReport(state_.objects, request.node_id(), request.instance_id(), held));
  batch.Emit(result.events);
  // While an import is open its arenas and objects are only coming into being.
  std::erase_if(result.missing, [this](const auto& entry) {
    const weights::Revision* revision = state_.weights.FindImport(entry.first);
    return revision == nullptr || revision->availability == model::Availability::kImporting;
  });
  nodes_.NotePrepared(request.node_id(), request.prepared_bytes());
  const NodeRegistry::ReportOutcome outcome =
      nodes_.Report(request.node_id(), std::move(result.missing), batch.now_ms());
  if (outcome.confirmed_now) LookAgain(request.node_id());
  recheck_.insert(outcome.changed.begin(), outcome.changed.end());
  for (const model::ArenaId id : result.drop_arenas) reply->add_drop_arena_ids(id.value);
  for (const model::ImportId id : result.drop_imports) reply->add_drop_import_ids(id.value);
  return OkStatus();
}

Status Engine::Run(const v1::LeaveNodeRequest& request, v1::LeaveNodeReply*, Batch& batch) {
  const objects::Node* node = state_.objects.FindNode(request.node_id());
  // A repetition finds it gone.
  if (node == nullptr || node->address.instance_id != request.instance_id()) return OkStatus();
  if (!node->objects_only || !state_.objects.HoldsNoWeights(request.node_id())) {
    return InvalidArgument(fmt::format(
        "node {} holds weights, or may: only one that lends memory to objects alone can leave",
        request.node_id()));
  }
  Log().info("master: node {} leaves", request.node_id());
  Leave(request.node_id(), batch);
  return OkStatus();
}

Status Engine::Run(const v1::GetClusterRequest&, v1::GetClusterReply* reply, Batch& batch) {
  reply->set_cluster_id(cluster_id_);
  reply->set_last_log_sequence(state_.sequence);
  reply->set_version(std::string(Version()));
  for (const objects::Node& node : state_.objects.nodes()) {
    if (node.left) continue;
    v1::NodeStatus* status = reply->add_nodes();
    codec::ToProto(node.address, status->mutable_address());
    status->set_capacity_bytes(node.capacity_bytes);
    status->set_used_bytes(node.live_bytes + node.metadata_bytes);
    status->set_releasing_bytes(node.releasing_bytes + node.metadata_releasing_bytes);
    status->set_arena_count(node.arenas.size());
    status->set_slab_bytes(node.slab_bytes);
    status->set_objects_only(node.objects_only);
    const NodeRegistry::Node* present = nodes_.Find(node.address.node_id, node.address.instance_id);
    if (present == nullptr) continue;
    status->set_alive(present->alive);
    status->set_prepared_bytes(present->prepared_bytes);
    status->set_last_report_age_ms(static_cast<uint64_t>(batch.now_ms() - present->last_heard_ms));
  }
  reply->set_object_count(state_.objects.payload_count() + state_.objects.metadata_count() +
                          state_.pool.object_count());
  reply->set_open_imports(state_.weights.open_imports().size());
  reply->set_active_leases(state_.weights.leases().size());
  const auto& counts = state_.weights.counts();
  for (uint8_t i = 1; i <= model::kAvailabilityMax; ++i) {
    const std::string name(Name(static_cast<model::Availability>(i)));
    (*reply->mutable_revisions_by_availability())[name] = counts[i];
  }
  return OkStatus();
}

void Engine::LookAgain(std::string_view node_id) {
  const std::vector<model::ImportId> imports = state_.objects.ImportsOn(node_id);
  recheck_.insert(imports.begin(), imports.end());
}

}  // namespace mooncake::master
