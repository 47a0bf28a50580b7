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

#include "manifest/item_refs.h"
#include "manifest/shared_text.h"

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

// --- the extended forms (docs/extended_forms.md) -------------------------------------------------

// A box and all participants that hold it; one that holds it k times is named k times.
struct OwnedBox {
  Extents offset;
  Extents shape;
  std::vector<std::string> owners;  // sorted

  friend auto operator<=>(const OwnedBox&, const OwnedBox&) = default;
};
using OwnedTiling = std::vector<OwnedBox>;  // sorted; fills the tensor exactly once

// Named parts that fill dimension `dim` of a fused tensor, in order.
struct SectionPart {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;

  friend bool operator==(const SectionPart&, const SectionPart&) = default;
};
struct Sections {
  int64_t dim = 0;
  std::vector<SectionPart> parts;

  friend bool operator==(const Sections&, const Sections&) = default;
};

// The tensor of one scale a block of this tensor.
struct BlockScales {
  std::string scale_tensor_id;
  Extents block_shape;
  bool shareable = true;  // a fragment may begin inside a block

  friend bool operator==(const BlockScales&, const BlockScales&) = default;
};

// An item of `itemsize` bytes holds `factor` consecutive elements along `dim`, `extent` in all.
// Shapes and boxes count items.
struct Packing {
  int64_t dim = 0;
  int64_t extent = 0;
  int64_t factor = 0;

  friend bool operator==(const Packing&, const Packing&) = default;
};

// What a tensor says beyond the base contract.
struct TensorExtension {
  std::vector<OwnedTiling> ownership;  // sorted; empty: the parallel axes say who holds what
  std::optional<Extents> padded_shape;
  std::optional<Sections> sections;
  std::optional<BlockScales> block_scales;
  std::optional<Packing> packing;

  friend bool operator==(const TensorExtension&, const TensorExtension&) = default;
};

// -------------------------------------------------------------------------------------------------

struct TensorDescriptor {
  SharedText tensor_id;
  Extents global_shape;
  std::string dtype;
  int64_t itemsize = 0;
  Extents shard_dims;
  std::string layout_fingerprint;
  std::vector<ParallelAxis> parallel_axes;  // sorted dp < pp < ep < tp
  std::optional<int64_t> layer_id;
  std::optional<int64_t> expert_id;
  std::shared_ptr<const TensorExtension> extension = nullptr;  // null: a base tensor

  bool is_owned() const { return extension != nullptr && !extension->ownership.empty(); }
  friend bool operator==(const TensorDescriptor& a, const TensorDescriptor& b);
};
// Everything but the id: what alias members must share.
bool EqualApartFromId(const TensorDescriptor& a, const TensorDescriptor& b);
// A descriptor stands in the part of every rank that holds a fragment of the tensor, and lies in
// memory once.
using SharedTensors = SharedList<TensorDescriptor>;

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
  SharedText tensor_id;
  Extents global_offset;
  Extents local_shape;
  uint64_t nbytes = 0;
  ParallelRank rank;
  std::optional<int64_t> pipeline_stage_id;
  std::vector<std::string> aliases;  // sorted
  std::string placement_fragment_id;
  std::optional<int64_t> slot = {};  // extended form: the physical slot of a grouped buffer

  // Holds no element (extended form): a fact that counts for nothing and never moves.
  bool is_empty() const { return nbytes == 0; }
  friend bool operator==(const PlacementFragment&, const PlacementFragment&) = default;
};

using FragmentRefs = ItemRefs<PlacementFragment>;
using FragmentSpan = ItemSpan<PlacementFragment>;

// One participant's share of a placement.
struct PlacementPart {
  std::string resource_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string placement_set_id;
  std::string topology_id;
  std::string participant_id;
  ParallelRank rank;
  SharedTensors tensors;                     // sorted by tensor_id
  std::vector<PlacementFragment> fragments;  // sorted by placement_fragment_id

  friend bool operator==(const PlacementPart&, const PlacementPart&) = default;
};

// A complete, validated placement (the contract's WeightPlacementManifest). Its fragments lie in
// its parts, so it is moved but never copied.
struct Placement {
  Placement() = default;
  Placement(Placement&&) = default;
  Placement& operator=(Placement&&) = default;

  std::string resource_id;
  std::string placement_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string placement_set_id;
  ParallelTopology topology;
  std::vector<PlacementPart> parts;          // sorted by participant_id
  std::vector<TensorDescriptor> tensors;     // sorted by tensor_id, no duplicates
  FragmentRefs fragments;                    // all parts', sorted by placement_fragment_id
  std::vector<uint32_t> tensor_of;           // position of each fragment's tensor
  std::vector<std::string> omitted_tensors;  // extended form; sorted
  bool extended = false;                     // uses an extended form; set by the factory
  std::string digest;                        // hex SHA-256 of the JSON; set by the factory
  // Hex SHA-256 of what a plan depends on: everything but resource, revision, generation and set
  // (canonical.h); set by the factory.
  std::string geometry_digest;

  // All else follows from these.
  friend bool operator==(const Placement& a, const Placement& b) {
    return a.digest == b.digest && a.placement_id == b.placement_id && a.topology == b.topology &&
           a.parts == b.parts && a.omitted_tensors == b.omitted_tensors;
  }
};
using PlacementPtr = std::shared_ptr<const Placement>;

struct StoredFragment {
  std::string fragment_id;
  SharedText tensor_id;
  Extents global_offset;
  Extents local_shape;
  std::string object_key;
  uint64_t object_offset = 0;
  uint64_t nbytes = 0;
  std::vector<std::string> aliases;  // sorted
  bool shares_range = false;         // extended form: with the other members of its alias group

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
  bool extended = false;        // uses an extended form; set by the factory
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
  bool strided = false;  // extended form: the strides need not be canonical

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
