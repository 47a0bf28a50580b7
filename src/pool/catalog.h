// pool::Catalog: which ordinary objects exist, where their replicas lie, and who they belong to.
//
// Owns: objects by tenant and key, groups of them, slabs and the space in them, tenants with their
// quotas, the object id counter. Never: decides which node, extent or victim (placement.h,
// eviction.h do), knows which nodes are alive, reads a clock, does I/O. Objects of weight revisions
// are not here (objects::Catalog has them); slabs are charged to nodes there, as arenas.
// State changes only through Apply; everything else is const, but for leases: those are volatile
// and kept here for the room they would take elsewhere. Deterministic: equal event sequences give
// equal states and digests. Single-threaded (the Master's sequencer owns it).
//
//   PutsStarted --> UNFINISHED --PutsEnded--> READABLE --(dropped, replaced)--> gone
//                       |  dropped, its last slab gone
//                       v
//                      gone
//
// A key has at most one readable and one unfinished object. Invariants (CheckInvariants recomputes
// them): extents of a slab never overlap and never leave it; a tenant's sums are those of its
// objects; object ids only grow.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "pool/events.h"
#include "pool/slab_space.h"
#include "pool/slot_index.h"

namespace mooncake::pool {

// In front of every payload (transfer/extent_header.h), and what extents are rounded to.
inline constexpr uint64_t kExtentHeaderBytes = 64;
inline constexpr uint64_t kExtentUnit = 64;
inline constexpr uint64_t kPayloadBytesMax = uint64_t{1} << 46;
inline constexpr size_t kKeyBytesMax = 65'536;
inline constexpr size_t kGroupIdBytesMax = 4096;
inline constexpr size_t kReplicasMax = 64;

// Of slab space, by an object of so many bytes.
constexpr uint64_t ExtentBytes(uint64_t payload_bytes) {
  return kExtentHeaderBytes + (payload_bytes + kExtentUnit - 1) / kExtentUnit * kExtentUnit;
}

// Handles are numbers of places in tables, valid until the next Apply.
inline constexpr uint32_t kNone = UINT32_MAX;

struct Replica {
  uint32_t slab = kNone;  // handle
  uint32_t place = 0;     // in the slab's members
  uint64_t offset = 0;    // of the extent's header
};

struct Object {
  ObjectId object_id;
  uint64_t bytes = 0;
  std::string key;
  uint32_t tenant = kNone;  // handle
  uint32_t group = kNone;   // handle; kNone: none
  uint32_t group_place = 0;
  bool readable = false;
  bool hard_pin = false;
  uint8_t data_type = 0;
  int64_t ready_ms = 0;                // logged time at which it became readable
  int64_t soft_pin_until_ms = 0;       // likewise; once readable
  mutable int64_t lease_until_ms = 0;  // volatile: no part of the state

  std::span<const Replica> replicas() const {
    return more.empty() ? std::span<const Replica>(&first, 1) : std::span<const Replica>(more);
  }
  std::span<Replica> replicas() {
    return more.empty() ? std::span<Replica>(&first, 1) : std::span<Replica>(more);
  }
  Replica first;              // the only one
  std::vector<Replica> more;  // all of them, when there is more than one
};

// What an unfinished object has beside.
struct Unfinished {
  std::string client_id;
  uint64_t put_id = 0;
  SoftPin soft_pin = SoftPin::kPreserve;
  uint64_t soft_pin_ttl_ms = 0;
};

struct Slab {
  ArenaId slab_id;
  uint32_t tenant = kNone;
  uint32_t place = 0;  // in the tenant's slabs
  std::string node_id;
  uint64_t bytes = 0;
  SlabSpace space{0};
  std::vector<uint32_t> members;  // slots of the objects with a replica here
};

struct Group {
  uint32_t tenant = kNone;
  std::string group_id;
  std::vector<uint32_t> members;       // slots, unfinished ones too
  mutable int64_t lease_until_ms = 0;  // volatile
};

// A tenant's slabs on one node, by their largest free range.
using SlabRooms = std::set<std::pair<uint64_t, uint32_t>>;

struct Tenant {
  std::string tenant_id;
  bool known = false;  // an operator named it
  uint64_t bytes_max = 0;
  uint64_t objects_max = 0;
  uint64_t object_count = 0;  // readable
  uint64_t unfinished_count = 0;
  uint64_t used_bytes = 0;  // extents of both
  uint64_t slab_bytes = 0;
  uint64_t group_count = 0;
  std::vector<uint32_t> slabs;                          // handles
  std::map<std::string, SlabRooms, std::less<>> rooms;  // by node
};

class Catalog {
 public:
  // Total: an event that does not fit the state is CORRUPT; the state is of no use then.
  [[nodiscard]] Status Apply(const Event& event, int64_t logged_ms);

