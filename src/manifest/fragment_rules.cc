#include "manifest/fragment_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "manifest/extension.h"
#include "manifest/field_checks.h"
#include "manifest/hashing.h"
#include "manifest/tiling.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

Result<TensorPositions> TensorPositions::OfPointers(std::vector<const TensorDescriptor*> tensors) {
  TensorPositions result;
  result.positions_.reserve(tensors.size());
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (!result.positions_.try_emplace(tensors[i]->tensor_id, i).second) {
      return InvalidArgument("duplicate tensor_id: " + tensors[i]->tensor_id);
    }
  }
  result.tensors_ = std::move(tensors);
  return result;
}

namespace {

// Positions of fragments by tensor: those of tensor t, ascending, are members[begins[t]] ...
// members[begins[t + 1] - 1].
struct ByTensor {
  std::vector<uint32_t> begins;
  std::vector<uint32_t> members;

  ByTensor(std::span<const uint32_t> tensor_of, size_t tensors)
      : begins(tensors + 1), members(tensor_of.size()) {
    for (const uint32_t tensor : tensor_of) ++begins[tensor + 1];
    for (size_t t = 0; t < tensors; ++t) begins[t + 1] += begins[t];
    std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
    for (uint32_t i = 0; i < tensor_of.size(); ++i) members[next[tensor_of[i]]++] = i;
  }
  std::span<const uint32_t> of(size_t tensor) const {
    return std::span(members).subspan(begins[tensor], begins[tensor + 1] - begins[tensor]);
  }
};

// What is wrong with a fragment on its own, and where it stands: of several faults the contract
// names that of the first fragment.
struct FragmentFault {
  size_t position = SIZE_MAX;
  Status status;
};

// Compares what must be distinct among one tensor's fragments of one rank.
bool SameLogicalBox(const PlacementFragment& a, const PlacementFragment& b) {
  return a.global_offset == b.global_offset && a.local_shape == b.local_shape && a.slot == b.slot;
}

// The first position whose box an earlier one of the same tensor has; SIZE_MAX when there is none.
size_t FirstRepeated(std::span<const PlacementFragment> fragments, const ByTensor& by_tensor,
                     size_t tensors) {
  struct BoxHash {
    size_t operator()(const PlacementFragment* f) const {
      return HashFold().Add(std::span(f->global_offset)).Add(std::span(f->local_shape)).value();
    }
  };
  struct SameBox {
    bool operator()(const PlacementFragment* a, const PlacementFragment* b) const {
      return SameLogicalBox(*a, *b);
    }
  };
  size_t first = SIZE_MAX;
  for (size_t tensor = 0; tensor < tensors; ++tensor) {
    const std::span<const uint32_t> members = by_tensor.of(tensor);
    if (members.size() < 2) continue;
    std::unordered_set<const PlacementFragment*, BoxHash, SameBox> boxes;
    for (const uint32_t member : members) {
      if (boxes.insert(&fragments[member]).second) continue;
      first = std::min<size_t>(first, member);
      break;
    }
  }
  return first;
}

Status CheckBoxesDisjoint(const TensorPositions& positions,
                          std::span<const PlacementFragment> fragments, const ByTensor& by_tensor) {
  std::vector<BoxView> boxes;
  for (size_t tensor = 0; tensor < positions.size(); ++tensor) {
    const std::span<const uint32_t> members = by_tensor.of(tensor);
    if (members.size() < 2 || positions[tensor].is_owned()) continue;
    boxes.clear();
    for (const uint32_t member : members) {
      const PlacementFragment& fragment = fragments[member];
      if (!fragment.is_empty()) boxes.push_back({fragment.global_offset, fragment.local_shape});
    }
    MC_ASSIGN_OR_RETURN(const bool overlap, AnyOverlap(boxes));
    if (!overlap) continue;
    const PlacementFragment& fragment = fragments[members[0]];
    return InvalidArgument(
        fmt::format("logical fragment boxes overlap for tensor and parallel rank: {} at {}",
                    fragment.tensor_id, ToText(fragment.rank)));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<uint32_t>> CheckPartFragments(const TensorPositions& positions,
                                                 std::span<const PlacementFragment> fragments) {
  std::vector<uint32_t> tensor_of;
  tensor_of.reserve(fragments.size());
  // The contract looks at one fragment after another: is its id new, its tensor known, its box new,
  // its geometry right? Boxes are compared afterwards, tensor by tensor.
  FragmentFault geometry;
  Status unknown;
  const std::string* previous_id = nullptr;
  for (const PlacementFragment& fragment : fragments) {
    const std::string& id = fragment.placement_fragment_id;
    const int64_t tensor = positions.Find(fragment.tensor_id);
    if (previous_id != nullptr && id == *previous_id) {
      unknown = InvalidArgument("duplicate fragment_id: " + id);
    } else if (tensor < 0) {
      unknown = InvalidArgument("unknown tensor_id: " + fragment.tensor_id);
    }
    if (!unknown.ok()) break;
    previous_id = &id;
    tensor_of.push_back(static_cast<uint32_t>(tensor));
    if (!geometry.status.ok()) continue;
    geometry.status =
        ValidateFragmentGeometry(positions[static_cast<size_t>(tensor)], id, fragment.global_offset,
                                 fragment.local_shape, fragment.nbytes);
    if (geometry.status.ok()) {
      geometry.status = CheckFragmentCuts(positions[static_cast<size_t>(tensor)], id,
                                          fragment.global_offset, fragment.local_shape);
    }
    if (!geometry.status.ok()) geometry.position = tensor_of.size() - 1;
  }
  const ByTensor by_tensor(tensor_of, positions.size());
  const size_t repeated = FirstRepeated(fragments, by_tensor, positions.size());
  if (repeated != SIZE_MAX && repeated <= geometry.position) {
    const PlacementFragment& fragment = fragments[repeated];
    return InvalidArgument(
        fmt::format("duplicate logical fragment for tensor and parallel rank: {}: {} at {}",
                    fragment.placement_fragment_id, fragment.tensor_id, ToText(fragment.rank)));
  }
  MC_RETURN_IF_ERROR(std::move(geometry.status));
  MC_RETURN_IF_ERROR(std::move(unknown));
  MC_RETURN_IF_ERROR(CheckBoxesDisjoint(positions, fragments, by_tensor));
  return tensor_of;
}

Status CheckAliasGroups(const TensorPositions& positions, FragmentSpan fragments,
                        std::span<const uint32_t> tensor_of) {
  constexpr uint32_t kUnseen = UINT32_MAX;
  constexpr uint32_t kMixed = UINT32_MAX - 1;
  AliasGroupNumbers numbers;
  std::vector<uint32_t> group_of_tensor(positions.size(), kUnseen);
  for (size_t i = 0; i < fragments.size(); ++i) {
    const uint32_t number = numbers.NumberOf(fragments[i].aliases);
    uint32_t& group = group_of_tensor[tensor_of[i]];
    if (group == kUnseen) {
      group = number;
    } else if (group != number) {
      group = kMixed;
    }
  }
  std::vector<uint32_t> order(numbers.count());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i + 1;
  std::sort(order.begin(), order.end(),
            [&numbers](uint32_t a, uint32_t b) { return numbers.Group(a) < numbers.Group(b); });
  for (const uint32_t number : order) {
    const std::vector<std::string>& members = numbers.Group(number);
    for (const std::string& member : members) {
      if (positions.Find(member) < 0) {
        return InvalidArgument("alias group references unknown tensor: " + member);
      }
    }
    for (const std::string& member : members) {
      if (group_of_tensor[positions.Find(member)] == number) continue;
      return InvalidArgument("alias group is not declared consistently for tensor: " + member);
    }
  }
  return OkStatus();
}

}  // namespace mooncake::manifest
