// Runtime bindings against the placement they claim to bind.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "manifest/address_rules.h"
#include "manifest/field_checks.h"
#include "manifest/lookup.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

// The binding's fragments are exactly the part's that hold elements; both are sorted by id.
Status CheckSameFragments(const PlacementPart& part, const RuntimeBinding& binding) {
  auto known = part.fragments.begin();
  for (const RuntimeBindingFragment& runtime : binding.fragments) {
    const std::string& id = runtime.placement_fragment_id;
    while (known != part.fragments.end() && known->placement_fragment_id < id) ++known;
    if (known != part.fragments.end() && known->placement_fragment_id == id && !known->is_empty()) {
      continue;
    }
    return InvalidArgument("unknown placement fragment in runtime binding: " + id);
  }
  size_t next = 0;
  for (const PlacementFragment& fragment : part.fragments) {
    if (fragment.is_empty()) continue;
    const std::string& id = fragment.placement_fragment_id;
    const size_t i = next++;
    if (i < binding.fragments.size() && binding.fragments[i].placement_fragment_id == id) continue;
    return InvalidArgument("missing placement fragment in runtime binding: " + id);
  }
  return OkStatus();
}

Status CheckView(const TensorDescriptor& tensor, const PlacementFragment& fragment,
                 const RuntimeBindingFragment& runtime) {
  const std::string& id = fragment.placement_fragment_id;
  if (runtime.nbytes != fragment.nbytes) {
    return InvalidArgument(fmt::format(
        "runtime binding byte size does not match placement: {}: expected {} bytes of {}, got {}",
        id, fragment.nbytes, fragment.tensor_id, runtime.nbytes));
  }
  if (runtime.local_shape != fragment.local_shape) {
    return InvalidArgument(fmt::format(
        "runtime binding local_shape does not match placement: {}: expected {} of {}, got {}", id,
        ToText(fragment.local_shape), fragment.tensor_id, ToText(runtime.local_shape)));
  }
  if (runtime.itemsize != tensor.itemsize) {
    return InvalidArgument(fmt::format(
        "runtime binding itemsize does not match placement: {}: expected {} of {}, got {}", id,
        tensor.itemsize, fragment.tensor_id, runtime.itemsize));
  }
  if (runtime.strided) return OkStatus();
  MC_ASSIGN_OR_RETURN(const Extents canonical,
                      CanonicalStridesBytes(runtime.local_shape, runtime.itemsize));
  if (runtime.strides_bytes != canonical) {
    return InvalidArgument(fmt::format(
        "runtime binding stride does not describe a canonical contiguous view: {}: expected {} of "
        "{}, got {}",
        id, ToText(canonical), fragment.tensor_id, ToText(runtime.strides_bytes)));
  }
  return OkStatus();
}

// The views of a binding whose fragments are exactly its part's.
void AppendViews(const PlacementPart& part, const RuntimeBinding& binding,
                 std::vector<BoundView>& views) {
  // A made part's fragments carry their tensors' own ids, so that where an id lies names its
  // tensor.
  std::unordered_map<const std::string*, const TensorDescriptor*> tensors;
  tensors.reserve(part.tensors.size());
  for (const TensorDescriptor& tensor : part.tensors) {
    tensors.emplace(&tensor.tensor_id.str(), &tensor);
  }
  size_t next = 0;
  for (const PlacementFragment& fragment : part.fragments) {
    if (fragment.is_empty()) continue;
    views.push_back({.instance_id = binding.instance_id,
                     .runtime = &binding.fragments[next++],
                     .fragment = &fragment,
                     .tensor = tensors.at(&fragment.tensor_id.str())});
  }
}

template <class T>
Status CheckSame(const T& placement, const T& binding, std::string_view fields) {
  if (placement == binding) return OkStatus();
  return InvalidArgument(fmt::format("{} differ: {} and {}", fields, placement, binding));
}

Status CheckBoundParticipants(const Placement& placement,
                              std::span<const std::string_view> sorted_participants) {
  std::vector<std::string_view> required;
  for (const PlacementPart& part : placement.parts) {
    if (HoldsElements(part)) required.push_back(part.participant_id);
  }
  for (const std::string_view id : required) {
    if (std::binary_search(sorted_participants.begin(), sorted_participants.end(), id)) continue;
    return InvalidArgument(fmt::format("missing runtime binding participant: {}", id));
  }
  for (const std::string_view id : sorted_participants) {
    if (std::binary_search(required.begin(), required.end(), id)) continue;
    return InvalidArgument(fmt::format("unknown runtime binding participant: {}", id));
  }
  return OkStatus();
}

}  // namespace

Status ValidateResourceBindingIdentity(const Placement& placement, const RuntimeBinding& binding) {
  // Both are model weights by type, so resource_kind cannot differ.
  MC_RETURN_IF_ERROR(CheckSame(placement.resource_id, binding.resource_id,
                               "placement and runtime binding resource_id"));
  MC_RETURN_IF_ERROR(CheckSame(placement.placement_id, binding.placement_id,
                               "placement_id and runtime binding placement_id"));
  return CheckSame(placement.digest, binding.placement_digest,
                   "placement digest and runtime binding placement digest");
}

Status ValidateRuntimeBinding(const Placement& placement, const RuntimeBinding& binding) {
  MC_RETURN_IF_ERROR(ValidateResourceBindingIdentity(placement, binding));
  MC_RETURN_IF_ERROR(
      CheckSame(placement.revision, binding.revision, "placement and runtime binding revision"));
  const PlacementPart* part = FindPart(placement, binding.participant_id);
  if (part == nullptr) {
    return InvalidArgument("unknown runtime binding participant: " + binding.participant_id);
  }
  MC_RETURN_IF_ERROR(CheckSameFragments(*part, binding));
  std::vector<BoundView> views;
  views.reserve(part->fragments.size());
  AppendViews(*part, binding, views);
  for (const BoundView& view : views) {
    MC_RETURN_IF_ERROR(CheckView(*view.tensor, *view.fragment, *view.runtime));
  }
  return CheckAddressSpaces(std::move(views));
}

Status ValidateRuntimeBindings(const Placement& placement,
                               std::span<const RuntimeBindingPtr> bindings) {
  std::vector<std::string_view> participants;
  participants.reserve(bindings.size());
  for (const RuntimeBindingPtr& binding : bindings) {
    MC_CHECK(binding != nullptr);
    participants.push_back(binding->participant_id);
  }
  std::sort(participants.begin(), participants.end());
  if (const auto twin = std::adjacent_find(participants.begin(), participants.end());
      twin != participants.end()) {
    return InvalidArgument(fmt::format("duplicate runtime binding participant: {}", *twin));
  }
  std::vector<BoundView> views;
  for (const RuntimeBindingPtr& binding : bindings) {
    MC_RETURN_IF_ERROR(ValidateRuntimeBinding(placement, *binding));
    AppendViews(*FindPart(placement, binding->participant_id), *binding, views);
  }
  MC_RETURN_IF_ERROR(CheckAddressSpaces(std::move(views)));
  return CheckBoundParticipants(placement, participants);
}

}  // namespace mooncake::manifest
