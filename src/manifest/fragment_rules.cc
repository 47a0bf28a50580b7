#include "manifest/fragment_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "manifest/extension.h"
#include "manifest/field_checks.h"
#include "manifest/hashing.h"
#include "manifest/rank_order.h"
#include "manifest/sorting.h"
#include "manifest/tiling.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

Result<TensorPositions> TensorPositions::Of(std::span<const TensorDescriptor> tensors) {
  TensorPositions result;
  result.positions_.reserve(tensors.size());
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (!result.positions_.try_emplace(tensors[i].tensor_id, i).second) {
      return InvalidArgument("duplicate tensor_id: " + tensors[i].tensor_id);
    }
  }
  return result;
}

namespace {

// What must be distinct among a set's fragments: (tensor, rank, offset, shape, slot).
struct LogicalBox {
  int64_t tensor = 0;
  const PlacementFragment* fragment = nullptr;

  friend bool operator==(const LogicalBox& a, const LogicalBox& b) {
    return a.tensor == b.tensor && a.fragment->rank == b.fragment->rank &&
           a.fragment->global_offset == b.fragment->global_offset &&
           a.fragment->local_shape == b.fragment->local_shape &&
           a.fragment->slot == b.fragment->slot;
  }
};
struct LogicalBoxHash {
  size_t operator()(const LogicalBox& box) const {
    return HashFold()
        .Add(static_cast<uint64_t>(box.tensor))
        .Add(box.fragment->rank)
        .Add(std::span(box.fragment->global_offset))
        .Add(std::span(box.fragment->local_shape))
        .value();
  }
};

}  // namespace

Result<std::vector<uint32_t>> CheckFragments(const TensorPositions& positions,
                                             std::span<const TensorDescriptor> tensors,
                                             std::span<const PlacementFragment> fragments) {
  std::vector<uint32_t> tensor_of;
  tensor_of.reserve(fragments.size());
  std::unordered_set<LogicalBox, LogicalBoxHash> boxes;
  boxes.reserve(fragments.size());
  const std::string* previous_id = nullptr;
  for (const PlacementFragment& fragment : fragments) {
    const std::string& id = fragment.placement_fragment_id;
    if (previous_id != nullptr && id == *previous_id) {
      return InvalidArgument("duplicate fragment_id: " + id);
    }
    previous_id = &id;
    const int64_t tensor = positions.Find(fragment.tensor_id);
    if (tensor < 0) return InvalidArgument("unknown tensor_id: " + fragment.tensor_id);
    if (!boxes.insert({tensor, &fragment}).second) {
      return InvalidArgument(
          fmt::format("duplicate logical fragment for tensor and parallel rank: {}: {} at {}", id,
                      fragment.tensor_id, ToText(fragment.rank)));
    }
    MC_RETURN_IF_ERROR(ValidateFragmentGeometry(tensors[tensor], id, fragment.global_offset,
                                                fragment.local_shape, fragment.nbytes));
    MC_RETURN_IF_ERROR(
        CheckFragmentCuts(tensors[tensor], id, fragment.global_offset, fragment.local_shape));
    tensor_of.push_back(static_cast<uint32_t>(tensor));
  }
  return tensor_of;
}

Status CheckBoxesDisjoint(std::span<const TensorDescriptor> tensors,
                          std::span<const PlacementFragment> fragments,
                          std::span<const uint32_t> tensor_of) {
  const auto same_group = [&](uint32_t a, uint32_t b) {
    return tensor_of[a] == tensor_of[b] && fragments[a].rank == fragments[b].rank;
  };
  const std::vector<uint32_t> order =
      SortedPositions(fragments.size(), [&](uint32_t a, uint32_t b) {
        if (tensor_of[a] != tensor_of[b]) return tensor_of[a] < tensor_of[b];
        return RankLess(fragments[a].rank, fragments[b].rank);
      });
  std::vector<BoxView> boxes;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    boxes.clear();
    for (end = begin; end < order.size() && same_group(order[begin], order[end]); ++end) {
      const PlacementFragment& fragment = fragments[order[end]];
      if (fragment.is_empty() || tensors[tensor_of[order[end]]].is_owned()) continue;
      boxes.push_back({fragment.global_offset, fragment.local_shape});
    }
    MC_ASSIGN_OR_RETURN(const bool overlap, AnyOverlap(boxes));
    if (!overlap) continue;
    const PlacementFragment& fragment = fragments[order[begin]];
    return InvalidArgument(
        fmt::format("logical fragment boxes overlap for tensor and parallel rank: {} at {}",
                    fragment.tensor_id, ToText(fragment.rank)));
  }
  return OkStatus();
}

Status CheckAliasGroups(const TensorPositions& positions, std::span<const TensorDescriptor> tensors,
                        std::span<const PlacementFragment> fragments,
                        std::span<const uint32_t> tensor_of) {
  constexpr uint32_t kUnseen = UINT32_MAX;
  constexpr uint32_t kMixed = UINT32_MAX - 1;
  AliasGroupNumbers numbers;
  std::vector<uint32_t> group_of_tensor(tensors.size(), kUnseen);
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
