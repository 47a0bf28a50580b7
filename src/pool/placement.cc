#include "pool/placement.h"

#include <algorithm>
#include <map>

namespace mooncake::pool {
namespace {

// Slabs are memory files: whole pages.
constexpr uint64_t kPageBytes = 4096;
// A node gives at most this share of itself in one step, so that a small one serves several
// tenants, unless one object needs more.
constexpr uint64_t kSmallestShare = 16;

uint32_t RankOf(const NodeRoom& node, const PlaceRequest& request) {
  const auto& preferred = request.preferred_node_ids;
  const auto at = std::find(preferred.begin(), preferred.end(), node.node_id);
  const auto count = static_cast<uint32_t>(preferred.size());
  if (at != preferred.end()) return static_cast<uint32_t>(at - preferred.begin());
  if (node.node_id == request.group_node_id) return count;
  const bool near = !request.preferred_host_id.empty() && node.host_id == request.preferred_host_id;
  return count + (near ? 1 : 2);
}

// In the tenant's smallest sufficient range on the node.
bool FindRoom(const Catalog& catalog, const Tenant* tenant, const NodeRoom& node,
              uint64_t extent_bytes, PlannedReplica* replica) {
  if (tenant == nullptr) return false;
  const auto rooms = tenant->rooms.find(node.node_id);
  if (rooms == tenant->rooms.end()) return false;
  const auto at = rooms->second.lower_bound({extent_bytes, 0});
  if (at == rooms->second.end()) return false;
  const Slab& slab = catalog.slab(at->second);
  *replica = {node.node_id, slab.slab_id, slab.bytes, *slab.space.Find(extent_bytes)};
  return true;
}

}  // namespace

uint64_t NewSlabBytes(const NodeRoom& node, uint64_t extent_bytes, uint64_t slab_bytes) {
  const uint64_t least = (extent_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  const uint64_t free = node.free_bytes / kPageBytes * kPageBytes;
  if (least > free) return 0;
  const uint64_t share = node.capacity_bytes / kSmallestShare / kPageBytes * kPageBytes;
  return std::clamp(std::min(slab_bytes, share), least, free);
}

std::vector<PlannedReplica> PlanReplicas(const Catalog& catalog, const std::vector<NodeRoom>& nodes,
                                         const PlaceRequest& request) {
  const Tenant* tenant = catalog.FindTenant(request.tenant_id);
  const uint64_t extent_bytes = ExtentBytes(request.bytes);
  std::map<uint32_t, std::vector<const NodeRoom*>> by_rank;
  for (const NodeRoom& node : nodes) {
    const uint32_t rank = RankOf(node, request);
    if (request.preferred_only && rank >= request.preferred_node_ids.size()) continue;
    by_rank[rank].push_back(&node);
  }
  std::vector<PlannedReplica> replicas;
  for (auto& [rank, equals] : by_rank) {
    std::sort(equals.begin(), equals.end(), [](const NodeRoom* a, const NodeRoom* b) {
      return a->free_bytes != b->free_bytes ? a->free_bytes > b->free_bytes
                                            : a->node_id < b->node_id;
    });
    std::vector<const NodeRoom*> without;
    for (const NodeRoom* node : equals) {
      if (replicas.size() == request.replica_num) return replicas;
      PlannedReplica replica;
      if (FindRoom(catalog, tenant, *node, extent_bytes, &replica)) {
        replicas.push_back(std::move(replica));
      } else {
        without.push_back(node);
      }
    }
    for (const NodeRoom* node : without) {
      if (replicas.size() == request.replica_num) return replicas;
      const uint64_t bytes = NewSlabBytes(*node, extent_bytes, request.slab_bytes);
      if (bytes > 0) replicas.push_back({node->node_id, ArenaId(), bytes, 0});
    }
  }
  return replicas;
}

}  // namespace mooncake::pool