  // nullptr: there is none.
  const Object* Find(ObjectId id) const;
  const Object* FindReadable(std::string_view tenant_id, std::string_view key) const;
  const Object* FindUnfinished(std::string_view tenant_id, std::string_view key) const;
  // The object must be unfinished.
  const Unfinished& UnfinishedOf(const Object& object) const;
  const std::map<ObjectId, Unfinished>& unfinished() const { return unfinished_; }

  // Slots, for walks and samples: [0, slot_count()), some of them empty (nullptr).
  uint32_t slot_count() const { return static_cast<uint32_t>(slots_.size()); }
  const Object* AtSlot(uint32_t slot) const {
    return slots_[slot].object_id == ObjectId() ? nullptr : &slots_[slot];
  }

  const Tenant* FindTenant(std::string_view tenant_id) const;
  const Tenant& tenant(uint32_t handle) const { return tenants_[handle]; }
  const std::map<std::string, uint32_t, std::less<>>& tenants() const { return tenant_index_; }
  const Slab* FindSlab(ArenaId id) const;
  const Slab& slab(uint32_t handle) const { return slabs_[handle]; }
  const std::map<ArenaId, uint32_t>& slabs() const { return slab_index_; }
  const Group& group(uint32_t handle) const { return groups_[handle]; }
  const Group* FindGroup(std::string_view tenant_id, std::string_view group_id) const;

  uint64_t object_count() const { return by_id_.size(); }  // unfinished ones too
  uint64_t used_bytes() const { return used_bytes_; }
  ObjectId next_object_id() const { return ObjectId(next_object_id_); }

  // Until when the object is protected by its own or its group's lease; 0: never was.
  int64_t LeaseOf(const Object& object) const;
  // Protects it, and its group, until then; never shortens.
  void ExtendLease(const Object& object, int64_t until_ms) const;

  // INTERNAL says what differs.
  Status CheckInvariants() const;
  // SHA-256 over the state in a canonical order.
  Sha256Digest Digest() const;
  // There is nothing to say of it, not even what the next id is.
  bool empty() const { return next_object_id_ == 1 && slabs_.empty() && tenants_.empty(); }

 private:
  friend class SnapshotLoader;

  Status ApplyOne(const SlabAdded& event, int64_t logged_ms);
  Status ApplyOne(const SlabsGone& event, int64_t logged_ms);
  Status ApplyOne(const PutsStarted& event, int64_t logged_ms);
  Status ApplyOne(const PutsEnded& event, int64_t logged_ms);
  Status ApplyOne(const ObjectsDropped& event, int64_t logged_ms);
  Status ApplyOne(const ReplicaDropped& event, int64_t logged_ms);
  Status ApplyOne(const TenantSet& event, int64_t logged_ms);
  Status ApplyOne(const TenantRemoved& event, int64_t logged_ms);

  std::optional<uint32_t> TenantHandle(std::string_view tenant_id) const;
  uint32_t MakeTenant(std::string_view tenant_id);
  std::optional<uint32_t> SlotOf(ObjectId id) const;
  std::optional<uint32_t> SlotOf(const SlotIndex& index, std::string_view tenant_id,
                                 std::string_view key) const;
  uint64_t HashOf(const Object& object) const;
  // A new object with its replicas, in neither of the key indexes.
  Result<uint32_t> AddObject(uint32_t tenant, NewObject added);
  Status AddReplicas(uint32_t slot, const std::vector<ReplicaPlace>& places);
  Status TakeExtent(uint32_t slot, Replica* replica);
  void FreeExtent(const Object& object, const Replica& replica);
  void JoinGroup(uint32_t slot, const std::string& group_id);
  void LeaveGroup(uint32_t slot);
  void DropReplica(uint32_t slot, size_t number);
  void DropObject(uint32_t slot);
  void BecomeReadable(uint32_t slot, const Unfinished& unfinished, int64_t logged_ms);
  void NoteRoom(const Slab& slab, uint32_t handle, uint64_t largest_before);
  Status CheckSlabs(std::vector<uint64_t>* tenant_slab_bytes) const;

  std::deque<Object> slots_;  // never moved: a million of them would take too long
  std::vector<uint32_t> free_slots_;
  SlotIndex by_id_;
  SlotIndex readable_;   // by tenant and key
  SlotIndex being_put_;  // likewise
  std::map<ObjectId, Unfinished> unfinished_;
  std::deque<Slab> slabs_;
  std::vector<uint32_t> free_slabs_;
  std::map<ArenaId, uint32_t> slab_index_;
  std::deque<Group> groups_;
  std::vector<uint32_t> free_groups_;
  std::map<std::pair<uint32_t, std::string>, uint32_t> group_index_;  // by tenant handle and id
  std::deque<Tenant> tenants_;
  std::vector<uint32_t> free_tenants_;
  std::map<std::string, uint32_t, std::less<>> tenant_index_;
  uint64_t next_object_id_ = 1;
  uint64_t used_bytes_ = 0;
};

}  // namespace mooncake::pool
