#include "objects/reconcile.h"

#include <algorithm>

namespace mooncake::objects {
namespace {

Status ValidateAddress(const model::NodeAddress& address) {
  MC_RETURN_IF_ERROR(model::ValidateIdentityPart("node_id", address.node_id));
  MC_RETURN_IF_ERROR(model::ValidateIdentityPart("instance_id", address.instance_id));
  MC_RETURN_IF_ERROR(model::ValidateText("host_id", address.host_id, model::kIdentityPartBytesMax));
  MC_RETURN_IF_ERROR(model::ValidateText("tcp_address", address.tcp_address, 4096));
  return model::ValidateText("socket_path", address.socket_path, 4096);
}

// Adds what must go of one import that the node says it holds.
void CompareHeld(const Catalog& catalog, const Node& node, const HeldImport& held,
                 Reconciliation* result) {
  const Group* group = catalog.FindGroup(held.import_id);
  const bool slabs = held.import_id == ImportId();
  if (!slabs && (group == nullptr || group->removed)) {
    result->drop_imports.push_back(held.import_id);
    return;
  }
  for (const ArenaId id : held.arena_ids) {
    const Arena* arena = catalog.FindArena(id);
    const bool wanted = arena != nullptr && arena->state == ArenaState::kLive &&
                        arena->import_id == held.import_id && node.arenas.contains(id);
    if (!wanted) result->drop_arenas.push_back(id);
  }
}

}  // namespace

Result<std::vector<Event>> DecideNodeJoin(const Catalog& catalog, const model::NodeAddress& address,
                                          uint64_t capacity_bytes, bool durable_arenas,
                                          bool objects_only) {
  MC_RETURN_IF_ERROR(ValidateAddress(address));
  if (capacity_bytes == 0) {
    return InvalidArgument("capacity_bytes of node " + address.node_id + " must not be 0");
  }
  const Node* known = catalog.FindNode(address.node_id);
  if (known != nullptr && known->address == address && known->capacity_bytes == capacity_bytes &&
      known->durable_arenas == durable_arenas && known->objects_only == objects_only) {
    return std::vector<Event>{};
  }
  if (known != nullptr && objects_only && (!catalog.HoldsNoWeights(address.node_id))) {
    return InvalidArgument("node " + address.node_id +
                           " holds weights and cannot become one for objects only");
  }
  return std::vector<Event>{NodeJoined{address, capacity_bytes, durable_arenas, objects_only}};
}

Result<Reconciliation> ReconcileReport(const Catalog& catalog, std::string_view node_id,
                                       std::string_view instance_id,
                                       const std::vector<HeldImport>& held) {
  const Node* node = catalog.FindNode(node_id);
  if (node == nullptr || node->address.instance_id != instance_id) {
    return NotFound("node " + std::string(node_id) + " has not joined as instance " +
                    std::string(instance_id));
  }
  Reconciliation result;
  std::set<ArenaId> held_arenas;
  std::map<ImportId, uint64_t> held_metadata;
  for (const HeldImport& import : held) {
    held_metadata[import.import_id] += import.metadata_objects;
    held_arenas.insert(import.arena_ids.begin(), import.arena_ids.end());
    CompareHeld(catalog, *node, import, &result);
  }

  ArenasReleased released;
  for (const ArenaId id : node->arenas) {
    if (held_arenas.contains(id)) continue;
    const Arena& arena = *catalog.FindArena(id);
    if (arena.state == ArenaState::kReleasing) {
      released.arena_ids.push_back(id);
    } else if (arena.import_id != ImportId()) {
      // A slab that is not there yet is made by its first write.
      result.missing[arena.import_id].arenas.push_back(id);
    }
  }
  if (!released.arena_ids.empty()) result.events.emplace_back(std::move(released));

  MetadataReleased metadata;
  metadata.node_id = node_id;
  for (const ImportId id : node->metadata_of) {
    const Group& group = *catalog.FindGroup(id);
    const auto count = held_metadata.find(id);
    const uint64_t has = count == held_metadata.end() ? 0 : count->second;
    if (group.removed) {
      if (has == 0) metadata.import_ids.push_back(id);
      continue;
    }
    const auto expected = static_cast<uint64_t>(
        std::count_if(group.metadata.begin(), group.metadata.end(),
                      [&](const auto& object) { return object.node_id == node_id; }));
    if (has < expected) result.missing[id].metadata_objects = expected - has;
  }
  if (!metadata.import_ids.empty()) result.events.emplace_back(std::move(metadata));
  return result;
}

model::MemberFacts ObserveMembers(const Catalog& catalog, ImportId id,
                                  const NodeLiveness& liveness) {
  const Group* group = catalog.FindGroup(id);
  if (group == nullptr || group->removed) return {false, "its objects are gone"};
  // What is gone for good first, then who is silent, then what is missing.
  std::set<std::string_view> nodes;
  for (const ArenaId arena_id : group->arenas) {
    const Arena* arena = catalog.FindArena(arena_id);
    if (arena == nullptr || arena->state == ArenaState::kReleasing) continue;
    const std::string& node_id = catalog.node(arena->node).address.node_id;
    if (arena->state == ArenaState::kLost) {
      return {false, "node " + node_id + " lost the memory of arena " +
                         std::to_string(arena_id.value) + " when it restarted"};
    }
    nodes.insert(node_id);
  }
  for (const model::MetadataObject& object : group->metadata) nodes.insert(object.node_id);
  for (const std::string_view node_id : nodes) {
    if (!liveness.reporting.contains(node_id)) {
      return {false, "node " + std::string(node_id) + " is not reporting"};
    }
  }
  for (const std::string_view node_id : nodes) {
    const auto report = liveness.missing.find(node_id);
    if (report == liveness.missing.end()) continue;
    const auto missing = report->second.find(id);
    if (missing == report->second.end()) continue;
    if (!missing->second.arenas.empty()) {
      return {false, "node " + std::string(node_id) + " no longer holds arena " +
                         std::to_string(missing->second.arenas.front().value)};
    }
    if (missing->second.metadata_objects > 0) {
      return {false, "node " + std::string(node_id) + " no longer holds " +
                         std::to_string(missing->second.metadata_objects) + " METADATA objects"};
    }
  }
  return {true, ""};
}

std::vector<Event> NextRemovalStep(const Catalog& catalog, ImportId id, uint32_t max_members) {
  const Group* group = catalog.FindGroup(id);
  if (group == nullptr || group->removed) return {};
  const PayloadTable& payloads = group->payloads;
  if (payloads.payload_count() == 0) return {GroupRemoved{id}};

  ObjectsRemoved removed;
  removed.import_id = id;
  std::map<uint32_t, uint32_t> taken;  // arena index -> payloads removed by this step
  const uint32_t limit = std::max(max_members, 1u);
  for (uint32_t number = payloads.first_live();
       number < payloads.row_count() && removed.names.size() < limit; ++number) {
    const PayloadTable::Row& row = payloads.row(number);
    if (row.arena == PayloadTable::kRemoved) continue;
    removed.names.emplace_back(payloads.name(number));
    taken[row.arena] += 1;
  }
  ArenasReleasing emptied;
  for (const auto& [index, count] : taken) {
    const Arena& arena = *catalog.FindArena(group->arenas[index]);
    if (arena.payload_count == count) emptied.arena_ids.push_back(arena.arena_id);
  }
  std::vector<Event> events;
  events.emplace_back(std::move(removed));
  if (!emptied.arena_ids.empty()) events.emplace_back(std::move(emptied));
  return events;
}

std::vector<Event> PlanGroupDrop(const Catalog& catalog, ImportId id) {
  const Group* group = catalog.FindGroup(id);
  if (group == nullptr || group->removed) return {};
  return {GroupRemoved{id}};
}

}  // namespace mooncake::objects
