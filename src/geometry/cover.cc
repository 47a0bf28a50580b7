#include "geometry/cover.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "geometry/box_index.h"

namespace mooncake::geometry {
namespace {

using Positions = std::span<uint32_t>;  // boxes under test, as positions into all boxes

void SortByBegin(std::span<const Box> boxes, Positions positions, int dim) {
  std::sort(positions.begin(), positions.end(), [boxes, dim](uint32_t a, uint32_t b) {
    return boxes[a].begin(dim) < boxes[b].begin(dim);
  });
}

bool SweepLine(std::span<const Box> boxes, Positions positions, int dim) {
  SortByBegin(boxes, positions, dim);
  for (size_t i = 1; i < positions.size(); ++i) {
    if (boxes[positions[i]].begin(dim) < boxes[positions[i - 1]].end(dim)) return true;
  }
  return false;
}

// Sweeps along `dim`. The intervals that the sweep line cuts in `across` stay disjoint until the
// first overlap, so looking at an interval's two neighbours is enough.
bool SweepPlane(std::span<const Box> boxes, Positions positions, int dim, int across) {
  SortByBegin(boxes, positions, dim);
  std::vector<uint32_t> by_end(positions.begin(), positions.end());
  std::sort(by_end.begin(), by_end.end(),
            [boxes, dim](uint32_t a, uint32_t b) { return boxes[a].end(dim) < boxes[b].end(dim); });
  std::map<int64_t, int64_t> active;  // begin -> end
  size_t ended = 0;
  for (uint32_t p : positions) {
    for (; boxes[by_end[ended]].end(dim) <= boxes[p].begin(dim); ++ended) {
      active.erase(boxes[by_end[ended]].begin(across));
    }
    const Interval interval = boxes[p].interval(across);
    const auto next = active.lower_bound(interval.begin);
    if (next != active.end() && next->first < interval.end) return true;
    if (next != active.begin() && std::prev(next)->second > interval.begin) return true;
    active.emplace_hint(next, interval.begin, interval.end);
  }
  return false;
}

// Where each run of boxes with one and the same interval in `dim` begins, after sorting by it;
// empty when different intervals overlap, so that the dimension does not separate the boxes.
std::vector<size_t> SlabsOf(std::span<const Box> boxes, Positions positions, int dim) {
  SortByBegin(boxes, positions, dim);
  std::vector<size_t> slabs{0};
  for (size_t i = 1; i < positions.size(); ++i) {
    const Interval before = boxes[positions[i - 1]].interval(dim);
    const Interval here = boxes[positions[i]].interval(dim);
    if (here == before) continue;
    if (here.begin < before.end) return {};
    slabs.push_back(i);
  }
  slabs.push_back(positions.size());
  return slabs;
}

// `dims`: the dimensions in which the boxes may still differ. Grids and every layout made of slabs
// lose a dimension a step; what is irregular in three or more goes to the tree.
bool AnyOverlap(std::span<const Box> boxes, Positions positions, std::span<const int> dims) {
  if (positions.size() < 2) return false;
  if (dims.empty()) return true;
  if (dims.size() == 1) return SweepLine(boxes, positions, dims[0]);
  if (dims.size() == 2) return SweepPlane(boxes, positions, dims[0], dims[1]);
  for (size_t i = 0; i < dims.size(); ++i) {
    const std::vector<size_t> slabs = SlabsOf(boxes, positions, dims[i]);
    if (slabs.empty()) continue;
    std::vector<int> rest(dims.begin(), dims.end());
    rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
    for (size_t s = 0; s + 1 < slabs.size(); ++s) {
      if (AnyOverlap(boxes, positions.subspan(slabs[s], slabs[s + 1] - slabs[s]), rest)) {
        return true;
      }
    }
    return false;
  }
  std::vector<Box> chosen;
  chosen.reserve(positions.size());
  for (uint32_t p : positions) chosen.push_back(boxes[p]);
  return BoxIndex(std::move(chosen)).AnyOverlap();
}

// Volumes and containment; all of exact cover but disjointness.
bool FillsIfDisjoint(const Box& container, std::span<const Box> boxes) {
  if (boxes.empty()) return false;
  const Volume wanted = container.volume();
  Volume sum = 0;
  for (const Box& box : boxes) {
    if (!container.Contains(box)) return false;
    sum = SaturatingAdd(sum, box.volume());
  }
  return sum == wanted && wanted != kVolumeMax;
}

}  // namespace

bool BoxesOverlap(std::span<const Box> boxes) {
  if (boxes.size() < 2) return false;
  std::vector<uint32_t> positions(boxes.size());
  std::iota(positions.begin(), positions.end(), 0u);
  std::vector<int> dims(static_cast<size_t>(boxes[0].rank()));
  std::iota(dims.begin(), dims.end(), 0);
  return AnyOverlap(boxes, positions, dims);
}

Result<bool> BoxesOverlapWithin(std::span<const Box> boxes, uint64_t pairwise_budget) {
  for (const Box& box : boxes) {
    if (box.rank() != boxes[0].rank()) {
      return InvalidArgument("boxes of different ranks: " + std::to_string(boxes[0].rank()) +
                             " and " + std::to_string(box.rank()));
    }
  }
  if (boxes.size() < 2 || boxes[0].rank() < 3) return BoxesOverlap(boxes);
  std::vector<uint32_t> positions(boxes.size());
  std::iota(positions.begin(), positions.end(), 0u);
  SortByBegin(boxes, positions, 0);
  std::vector<uint32_t> active;
  uint64_t compared = 0;
  for (uint32_t p : positions) {
    std::erase_if(active, [&](uint32_t a) { return boxes[a].end(0) <= boxes[p].begin(0); });
    compared += active.size();
    if (compared > pairwise_budget) {
      return InvalidArgument("high-dimensional overlap budget exceeded before validation");
    }
    for (uint32_t a : active) {
      if (boxes[a].Overlaps(boxes[p])) return true;
    }
    active.push_back(p);
  }
  return false;
}

bool BoxesExactlyCover(const Box& container, std::span<const Box> boxes) {
  return FillsIfDisjoint(container, boxes) && !BoxesOverlap(boxes);
}

Result<bool> BoxesExactlyCoverWithin(const Box& container, std::span<const Box> boxes,
                                     uint64_t pairwise_budget) {
  if (!FillsIfDisjoint(container, boxes)) return false;
  MC_ASSIGN_OR_RETURN(const bool overlap, BoxesOverlapWithin(boxes, pairwise_budget));
  return !overlap;
}

}  // namespace mooncake::geometry
