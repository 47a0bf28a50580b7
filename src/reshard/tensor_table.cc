#include "reshard/tensor_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace mooncake::reshard {
namespace {

// Fragments sorted by id lie all over the heap; asking for the next ones early hides most of it.
constexpr size_t kPrefetchAhead = 12;

template <class Fragment>
std::vector<uint32_t> TensorsOfFragments(std::span<const Fragment> fragments,
                                         const TensorTable& table) {
  std::vector<uint32_t> tensors(fragments.size());
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (i + kPrefetchAhead < fragments.size()) {
      __builtin_prefetch(fragments[i + kPrefetchAhead].tensor_id.data());
    }
    const std::optional<uint32_t> tensor = table.Find(fragments[i].tensor_id);
    MC_CHECK(tensor.has_value());
    tensors[i] = *tensor;
  }
  return tensors;
}

}  // namespace

TensorList SortedTensors(std::span<const manifest::TensorDescriptor> tensors) {
  TensorList sorted;
  sorted.reserve(tensors.size());
  for (const manifest::TensorDescriptor& tensor : tensors) sorted.push_back(&tensor);
  const auto by_id = [](const auto* a, const auto* b) { return a->tensor_id < b->tensor_id; };
  if (!std::is_sorted(sorted.begin(), sorted.end(), by_id)) {
    std::sort(sorted.begin(), sorted.end(), by_id);
  }
  return sorted;
}

TensorTable::TensorTable(std::span<const manifest::TensorDescriptor* const> tensors)
    : tensors_(tensors) {
  slots_.resize(std::bit_ceil(2 * tensors.size() + 1));
  mask_ = slots_.size() - 1;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const size_t hash = std::hash<std::string_view>()(tensors[t]->tensor_id);
    size_t at = hash & mask_;
    while (slots_[at].position_plus_one != 0) at = (at + 1) & mask_;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), static_cast<uint32_t>(t + 1)};
  }
}

std::optional<uint32_t> TensorTable::Find(std::string_view tensor_id) const {
  if (slots_.empty()) return std::nullopt;
  const size_t hash = std::hash<std::string_view>()(tensor_id);
  for (size_t at = hash & mask_; slots_[at].position_plus_one != 0; at = (at + 1) & mask_) {
    const uint32_t position = slots_[at].position_plus_one - 1;
    if (slots_[at].hash == static_cast<uint32_t>(hash >> 32) &&
        tensors_[position]->tensor_id == tensor_id) {
      return position;
    }
  }
  return std::nullopt;
}

FragmentsByTensor GroupByTensor(std::span<const uint32_t> tensor_of_fragment, size_t tensor_count) {
  FragmentsByTensor groups;
  groups.begins.assign(tensor_count + 1, 0);
  for (uint32_t tensor : tensor_of_fragment) ++groups.begins[tensor + 1];
  for (size_t t = 0; t < tensor_count; ++t) groups.begins[t + 1] += groups.begins[t];
  groups.members.resize(tensor_of_fragment.size());
  std::vector<uint32_t> next(groups.begins.begin(), groups.begins.end() - 1);
  for (size_t i = 0; i < tensor_of_fragment.size(); ++i) {
    groups.members[next[tensor_of_fragment[i]]++] = static_cast<uint32_t>(i);
  }
  return groups;
}

std::vector<uint32_t> TensorsOf(std::span<const manifest::PlacementFragment> fragments,
                                const TensorTable& table) {
  return TensorsOfFragments(fragments, table);
}

std::vector<uint32_t> TensorsOf(std::span<const manifest::StoredFragment> fragments,
                                const TensorTable& table) {
  return TensorsOfFragments(fragments, table);
}

}  // namespace mooncake::reshard
