// What can happen to ordinary objects, their slabs and their tenants. Events are decided once,
// logged, and applied; the log's form of them is event_codec.h's business.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "model/identity.h"

namespace mooncake::pool {

using model::ArenaId;
using model::ObjectId;

struct SlabAdded {
  ArenaId slab_id;
  std::string tenant_id;
  std::string node_id;
  uint64_t bytes = 0;
  friend bool operator==(const SlabAdded&, const SlabAdded&) = default;
};

// With every replica that lies in them; an object whose last replica that was goes too.
struct SlabsGone {
  std::vector<ArenaId> slab_ids;
  friend bool operator==(const SlabsGone&, const SlabsGone&) = default;
};

struct ReplicaPlace {
  ArenaId slab_id;
  uint64_t offset = 0;  // of the extent's header
  friend bool operator==(const ReplicaPlace&, const ReplicaPlace&) = default;
};

struct NewObject {
  ObjectId object_id;
  std::string key;
  uint64_t bytes = 0;
  std::string group_id;  // empty: none
  std::vector<ReplicaPlace> replicas;
  friend bool operator==(const NewObject&, const NewObject&) = default;
};

// v1::SoftPin's numbers.
enum class SoftPin : uint8_t { kPreserve = 0, kEnable = 1, kDisable = 2 };

// Objects of one client's request are being written.
struct PutsStarted {
  std::string client_id;
  uint64_t put_id = 0;
  std::string tenant_id;
  uint8_t data_type = 0;  // v1::ObjectDataType
  bool hard_pin = false;
  SoftPin soft_pin = SoftPin::kPreserve;
  uint64_t soft_pin_ttl_ms = 0;
  std::vector<NewObject> objects;
  friend bool operator==(const PutsStarted&, const PutsStarted&) = default;
};

// They are readable from now on, in the place of whatever had their keys.
struct PutsEnded {
  std::vector<ObjectId> object_ids;
  friend bool operator==(const PutsEnded&, const PutsEnded&) = default;
};

// On disk: never renumber.
enum class DropCause : uint8_t {
  kRemoved = 1,
  kEvicted = 2,
  kRevoked = 3,    // the writer gave its put up
  kExpired = 4,    // the writer fell silent
  kOvertaken = 5,  // another writer took the key
};
inline constexpr uint8_t kDropCauseMax = 5;

struct ObjectsDropped {
  std::vector<ObjectId> object_ids;
  DropCause cause = DropCause::kRemoved;
  friend bool operator==(const ObjectsDropped&, const ObjectsDropped&) = default;
};

// The replica cannot be read; with the last one the object goes.
struct ReplicaDropped {
  ObjectId object_id;
  ArenaId slab_id;
  friend bool operator==(const ReplicaDropped&, const ReplicaDropped&) = default;
};

struct TenantSet {
  std::string tenant_id;
  uint64_t bytes_max = 0;    // 0: no limit
  uint64_t objects_max = 0;  // likewise
  friend bool operator==(const TenantSet&, const TenantSet&) = default;
};

struct TenantRemoved {
  std::string tenant_id;
  friend bool operator==(const TenantRemoved&, const TenantRemoved&) = default;
};

using Event = std::variant<SlabAdded, SlabsGone, PutsStarted, PutsEnded, ObjectsDropped,
                           ReplicaDropped, TenantSet, TenantRemoved>;

}  // namespace mooncake::pool
