// The checks of the public reshard contracts (docs/contracts.md) and the only makers of their
// values.
//
// A Make function takes the fields a caller filled in, checks them in the contract's order, brings
// them to canonical form (sorted axes, aliases, tensors, fragments; derived ids) and returns the
// value. Every violation is INVALID_ARGUMENT and its message contains the contract's text, followed
// by the values that disagree. Everything a big value holds is checked again when the big value is
// made, so a caller may hand over plain structs; canonical input costs no more than the check.
//
// Not here: the types of Python arguments and integers beyond 64 bits, which the Python face
// refuses before a C++ value exists. The contract's integers are unbounded; int64_t (uint64_t for
// bytes and addresses) is our documented limit, and products that leave it are refused, never
// wrapped.
//
// All functions are pure and safe to call from any thread. Cost is N log N in the fragments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// --- small values -------------------------------------------------------------------------------

// "dp", "pp", "ep" or "tp".
std::string_view AxisKindName(AxisKind kind);
// "split", "replicated" or "ownership", as the JSON spells them.
std::string_view AxisSemanticsName(AxisSemantics semantics);
Result<AxisKind> ParseAxisKind(std::string_view kind);
Result<AxisSemantics> ParseAxisSemantics(std::string_view semantics);

Result<ParallelRank> MakeParallelRank(ParallelRank fields);

// `dim` counts for kSplit only.
Result<ParallelAxis> MakeAxis(AxisSemantics semantics, std::string_view kind, int64_t dim = 0);

// Sorts parallel_axes by kind. With an extension: the extended forms' rules, and their canonical
// order.
Result<TensorDescriptor> MakeTensorDescriptor(TensorDescriptor fields);

Result<TopologyParticipant> MakeTopologyParticipant(TopologyParticipant fields);

// Sorts participants and derives topology_id; `topology_id`, when given, must equal it.
// fields.topology_id is not read.
Result<ParallelTopology> MakeTopology(ParallelTopology fields,
                                      std::optional<std::string> topology_id = std::nullopt);

enum class FragmentForm : uint8_t {
  kBase,
  kExtended,  // of a tensor with an extension: extents of 0 and a slot are allowed
};

// A fragment that only the extended form can say.
bool IsExtended(const PlacementFragment& fragment);

// Sorts aliases. The id is `placement_fragment_id` verbatim when given, else derived.
// fields.placement_fragment_id is not read.
Result<PlacementFragment> MakePlacementFragment(
    PlacementFragment fields, std::optional<std::string> placement_fragment_id = std::nullopt,
    FragmentForm form = FragmentForm::kBase);

// All of MakePlacementFragment but the id, in place.
Status NormalizeFragment(PlacementFragment& fragment, FragmentForm form);

Result<StoredFragment> MakeStoredFragment(StoredFragment fields);

Result<StoredManifestIdentity> MakeStoredManifestIdentity(StoredManifestIdentity fields);

// Rewrites the strides of extent-1 dimensions to the row-major ones.
Result<RuntimeBindingFragment> MakeRuntimeBindingFragment(RuntimeBindingFragment fields);

// --- big values ---------------------------------------------------------------------------------

// Every fragment carries its id (from MakePlacementFragment).
Result<PlacementPart> MakePart(PlacementPart fields);

struct PlacementFields {
  std::string resource_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string placement_set_id;
  ParallelTopology topology;
  std::vector<PlacementPart> parts;
  std::optional<std::string> placement_id;        // must equal the derived one when given
  std::vector<std::string> omitted_tensors = {};  // extended form
};
Result<PlacementPtr> MakePlacement(PlacementFields fields);

// One inventory for all participants: every fragment goes to the participant that has its rank.
struct FragmentInventory {
  std::string resource_id;
  std::string revision;
  uint64_t weight_generation = 0;
  std::string placement_set_id;
  ParallelTopology topology;
  std::vector<TensorDescriptor> tensors;
  std::vector<PlacementFragment> fragments;
  std::optional<std::string> placement_id;        // must equal the derived one when given
  std::vector<std::string> omitted_tensors = {};  // extended form
};
Result<PlacementPtr> PlacementFromFragments(FragmentInventory fields);

// Keeps the order of tensors and fragments. fields.manifest_digest and fields.extended are not
// read.
Result<StoredManifestPtr> MakeStoredManifest(StoredManifest fields);

StoredManifestIdentity IdentityOf(const StoredManifest& manifest);

// Sorts fragments by placement_fragment_id.
Result<RuntimeBindingPtr> MakeRuntimeBinding(RuntimeBinding fields);

// --- checks between values ----------------------------------------------------------------------

// `placement` and `binding` speak of the same resource and the same placement bytes.
Status ValidateResourceBindingIdentity(const Placement& placement, const RuntimeBinding& binding);

// `binding` gives every fragment (that has elements) of its participant's part one view, contiguous
// unless it is marked as strided, and no two views or storage allocations of one address space
// overlap unless they are declared aliases.
Status ValidateRuntimeBinding(const Placement& placement, const RuntimeBinding& binding);

// Every participant that has fragments is bound exactly once, and the rules of one binding hold
// over all bindings of an instance together. No pointer is null.
Status ValidateRuntimeBindings(const Placement& placement,
                               std::span<const RuntimeBindingPtr> bindings);

// A fragment lies in its tensor and has the byte size its shape says.
Status ValidateFragmentGeometry(const TensorDescriptor& tensor, std::string_view fragment_id,
                                std::span<const int64_t> global_offset,
                                std::span<const int64_t> local_shape, uint64_t nbytes);

// Bytes from the first to one past the last byte of a made view; nbytes where it is contiguous.
uint64_t SpanBytes(const RuntimeBindingFragment& view);

// Row-major byte strides, innermost last. Refuses strides that leave int64_t.
Result<Extents> CanonicalStridesBytes(std::span<const int64_t> shape, int64_t itemsize);

}  // namespace mooncake::manifest
