// PlanReplicas: where the replicas of a new object will lie.
//
// Pure. Each replica on a node of its own, as many as there are nodes with room, at least one.
// Nodes are tried in this order: those preferred by name, in their order; the one where the
// object's group lies; those of the preferred host; the rest. Among equals, a slab that has room
// comes before a new one, and a new one is made on the node with the most free space.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pool/catalog.h"

namespace mooncake::pool {

// A node that may take objects now.
struct NodeRoom {
  std::string node_id;
  std::string host_id;
  uint64_t free_bytes = 0;      // of its capacity, for new slabs
  uint64_t capacity_bytes = 0;  // all of it
};

struct PlaceRequest {
  std::string_view tenant_id;
  uint64_t bytes = 0;  // of the payload
  uint32_t replica_num = 1;
  std::vector<std::string> preferred_node_ids;
  std::string_view group_node_id;      // may be empty
  std::string_view preferred_host_id;  // may be empty
  uint64_t slab_bytes = 0;             // of new slabs, where the node has so much
  bool preferred_only = false;         // nothing but the preferred nodes
};

struct PlannedReplica {
  std::string node_id;
  ArenaId slab_id;          // none: a new slab, of
  uint64_t slab_bytes = 0;  //   so many bytes
  uint64_t offset = 0;
};

// Empty: no node has room.
std::vector<PlannedReplica> PlanReplicas(const Catalog& catalog, const std::vector<NodeRoom>& nodes,
                                         const PlaceRequest& request);

// Of a new slab on a node, for an extent of `extent_bytes`; 0: the node has not so much.
uint64_t NewSlabBytes(const NodeRoom& node, uint64_t extent_bytes, uint64_t slab_bytes);

}  // namespace mooncake::pool
