// What can happen to nodes, arenas and objects. Events are decided once, logged, and applied; the
// log's form of them is event_codec.h's business.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "model/identity.h"
#include "model/node.h"
#include "model/revision.h"

namespace mooncake::objects {

using model::ArenaId;
using model::ImportId;

// First registration, a new instance of the same node, or changed facts of the same instance. A new
// instance of a node without durable arenas begins empty: RELEASING arenas are gone, LIVE ones
// LOST.
struct NodeJoined {
  model::NodeAddress address;
  uint64_t capacity_bytes = 0;
  bool durable_arenas = false;
  bool objects_only = false;  // lends its memory to ordinary objects, never to weights
  friend bool operator==(const NodeJoined&, const NodeJoined&) = default;
};

// The node is gone for good. It holds no weights; what is left of its slabs goes with it.
struct NodeLeft {
  std::string node_id;
  friend bool operator==(const NodeLeft&, const NodeLeft&) = default;
};

struct ArenaReserved {
  ArenaId arena_id;
  ImportId import_id;  // none: a slab of ordinary objects
  std::string node_id;
  std::string instance_id;
  uint64_t bytes = 0;
  friend bool operator==(const ArenaReserved&, const ArenaReserved&) = default;
};

// Given up, with no payload left in them: still charged until the node confirms (LOST arenas vanish
// at once).
struct ArenasReleasing {
  std::vector<ArenaId> arena_ids;
  friend bool operator==(const ArenasReleasing&, const ArenasReleasing&) = default;
};

// The node no longer holds them.
struct ArenasReleased {
  std::vector<ArenaId> arena_ids;
  friend bool operator==(const ArenasReleased&, const ArenasReleased&) = default;
};

struct ReservedPayload {
  std::string name;
  uint64_t bytes = 0;
  uint32_t unit = 0;
  ArenaId arena_id;
  uint64_t offset = 0;
  friend bool operator==(const ReservedPayload&, const ReservedPayload&) = default;
};

// All payloads of one participant; at most one such event per participant.
struct ObjectsReserved {
  ImportId import_id;
  uint32_t participant = 0;  // index into the import's participants
  std::vector<ReservedPayload> payloads;
  friend bool operator==(const ObjectsReserved&, const ObjectsReserved&) = default;
};

// A batch of a group's payloads is gone.
struct ObjectsRemoved {
  ImportId import_id;
  std::vector<std::string> names;
  friend bool operator==(const ObjectsRemoved&, const ObjectsRemoved&) = default;
};

// Whatever is left of the group is gone, METADATA last; its arenas are given up. What the nodes
// still hold stays charged until they confirm.
struct GroupRemoved {
  ImportId import_id;
  friend bool operator==(const GroupRemoved&, const GroupRemoved&) = default;
};

// METADATA objects that a receipt or a commit declares; an object of the same name is replaced.
struct MetadataStored {
  ImportId import_id;
  std::vector<model::MetadataObject> objects;
  friend bool operator==(const MetadataStored&, const MetadataStored&) = default;
};

// The node no longer holds METADATA of these removed groups.
struct MetadataReleased {
  std::string node_id;
  std::vector<ImportId> import_ids;
  friend bool operator==(const MetadataReleased&, const MetadataReleased&) = default;
};

using Event =
    std::variant<NodeJoined, NodeLeft, ArenaReserved, ArenasReleasing, ArenasReleased,
                 ObjectsReserved, ObjectsRemoved, GroupRemoved, MetadataStored, MetadataReleased>;

}  // namespace mooncake::objects
