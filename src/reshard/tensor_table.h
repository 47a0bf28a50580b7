// TensorTable: tensor id -> position in a sorted tensor catalog, for millions of look-ups.
//
// Internal to the folder. Open addressing over 16-byte slots; the ids stay where they are and
// outlive the table. Immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "manifest/types.h"

namespace mooncake::reshard {

using TensorList = std::vector<const manifest::TensorDescriptor*>;

// Pointers to the tensors. A placement's are sorted by id already; a stored manifest's are not.
TensorList PlacementTensors(std::span<const manifest::TensorDescriptor> sorted);
TensorList PlacementTensors(const manifest::SharedTensors& sorted);
TensorList SortedTensors(std::span<const manifest::TensorDescriptor> tensors);

class TensorTable {
 public:
  TensorTable() = default;
  explicit TensorTable(std::span<const manifest::TensorDescriptor* const> tensors);

  std::optional<uint32_t> Find(std::string_view tensor_id) const;
  // For an id that is in the catalog, as a made placement's fragments' ids are: never reads the
  // catalog's strings, which would cost a cache miss a fragment.
  uint32_t FindKnown(std::string_view tensor_id) const;

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t position_plus_one = 0;  // 0: free
  };
  std::span<const manifest::TensorDescriptor* const> tensors_;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  bool hashes_differ_ = true;  // so that among known ids the hash alone decides
};

// Which tensor each fragment belongs to, and the fragments of each tensor, ascending.
struct FragmentsByTensor {
  std::vector<uint32_t> begins;   // tensor t: members[begins[t]] ... members[begins[t + 1] - 1]
  std::vector<uint32_t> members;  // positions of fragments

  std::span<const uint32_t> of(size_t tensor) const {
    return std::span(members).subspan(begins[tensor], begins[tensor + 1] - begins[tensor]);
  }
};
FragmentsByTensor GroupByTensor(std::span<const uint32_t> tensor_of_fragment, size_t tensor_count);

// Asks for fragments that are about to be read, in the order of `members`: their positions sorted
// by id are all over memory, twice (the fragment and its extents). `position` is the first member
// that is read next, `count` how many.
void PrefetchFragments(manifest::FragmentSpan fragments, std::span<const uint32_t> members,
                       size_t position, size_t count);

// The tensor of every fragment; all are in the table.
std::vector<uint32_t> TensorsOf(manifest::FragmentSpan fragments, const TensorTable& table);
std::vector<uint32_t> TensorsOf(std::span<const manifest::StoredFragment> fragments,
                                const TensorTable& table);

}  // namespace mooncake::reshard
