// The facts of one revision that callers see, and the facts about its objects that the two
// catalogues exchange through the Master. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "model/identity.h"
#include "model/policy.h"
#include "model/states.h"

namespace mooncake::model {

// A METADATA object of a group.
struct MetadataObject {
  std::string name;  // below the group: "manifest", "affinity", "digests/<participant>"
  uint64_t bytes = 0;
  Sha256Digest sha256{};
  std::string node_id;  // the node that holds the file

  // Equal content, wherever it lies.
  bool SameContent(const MetadataObject& other) const {
    return name == other.name && bytes == other.bytes && sha256 == other.sha256;
  }
  friend bool operator==(const MetadataObject&, const MetadataObject&) = default;
};

// One payload object as a publisher plans it.
struct PlannedPayload {
  std::string name;  // below <group>/payload/
  uint64_t bytes = 0;
  uint32_t unit = 0;  // affinity unit, numbered from 0 over the whole plan

  friend bool operator==(const PlannedPayload&, const PlannedPayload&) = default;
};
struct PlannedParticipant {
  std::string participant_id;
  std::vector<PlannedPayload> payloads;

  friend bool operator==(const PlannedParticipant&, const PlannedParticipant&) = default;
};

// Where a payload lies.
struct Extent {
  std::string node_id;
  ArenaId arena_id;
  uint64_t offset = 0;
  uint64_t bytes = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

// What the object catalogue knows of a group's payloads; a commit must agree with it.
struct GroupFacts {
  uint64_t payload_count = 0;
  uint64_t logical_payload_bytes = 0;
  Sha256Digest payload_keys_sha256{};  // model/affinity.h
  uint64_t affinity_count = 0;
  uint64_t affinity_bytes = 0;     // of the summary object
  Sha256Digest affinity_sha256{};  // of the summary object

  friend bool operator==(const GroupFacts&, const GroupFacts&) = default;
};

// Whether every required member of a group has a readable replica now.
struct MemberFacts {
  bool readable = true;
  std::string reason;  // why not: "node n1 is not reporting"
};

// The RFC's WeightRevisionMetadata.
struct RevisionMetadata {
  WeightIdentity identity;
  ImportId import_id;
  Availability availability = Availability::kImporting;
  Residency observed_residency = Residency::kUnknown;
  double observed_hot_ratio = 0;
  StoragePolicy policy;
  MetadataGeneration metadata_generation;
  std::string group_id;
  std::string manifest_key;
  Sha256Digest manifest_sha256{};
  Sha256Digest payload_keys_sha256{};
  uint64_t payload_count = 0;
  uint64_t logical_payload_bytes = 0;
  uint64_t affinity_count = 0;
  Sha256Digest affinity_sha256{};
  Sha256Digest digests_root_sha256{};  // DigestsRoot over the receipts
  std::string created_at;
  std::string placement_id;
  std::string state_reason;  // why DEGRADED; else how a defaulted policy was resolved
  int64_t last_access_ms = 0;
  uint64_t active_lease_count = 0;
  // physical bytes are the object catalogue's to say
};

// SHA-256 over the participants' digests objects, in participant order, as text: one line
// "<name> <bytes> <sha256 hex>\n" each (digests names are UrlEncode'd).
Sha256Digest DigestsRoot(const std::vector<MetadataObject>& digests);

}  // namespace mooncake::model
