// Explicit ownership from the fragments themselves, for callers that list who holds what only once.
//
// Pure. Nothing is checked: the tensor's own checks judge what comes out.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "manifest/types.h"

namespace mooncake::manifest {

// A fragment of one tensor, as a holding: `owner` is a participant.
struct HeldBox {
  int64_t tiling = 0;
  std::span<const int64_t> offset;
  std::span<const int64_t> shape;
  std::string_view owner;
};

// The tilings that these amount to, ascending by number; boxes and owners in canonical order. Boxes
// without elements are left out.
std::vector<OwnedTiling> TilingsOf(std::vector<HeldBox> held);

}  // namespace mooncake::manifest
