// Whether fragments' boxes overlap or tile their tensor: the contract's words over geometry's
// boxes.
//
// Internal to the folder. Dimensions that no fragment cuts are left out first: most tensors are cut
// along one dimension, and a tensor may have more dimensions than a geometry::Box holds. More than
// geometry::kMaxRank *cut* dimensions are refused (INVALID_ARGUMENT, our documented limit).
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

struct BoxView {
  std::span<const int64_t> offset;
  std::span<const int64_t> shape;
};

// All boxes have the rank of the first and extents >= 1; end coordinates fit in int64_t.
Result<bool> AnyOverlap(std::span<const BoxView> boxes);

// Every box lies inside `global_shape`. False for no boxes.
Result<bool> ExactlyTile(std::span<const int64_t> global_shape, std::span<const BoxView> boxes);

}  // namespace mooncake::manifest
