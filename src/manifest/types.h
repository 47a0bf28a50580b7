// The values of the public reshard contracts (docs/contracts.md), as C++ holds them.
//
// Plain data. Nothing here checks anything: validate.h owns every check, canonical.h every id, JSON
// byte and digest. Placement, StoredManifest and RuntimeBinding are immutable once built (their
// factories are the only makers) and are shared as std::shared_ptr<const T>.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mooncake::manifest {

// Extents or offsets, outermost dimension first; elements, not bytes.
using Extents = std::vector<int64_t>;

enum class AxisKind : uint8_t { kDp = 0, kPp = 1, kEp = 2, kTp = 3 };
enum class AxisSemantics : uint8_t { kSplit, kReplicated, kOwnership };

struct ParallelRank {
  int64_t dp = 0;
  int64_t tp = 0;
  int64_t pp = 0;
  int64_t ep = 0;

  int64_t Coordinate(AxisKind kind) const {
    switch (kind) {
      case AxisKind::kDp:
        return dp;
      case AxisKind::kPp:
        return pp;
      case AxisKind::kEp:
        return ep;
      case AxisKind::kTp:
        return tp;
    }
    return 0;
  }
  friend bool operator==(const ParallelRank&, const ParallelRank&) = default;
};

struct ParallelAxis {
  AxisKind kind = AxisKind::kTp;
  AxisSemantics semantics = AxisSemantics::kReplicated;
  int64_t dim = 0;  // meaningful for kSplit only, 0 otherwise

  friend bool operator==(const ParallelAxis&, const ParallelAxis&) = default;
};

struct TensorDescriptor {
  std::string tensor_id;
  Extents global_shape;
  std::string dtype;
  int64_t itemsize = 0;
  Extents shard_dims;
  std::string layout_fingerprint;
  std::vector<ParallelAxis> parallel_axes;  // sorted dp < pp < ep < tp
  std::optional<int64_t> layer_id;
  std::optional<int64_t> expert_id;

  friend bool operator==(const TensorDescriptor&, const TensorDescriptor&) = default;
};

struct TopologyParticipant {
  std::string participant_id;
  ParallelRank rank;

  friend bool operator==(const TopologyParticipant&, const TopologyParticipant&) = default;
};

struct ParallelTopology {
  int64_t tp_size = 1;
  int64_t pp_size = 1;
  int64_t ep_size = 1;
  int64_t dp_size = 1;
  std::vector<TopologyParticipant> participants;  // sorted by participant_id
  std::string topology_id;

  friend bool operator==(const ParallelTopology&, const ParallelTopology&) = default;
};

struct PlacementFragment {
  std::string tensor_id;
  Extents global_offset;
  Extents local_shape;
  uint64_t nbytes = 0;
  ParallelRank rank;
  std::optional<int64_t> pipeline_stage_id;
  std::vector<std::string> aliases;  // sorted
  std::string placement_fragment_id;

  friend bool operator==(const PlacementFragment&, const PlacementFragment&) = default;
};

// One participant's share of a placement.
struct PlacementPart {
  std::string resource_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string placement_set_id;
  std::string topology_id;
  std::string participant_id;
  ParallelRank rank;
  std::vector<TensorDescriptor> tensors;     // sorted by tensor_id
  std::vector<PlacementFragment> fragments;  // sorted by placement_fragment_id

  friend bool operator==(const PlacementPart&, const PlacementPart&) = default;
};

// A complete, validated placement (the contract's WeightPlacementManifest).
struct Placement {
  std::string resource_id;
  std::string placement_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string placement_set_id;
  ParallelTopology topology;
  std::vector<PlacementPart> parts;          // sorted by participant_id
  std::vector<TensorDescriptor> tensors;     // sorted by tensor_id, no duplicates
  std::vector<PlacementFragment> fragments;  // all parts', sorted by placement_fragment_id
  std::string digest;                        // hex SHA-256 of the JSON; set by the factory

  friend bool operator==(const Placement&, const Placement&) = default;
};
using PlacementPtr = std::shared_ptr<const Placement>;

struct StoredFragment {
  std::string fragment_id;
  std::string tensor_id;
  Extents global_offset;
  Extents local_shape;
  std::string object_key;
  uint64_t object_offset = 0;
  uint64_t nbytes = 0;
  std::vector<std::string> aliases;  // sorted

  friend bool operator==(const StoredFragment&, const StoredFragment&) = default;
};

// The contract's WeightManifest (the RFC's StoredWeightManifest). Order of tensors and fragments is
// the caller's and is part of the digest.
struct StoredManifest {
  std::string namespace_name;
  std::string resource_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string group_id;
  std::string manifest_key;
  std::vector<TensorDescriptor> tensors;
  std::vector<StoredFragment> fragments;
  std::string created_at;
  std::string manifest_digest;  // hex SHA-256 of the JSON; set by the factory

  friend bool operator==(const StoredManifest&, const StoredManifest&) = default;
};
using StoredManifestPtr = std::shared_ptr<const StoredManifest>;

// What names one exact stored manifest.
struct StoredManifestIdentity {
  std::string namespace_name;
  std::string resource_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string group_id;
  std::string manifest_key;
  std::string content_sha256;

  friend bool operator==(const StoredManifestIdentity&, const StoredManifestIdentity&) = default;
};

struct RuntimeBindingFragment {
  std::string placement_fragment_id;
  std::string fragment_id;
  uint64_t address = 0;
  uint64_t nbytes = 0;
  std::string worker_id;
  std::string endpoint;
  std::string device;
  int64_t itemsize = 0;
  Extents local_shape;
  Extents strides_bytes;
  uint64_t storage_address = 0;
  uint64_t storage_nbytes = 0;
  uint64_t storage_offset_bytes = 0;

  friend bool operator==(const RuntimeBindingFragment&, const RuntimeBindingFragment&) = default;
};

// Where one participant's fragments live right now (the contract's WeightRuntimeBindingManifest).
struct RuntimeBinding {
  std::string resource_id;
  std::string placement_id;
  std::string placement_digest;
  std::string instance_id;
  uint64_t generation = 0;
  std::string lease_id;
  std::string revision;
  std::string participant_id;
  std::vector<RuntimeBindingFragment> fragments;  // sorted by placement_fragment_id

  friend bool operator==(const RuntimeBinding&, const RuntimeBinding&) = default;
};
using RuntimeBindingPtr = std::shared_ptr<const RuntimeBinding>;

}  // namespace mooncake::manifest
