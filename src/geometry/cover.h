// Do boxes overlap, and do they tile a container exactly?
//
// Pure. Sorted sweeps: a set of n boxes costs about n log n, never n * n, in any number of
// dimensions (irregular sets of three and more dimensions go through BoxIndex). All boxes of one
// call have the same rank.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "geometry/box.h"

namespace mooncake::geometry {

// Whether some two of the boxes share an element.
bool BoxesOverlap(std::span<const Box> boxes);

// The public geometry face: the same answer, but sets of three and more dimensions are swept along
// dimension 0 with at most `pairwise_budget` comparisons. INVALID_ARGUMENT "high-dimensional
// overlap budget exceeded before validation" beyond it, and for boxes of different ranks.
Result<bool> BoxesOverlapWithin(std::span<const Box> boxes, uint64_t pairwise_budget);

// Whether the boxes are disjoint, inside `container`, and fill it. False for no boxes.
bool BoxesExactlyCover(const Box& container, std::span<const Box> boxes);

// The public geometry face of BoxesExactlyCover, with the budget of BoxesOverlapWithin.
Result<bool> BoxesExactlyCoverWithin(const Box& container, std::span<const Box> boxes,
                                     uint64_t pairwise_budget);

}  // namespace mooncake::geometry
