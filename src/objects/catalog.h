// objects::Catalog: which nodes exist, which arenas lie on them, and which objects lie in those.
//
// Owns: nodes (address, capacity), arenas, payload and METADATA objects of every group (a group is
// named by its import id), the space accounting and the arena id counter. Never: decides what a
// revision is, knows liveness or time, reads a clock, does I/O.
// State changes only through Apply; everything else is const. Deterministic: equal event sequences
// give equal states and digests. Single-threaded (the Master's sequencer owns it).
//
// Arena:   LIVE ---------> RELEASING ---------> gone
//           |  given up     (charged)  node confirms, or its instance ends
//           |
//           | instance ends (memory arenas)
//           v  given up
//          LOST ---------> gone
//
// An arena without an import is a slab: a memory file of ordinary objects, which src/pool knows. It
// is charged like any other, and simply gone when its node's instance ends.
// A LOST arena is charged to nobody and its payloads are unreadable; locations still name it (look
// at FindArena before granting access).
//
// Invariants (CheckInvariants recomputes them): a node's live, releasing and METADATA bytes are the
// sums over its arenas and objects; payload extents of an arena never overlap and never leave it;
// an arena id is given once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "base/walked_map.h"
#include "model/revision.h"
#include "objects/events.h"
#include "objects/payload_table.h"

namespace mooncake::objects {

enum class ArenaState : uint8_t { kLive, kReleasing, kLost };
std::string_view Name(ArenaState state);

struct Arena {
  ArenaId arena_id;
  ImportId import_id;
  uint32_t node = 0;  // index; Catalog::node
  uint64_t bytes = 0;
  ArenaState state = ArenaState::kLive;
  uint64_t filled_bytes = 0;   // end of the last payload laid into it
  uint32_t payload_count = 0;  // not removed ones
};

struct Node {
  model::NodeAddress address;
  uint64_t capacity_bytes = 0;
  bool durable_arenas = false;
  bool objects_only = false;              // takes slabs, no imports
  bool left = false;                      // gone for good; nothing lies on it
  uint64_t live_bytes = 0;                // LIVE arenas
  uint64_t releasing_bytes = 0;           // RELEASING arenas
  uint64_t slab_bytes = 0;                // of live_bytes: slabs
  uint64_t metadata_bytes = 0;            // METADATA of groups that exist
  uint64_t metadata_releasing_bytes = 0;  // METADATA of removed groups
  std::set<ArenaId> arenas;               // LIVE and RELEASING
  std::set<ArenaId> lost_arenas;          // LOST
  std::set<ImportId> metadata_of;         // imports with METADATA charged here

  uint64_t used_bytes() const {
    return live_bytes + releasing_bytes + metadata_bytes + metadata_releasing_bytes;
  }
  uint64_t free_bytes() const {
    return used_bytes() < capacity_bytes ? capacity_bytes - used_bytes() : 0;
  }
};

struct Group {
  ImportId import_id;
  bool removed = false;         // only what nodes must still confirm is left
  std::vector<ArenaId> arenas;  // ascending; those that are gone stay in the list
  uint32_t arenas_left = 0;     // of those, how many are not gone
  PayloadTable payloads;
  std::vector<model::MetadataObject> metadata;  // in order of arrival, names distinct
};

// METADATA objects are charged like arenas: in units of kChargeUnit bytes.
inline constexpr uint64_t kChargeUnit = 4096;
// Saturates instead of wrapping.
constexpr uint64_t ChargedBytes(uint64_t bytes) {
  return bytes > UINT64_MAX - (kChargeUnit - 1)
             ? UINT64_MAX / kChargeUnit * kChargeUnit
             : (bytes + kChargeUnit - 1) / kChargeUnit * kChargeUnit;
}

struct PayloadLocation {
  std::string_view name;  // valid until the next Apply
  uint32_t participant = 0;
  uint32_t unit = 0;
  model::Extent extent;
};

class Catalog {
 public:
  // Total: an event that does not fit the state is CORRUPT (replay must stop) and changes nothing.
  [[nodiscard]] Status Apply(const Event& event);

  const std::vector<Node>& nodes() const { return nodes_; }  // in order of first registration
  const Node* FindNode(std::string_view node_id) const;
  const Node& node(uint32_t index) const { return nodes_[index]; }

  const Arena* FindArena(ArenaId id) const;
  ArenaId next_arena_id() const { return ArenaId(next_arena_id_); }

  // Also finds a removed group until every node has confirmed.
  const Group* FindGroup(ImportId id) const;
  const WalkedMap<ImportId, Group>& groups() const { return groups_; }

  // NOT_FOUND names the payload. Removed payloads are not found.
  Result<PayloadLocation> FindPayload(ImportId id, std::string_view name) const;
  // Of one participant, in the order of the plan.
  std::vector<PayloadLocation> PayloadsOf(ImportId id, uint32_t participant) const;

  const WalkedMap<ArenaId, Arena>& arenas() const { return arenas_; }

  // What a commit must agree with; `group_id` makes the payload keys. O(n log n), whole summary.
  model::GroupFacts FactsOf(ImportId id, std::string_view group_id) const;

  // Bytes of LIVE arenas and METADATA of the import, as charged.
  uint64_t PhysicalBytes(ImportId id) const;
  // Imports with an arena (of any state) or METADATA on the node, ascending.
  std::vector<ImportId> ImportsOn(std::string_view node_id) const;

  // Nothing of an import: no arena, no METADATA, nothing that it lost.
  bool HoldsNoWeights(std::string_view node_id) const;

  uint64_t payload_count() const { return payload_count_; }  // all groups, removed ones excluded
  uint64_t metadata_count() const { return metadata_count_; }

  // Recomputes every sum and checks every invariant; INTERNAL says which differs.
  Status CheckInvariants() const;

  // SHA-256 over the whole state in a canonical order.
  Sha256Digest Digest() const;

 private:
  friend class SnapshotLoader;

  Status ApplyOne(const NodeJoined& event);
  Status ApplyOne(const NodeLeft& event);
  Status ApplyOne(const ArenaReserved& event);
  Status ApplyOne(const ArenasReleasing& event);
  Status ApplyOne(const ArenasReleased& event);
  Status ApplyOne(const ObjectsReserved& event);
  Status ApplyOne(const ObjectsRemoved& event);
  Status ApplyOne(const GroupRemoved& event);
  Status ApplyOne(const MetadataStored& event);
  Status ApplyOne(const MetadataReleased& event);

  std::optional<uint32_t> NodeIndex(std::string_view node_id) const;
  PayloadLocation LocationOf(const Group& group, uint32_t row) const;
  void Forget(ArenaId id);         // the arena is gone
  void GiveUp(ArenaId id);         // LIVE -> RELEASING, LOST -> gone
  void LoseMemory(uint32_t node);  // LIVE -> LOST, RELEASING -> gone
  void EraseIfEmpty(ImportId id);
  Status CheckGroups() const;

  std::vector<Node> nodes_;
  std::map<std::string, uint32_t, std::less<>> node_index_;
  WalkedMap<ArenaId, Arena> arenas_;
  WalkedMap<ImportId, Group> groups_;
  uint64_t next_arena_id_ = 1;
  uint64_t payload_count_ = 0;
  uint64_t metadata_count_ = 0;
};

}  // namespace mooncake::objects
