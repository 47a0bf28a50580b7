// TensorTable: tensor id -> position in a sorted tensor catalog, for millions of look-ups.
//
// Internal to the folder. Open addressing over 8-byte slots; the ids stay where they are and outlive
// the table. Immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "manifest/types.h"

namespace mooncake::reshard {

using TensorList = std::vector<const manifest::TensorDescriptor*>;

// Pointers to the tensors, sorted by id.
TensorList SortedTensors(std::span<const manifest::TensorDescriptor> tensors);

class TensorTable {
 public:
  TensorTable() = default;
  explicit TensorTable(std::span<const manifest::TensorDescriptor* const> tensors);

  std::optional<uint32_t> Find(std::string_view tensor_id) const;

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t position_plus_one = 0;  // 0: free
  };
  std::span<const manifest::TensorDescriptor* const> tensors_;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
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

// The tensor of every fragment; all are in the table.
std::vector<uint32_t> TensorsOf(std::span<const manifest::PlacementFragment> fragments,
                                const TensorTable& table);
std::vector<uint32_t> TensorsOf(std::span<const manifest::StoredFragment> fragments,
                                const TensorTable& table);

}  // namespace mooncake::reshard
