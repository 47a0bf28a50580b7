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

// tensor_id -> position, for tensors in any order. Keeps views of the descriptors.
class TensorPositions {
 public:
  // Refuses a tensor_id that occurs twice.
  template <class Tensors>
  static Result<TensorPositions> Of(const Tensors& tensors) {
    std::vector<const TensorDescriptor*> pointers;
    pointers.reserve(tensors.size());
    for (const TensorDescriptor& tensor : tensors) pointers.push_back(&tensor);
    return OfPointers(std::move(pointers));
  }

  // -1 when there is none.
  int64_t Find(std::string_view tensor_id) const {
    const auto it = positions_.find(tensor_id);
    return it == positions_.end() ? -1 : static_cast<int64_t>(it->second);
  }
  const TensorDescriptor& operator[](size_t position) const { return *tensors_[position]; }
  size_t size() const { return tensors_.size(); }

 private:
  static Result<TensorPositions> OfPointers(std::vector<const TensorDescriptor*> tensors);

  std::vector<const TensorDescriptor*> tensors_;
  std::unordered_map<std::string_view, uint32_t> positions_;
};

// The rules of one part's fragments, which are sorted by id and have one rank: distinct ids,
// distinct boxes (and slots) of a tensor, known tensors, geometry, sections and blocks kept; and no
// two boxes of a tensor share an element (owned tensors declare their boxes, so they are left to
// CheckOwnership). Returns tensor_of.
//
// Over all parts together they hold too, but for the ids: no two parts have one rank.
Result<std::vector<uint32_t>> CheckPartFragments(const TensorPositions& positions,
                                                 std::span<const PlacementFragment> fragments);

// Every alias group names known tensors, and all fragments of its members carry exactly the group.
Status CheckAliasGroups(const TensorPositions& positions, FragmentSpan fragments,
                        std::span<const uint32_t> tensor_of);

}  // namespace mooncake::manifest
