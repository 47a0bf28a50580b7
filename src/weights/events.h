// What can happen to revisions, their leases and tombstones. Events are decided once, logged, and
// applied; the log's form of them is event_codec.h's business.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "model/identity.h"
#include "model/policy.h"
#include "model/revision.h"
#include "model/states.h"

namespace mooncake::weights {

using model::ImportId;
using model::LeaseId;

struct ImportBegun {
  model::WeightIdentity identity;
  ImportId import_id;
  std::string placement_id;
  Sha256Digest plan_sha256{};
  std::vector<std::string> participants;
  std::string created_at;  // the Master's wall clock, ISO-8601 with Z
  model::StoragePolicy policy;
  std::string policy_note;
  uint64_t ttl_ms = 0;
  std::vector<std::string> metadata_node_ids;
  friend bool operator==(const ImportBegun&, const ImportBegun&) = default;
};

struct Claimed {
  ImportId import_id;
  uint32_t participant = 0;
  std::string client_id;
  uint64_t ttl_ms = 0;
  friend bool operator==(const Claimed&, const Claimed&) = default;
};

struct ReceiptAccepted {
  ImportId import_id;
  uint32_t participant = 0;
  model::MetadataObject digests;
  friend bool operator==(const ReceiptAccepted&, const ReceiptAccepted&) = default;
};

// READY and HOT at once.
struct Committed {
  ImportId import_id;
  model::MetadataObject manifest;
  model::MetadataObject affinity;
  Sha256Digest payload_keys_sha256{};
  uint64_t payload_count = 0;
  uint64_t logical_payload_bytes = 0;
  uint64_t affinity_count = 0;
  Sha256Digest digests_root_sha256{};
  friend bool operator==(const Committed&, const Committed&) = default;
};

// The record vanishes.
struct Aborted {
  ImportId import_id;
  std::string reason;
  Code code = Code::kCancelled;  // what its writers are told: that, or CONFLICT
  std::string tenant_id;         // whose reason that is; empty: logged before it was
  friend bool operator==(const Aborted&, const Aborted&) = default;
};

// READY <-> DEGRADED, or another reason for DEGRADED.
struct AvailabilityChanged {
  ImportId import_id;
  model::Availability availability = model::Availability::kReady;
  std::string reason;
  friend bool operator==(const AvailabilityChanged&, const AvailabilityChanged&) = default;
};

struct LeaseAcquired {
  LeaseId lease_id;
  ImportId import_id;
  uint64_t ttl_ms = 0;
  std::string holder;
  friend bool operator==(const LeaseAcquired&, const LeaseAcquired&) = default;
};

// Released by the holder, or expired.
struct LeasesEnded {
  std::vector<LeaseId> lease_ids;
  bool expired = false;
  friend bool operator==(const LeasesEnded&, const LeasesEnded&) = default;
};

struct DeletionBegun {
  ImportId import_id;
  friend bool operator==(const DeletionBegun&, const DeletionBegun&) = default;
};

// The tombstone: DELETED and ABSENT.
struct Deleted {
  ImportId import_id;
  friend bool operator==(const Deleted&, const Deleted&) = default;
};

using Event = std::variant<ImportBegun, Claimed, ReceiptAccepted, Committed, Aborted,
                           AvailabilityChanged, LeaseAcquired, LeasesEnded, DeletionBegun, Deleted>;

}  // namespace mooncake::weights
