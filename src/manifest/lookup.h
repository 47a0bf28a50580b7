// Binary searches over the sorted members of made values. nullptr when there is none.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "manifest/types.h"

namespace mooncake::manifest {

namespace detail {
template <class Sorted, class Member>
auto FindSorted(const Sorted& sorted, std::string_view id, Member member)
    -> const std::remove_cvref_t<decltype(sorted[0])>* {
  auto it = std::lower_bound(sorted.begin(), sorted.end(), id,
                             [member](const auto& value, std::string_view key) {
                               return std::string_view(value.*member) < key;
                             });
  return it != sorted.end() && std::string_view((*it).*member) == id ? &*it : nullptr;
}
}  // namespace detail

// Tensors of a Placement or PlacementPart (a StoredManifest's are not sorted).
inline const TensorDescriptor* FindTensor(std::span<const TensorDescriptor> sorted,
                                          std::string_view tensor_id) {
  return detail::FindSorted(sorted, tensor_id, &TensorDescriptor::tensor_id);
}
inline const TensorDescriptor* FindTensor(const SharedTensors& sorted, std::string_view tensor_id) {
  return detail::FindSorted(sorted, tensor_id, &TensorDescriptor::tensor_id);
}

inline const PlacementFragment* FindFragment(FragmentSpan sorted,
                                             std::string_view placement_fragment_id) {
  return detail::FindSorted(sorted, placement_fragment_id,
                            &PlacementFragment::placement_fragment_id);
}

inline const PlacementPart* FindPart(const Placement& placement, std::string_view participant_id) {
  return detail::FindSorted(placement.parts, participant_id, &PlacementPart::participant_id);
}

// Whether the part has anything to be moved or bound.
inline bool HoldsElements(const PlacementPart& part) {
  return std::any_of(part.fragments.begin(), part.fragments.end(),
                     [](const PlacementFragment& fragment) { return !fragment.is_empty(); });
}

inline const TopologyParticipant* FindParticipant(const ParallelTopology& topology,
                                                  std::string_view participant_id) {
  return detail::FindSorted(topology.participants, participant_id,
                            &TopologyParticipant::participant_id);
}

}  // namespace mooncake::manifest
