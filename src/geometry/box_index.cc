#include "geometry/box_index.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace mooncake::geometry {
namespace {

constexpr uint32_t kScanMax = 16;  // so few boxes are compared one by one
constexpr uint32_t kLeafMax = 4;

Box Hull(const std::vector<Box>& boxes, std::span<const uint32_t> positions) {
  std::array<int64_t, kMaxRank> offset{};
  std::array<int64_t, kMaxRank> shape{};
  const int rank = boxes[positions[0]].rank();
  for (int d = 0; d < rank; ++d) {
    int64_t begin = boxes[positions[0]].begin(d);
    int64_t end = boxes[positions[0]].end(d);
    for (uint32_t p : positions) {
      begin = std::min(begin, boxes[p].begin(d));
      end = std::max(end, boxes[p].end(d));
    }
    offset[d] = begin;
    shape[d] = end - begin;
  }
  const auto n = static_cast<size_t>(rank);
  return UncheckedBox(std::span(offset).first(n), std::span(shape).first(n));
}

// Twice the centre, without leaving 64 bits.
uint64_t DoubleCentre(const Box& box, int d) {
  return static_cast<uint64_t>(box.begin(d)) + static_cast<uint64_t>(box.end(d));
}

// The dimension that the boxes' centres divide into the most parts of equal weight: their spread
// counted in mean extents, so that a long thin tensor is cut where its boxes are short.
int SplitDimension(const std::vector<Box>& boxes, std::span<const uint32_t> positions) {
  int best = 0;
  double best_spread = -1;
  for (int d = 0; d < boxes[positions[0]].rank(); ++d) {
    uint64_t low = UINT64_MAX;
    uint64_t high = 0;
    double extents = 0;
    for (uint32_t p : positions) {
      const uint64_t centre = DoubleCentre(boxes[p], d);
      low = std::min(low, centre);
      high = std::max(high, centre);
      extents += static_cast<double>(boxes[p].extent(d));
    }
    const double spread = static_cast<double>(high - low) / extents;
    if (spread > best_spread) {
      best_spread = spread;
      best = d;
    }
  }
  return best;
}

}  // namespace

BoxIndex::BoxIndex(std::vector<Box> boxes) : boxes_(std::move(boxes)) {
  MC_CHECK(boxes_.size() < UINT32_MAX);
  if (boxes_.size() <= kScanMax) return;
  order_.resize(boxes_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  nodes_.reserve(2 * boxes_.size() / kLeafMax + 2);
  Build(0, static_cast<uint32_t>(boxes_.size()));
}

uint32_t BoxIndex::Build(uint32_t first, uint32_t count) {
  const std::span<uint32_t> positions = std::span(order_).subspan(first, count);
  const auto node = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({Hull(boxes_, positions), first, count, 0});
  if (count <= kLeafMax) return node;
  const int dim = SplitDimension(boxes_, positions);
  const uint32_t half = count / 2;
  std::nth_element(positions.begin(), positions.begin() + half, positions.end(),
                   [this, dim](uint32_t a, uint32_t b) {
                     const uint64_t ca = DoubleCentre(boxes_[a], dim);
                     const uint64_t cb = DoubleCentre(boxes_[b], dim);
                     return ca != cb ? ca < cb : a < b;
                   });
  Build(first, half);
  const uint32_t right = Build(first + half, count - half);
  nodes_[node].right = right;
  return node;
}

void BoxIndex::FindOverlaps(const Box& query, std::vector<uint32_t>* found) const {
  if (nodes_.empty()) {
    for (uint32_t p = 0; p < boxes_.size(); ++p) {
      if (boxes_[p].Overlaps(query)) found->push_back(p);
    }
    return;
  }
  std::array<uint32_t, 64> pending;  // the tree is at most 32 deep
  size_t depth = 0;
  pending[depth++] = 0;
  while (depth > 0) {
    const uint32_t index = pending[--depth];
    const Node& node = nodes_[index];
    if (!node.bounds.Overlaps(query)) continue;
    if (node.right != 0) {
      pending[depth++] = node.right;
      pending[depth++] = index + 1;
      continue;
    }
    for (uint32_t i = node.first; i < node.first + node.count; ++i) {
      if (boxes_[order_[i]].Overlaps(query)) found->push_back(order_[i]);
    }
  }
}

bool BoxIndex::AnyOverlap() const {
  std::vector<uint32_t> found;
  for (const Box& box : boxes_) {
    found.clear();
    FindOverlaps(box, &found);
    if (found.size() > 1) return true;
  }
  return false;
}

}  // namespace mooncake::geometry
