// BoxIndex: which of many boxes overlap this one?
//
// A static tree over boxes (each node halves its boxes along the dimension in which their centres
// spread most). Immutable after Build, so any thread may query. For disjoint boxes a query costs
// about log n plus what it finds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "geometry/box.h"

namespace mooncake::geometry {

class BoxIndex {
 public:
  BoxIndex() = default;
  // All boxes have the same rank; at most 2^32 - 1 of them.
  explicit BoxIndex(std::vector<Box> boxes);

  size_t size() const { return boxes_.size(); }
  const Box& box(uint32_t position) const { return boxes_[position]; }

  // Appends to `found` the positions (in the constructor's order) of all boxes that share an
  // element with `query`, in no particular order.
  void FindOverlaps(const Box& query, std::vector<uint32_t>* found) const;

  // Whether some two of the boxes share an element.
  bool AnyOverlap() const;

 private:
  struct Node {
    Box bounds;
    uint32_t first = 0;  // into order_
    uint32_t count = 0;
    uint32_t right = 0;  // 0: a leaf; otherwise the left child follows this node
  };
  uint32_t Build(uint32_t first, uint32_t count);

  std::vector<Box> boxes_;
  std::vector<uint32_t> order_;  // empty when the boxes are so few that a scan wins
  std::vector<Node> nodes_;
};

}  // namespace mooncake::geometry
