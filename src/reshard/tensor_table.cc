#include "reshard/tensor_table.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace mooncake::reshard {
namespace {

// Fragments sorted by id lie all over the heap; asking for the next ones early hides most of it.
constexpr size_t kPrefetchAhead = 12;

template <class Fragments>
std::vector<uint32_t> TensorsOfFragments(const Fragments& fragments, const TensorTable& table) {
  std::vector<uint32_t> tensors(fragments.size());
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (i + kPrefetchAhead < fragments.size()) {
      __builtin_prefetch(fragments[i + kPrefetchAhead].tensor_id.data());
    }
    tensors[i] = table.FindKnown(fragments[i].tensor_id);
  }
  return tensors;
}

}  // namespace

TensorList PlacementTensors(std::span<const manifest::TensorDescriptor> sorted) {
  TensorList tensors;
  tensors.reserve(sorted.size());
  for (const manifest::TensorDescriptor& tensor : sorted) tensors.push_back(&tensor);
  return tensors;
}

TensorList PlacementTensors(const manifest::SharedTensors& sorted) {
  TensorList tensors;
  tensors.reserve(sorted.size());
  for (const manifest::TensorDescriptor& tensor : sorted) tensors.push_back(&tensor);
  return tensors;
}

TensorList SortedTensors(std::span<const manifest::TensorDescriptor> tensors) {
  TensorList sorted = PlacementTensors(tensors);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->tensor_id < b->tensor_id; });
  return sorted;
}

void PrefetchFragments(manifest::FragmentSpan fragments, std::span<const uint32_t> members,
                       size_t position, size_t count) {
  // The fragment first, its extents some fragments later, when the pointers to them have arrived.
  constexpr size_t kFragmentsAhead = 32;
  constexpr size_t kExtentsAhead = 16;
  for (size_t i = position; i < position + count; ++i) {
    if (i + kFragmentsAhead < members.size()) {
      const manifest::PlacementFragment& fragment = fragments[members[i + kFragmentsAhead]];
      __builtin_prefetch(&fragment.global_offset);
      __builtin_prefetch(&fragment.rank);
    }
    if (i + kExtentsAhead < members.size()) {
      const manifest::PlacementFragment& fragment = fragments[members[i + kExtentsAhead]];
      __builtin_prefetch(fragment.global_offset.data());
      __builtin_prefetch(fragment.local_shape.data());
    }
  }
}

TensorTable::TensorTable(std::span<const manifest::TensorDescriptor* const> tensors)
    : tensors_(tensors) {
  slots_.resize(std::bit_ceil(2 * tensors.size() + 1));
  mask_ = slots_.size() - 1;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const uint64_t hash = std::hash<std::string_view>()(tensors[t]->tensor_id);
    size_t at = hash & mask_;
    for (; slots_[at].position_plus_one != 0; at = (at + 1) & mask_) {
      hashes_differ_ = hashes_differ_ && slots_[at].hash != hash;
    }
    slots_[at] = {hash, static_cast<uint32_t>(t + 1)};
  }
}

std::optional<uint32_t> TensorTable::Find(std::string_view tensor_id) const {
  if (slots_.empty()) return std::nullopt;
  const uint64_t hash = std::hash<std::string_view>()(tensor_id);
  for (size_t at = hash & mask_; slots_[at].position_plus_one != 0; at = (at + 1) & mask_) {
    const uint32_t position = slots_[at].position_plus_one - 1;
    if (slots_[at].hash == hash && tensors_[position]->tensor_id == tensor_id) return position;
  }
  return std::nullopt;
}

uint32_t TensorTable::FindKnown(std::string_view tensor_id) const {
  if (hashes_differ_) {
    const uint64_t hash = std::hash<std::string_view>()(tensor_id);
    for (size_t at = hash & mask_; slots_[at].position_plus_one != 0; at = (at + 1) & mask_) {
      if (slots_[at].hash == hash) return slots_[at].position_plus_one - 1;
    }
  }
  const std::optional<uint32_t> position = Find(tensor_id);
  MC_CHECK(position.has_value());
  return *position;
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

std::vector<uint32_t> TensorsOf(manifest::FragmentSpan fragments, const TensorTable& table) {
  return TensorsOfFragments(fragments, table);
}

std::vector<uint32_t> TensorsOf(std::span<const manifest::StoredFragment> fragments,
                                const TensorTable& table) {
  return TensorsOfFragments(fragments, table);
}

}  // namespace mooncake::reshard
