#include "manifest/tiling.h"

#include <fmt/format.h>

#include <vector>

#include "geometry/box.h"
#include "geometry/cover.h"

namespace mooncake::manifest {

namespace {

// Dimensions along which not all boxes have the same interval.
std::vector<size_t> CutDims(std::span<const BoxView> boxes) {
  std::vector<size_t> cut;
  const BoxView& first = boxes[0];
  for (size_t dim = 0; dim < first.shape.size(); ++dim) {
    for (const BoxView& box : boxes) {
      if (box.offset[dim] == first.offset[dim] && box.shape[dim] == first.shape[dim]) continue;
      cut.push_back(dim);
      break;
    }
  }
  return cut;
}

Result<std::vector<geometry::Box>> BoxesAlong(std::span<const size_t> dims,
                                              std::span<const BoxView> boxes) {
  if (dims.size() > static_cast<size_t>(geometry::kMaxRank)) {
    return InvalidArgument(
        fmt::format("fragments of one tensor are cut along {} dimensions; at most {} are supported",
                    dims.size(), geometry::kMaxRank));
  }
  std::vector<geometry::Box> result;
  result.reserve(boxes.size());
  Extents offset(dims.size());
  Extents shape(dims.size());
  for (const BoxView& box : boxes) {
    for (size_t i = 0; i < dims.size(); ++i) {
      offset[i] = box.offset[dims[i]];
      shape[i] = box.shape[dims[i]];
    }
    result.push_back(geometry::UncheckedBox(offset, shape));
  }
  return result;
}

}  // namespace

Result<bool> AnyOverlap(std::span<const BoxView> boxes) {
  if (boxes.size() < 2) return false;
  const std::vector<size_t> dims = CutDims(boxes);
  if (dims.empty()) return true;  // the same box twice
  MC_ASSIGN_OR_RETURN(const std::vector<geometry::Box> cut, BoxesAlong(dims, boxes));
  return geometry::BoxesOverlap(cut);
}

Result<bool> ExactlyTile(std::span<const int64_t> global_shape, std::span<const BoxView> boxes) {
  if (boxes.empty()) return false;
  const std::vector<size_t> dims = CutDims(boxes);
  size_t next_cut = 0;
  for (size_t dim = 0; dim < global_shape.size(); ++dim) {
    if (next_cut < dims.size() && dims[next_cut] == dim) {
      ++next_cut;
    } else if (boxes[0].offset[dim] != 0 || boxes[0].shape[dim] != global_shape[dim]) {
      return false;  // no box reaches the rest of this dimension
    }
  }
  if (dims.empty()) return boxes.size() == 1;
  MC_ASSIGN_OR_RETURN(const std::vector<geometry::Box> cut, BoxesAlong(dims, boxes));
  Extents origin(dims.size(), 0);
  Extents extents(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) extents[i] = global_shape[dims[i]];
  return geometry::BoxesExactlyCover(geometry::UncheckedBox(origin, extents), cut);
}

}  // namespace mooncake::manifest
