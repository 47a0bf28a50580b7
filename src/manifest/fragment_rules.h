// The rules every set of placement fragments obeys, in one part and over all parts together.
//
// Internal to the folder. Fragments are referred to by position; `tensor_of[i]` is the position of
// fragment i's tensor.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// tensor_id -> position, for tensors in any order. Keeps views into the descriptors.
class TensorPositions {
 public:
  // Refuses a tensor_id that occurs twice.
  static Result<TensorPositions> Of(std::span<const TensorDescriptor> tensors);

  // -1 when there is none.
  int64_t Find(std::string_view tensor_id) const {
    const auto it = positions_.find(tensor_id);
    return it == positions_.end() ? -1 : static_cast<int64_t>(it->second);
  }

 private:
  std::unordered_map<std::string_view, uint32_t> positions_;
};

// Distinct ids, distinct boxes (and slots) per tensor and rank, known tensors, geometry, sections
// and blocks kept. Returns tensor_of. `fragments` are sorted by id.
Result<std::vector<uint32_t>> CheckFragments(const TensorPositions& positions,
                                             std::span<const TensorDescriptor> tensors,
                                             std::span<const PlacementFragment> fragments);

// No two boxes of one tensor and one rank share an element. Owned tensors declare their boxes, so
// they are left to CheckOwnership.
Status CheckBoxesDisjoint(std::span<const TensorDescriptor> tensors,
                          std::span<const PlacementFragment> fragments,
                          std::span<const uint32_t> tensor_of);

// Every alias group names known tensors, and all fragments of its members carry exactly the group.
Status CheckAliasGroups(const TensorPositions& positions, std::span<const TensorDescriptor> tensors,
                        std::span<const PlacementFragment> fragments,
                        std::span<const uint32_t> tensor_of);

}  // namespace mooncake::manifest
