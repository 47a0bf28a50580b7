#include "master/permits.h"

#include <fmt/format.h>

#include <utility>

#include "codec/values.h"

namespace mooncake::master {

Status Permits::AddArena(model::ArenaId arena_id, model::Access access) {
  if (!arenas_.insert(arena_id).second) return OkStatus();
  const objects::Arena* arena = catalog_.FindArena(arena_id);
  if (arena == nullptr) return Internal(fmt::format("arena {} does not exist", arena_id.value));
  const objects::Node& node = catalog_.node(arena->node);
  if (arena->state == objects::ArenaState::kLost) {
    return NotReady(fmt::format("node {} lost the memory of arena {} when it restarted",
                                node.address.node_id, arena_id.value));
  }
  return Add(node,
             {node.address.instance_id, tenant_id_, import_id_, arena_id, arena->bytes, access});
}

Status Permits::AddMetadata(std::string_view node_id, model::Access access) {
  if (!metadata_nodes_.emplace(node_id, access).second) return OkStatus();
  const objects::Node* node = catalog_.FindNode(node_id);
  if (node == nullptr) return Internal(fmt::format("node {} never joined", node_id));
  return Add(*node,
             {node->address.instance_id, tenant_id_, import_id_, model::ArenaId(), 0, access});
}

Status Permits::Add(const objects::Node& node, const model::Grant& grant) {
  const std::string& node_id = node.address.node_id;
  const NodeRegistry::Node* present = registry_.Find(node_id, node.address.instance_id);
  if (present == nullptr) {
    return Unavailable(fmt::format("node {} has not registered with this Master yet", node_id));
  }
  if (!present->alive) return Unavailable(fmt::format("node {} is not reporting", node_id));
  codec::ToProto(grant, model::GrantMac(present->grant_key, grant), grants_->Add());
  if (addressed_.insert(node_id).second) codec::ToProto(node.address, addresses_->Add());
  return OkStatus();
}

}  // namespace mooncake::master
