// Do strided views of one address space share a byte?
//
// Internal to the folder. Exact for views that the same strides make (column slices and interleaved
// rows of one buffer, whole rows beside them); otherwise it may say yes where no byte is shared,
// never no where one is.
#pragma once

#include <optional>
#include <span>

#include "manifest/types.h"

namespace mooncake::manifest {

struct ViewPair {
  const RuntimeBindingFragment* a = nullptr;
  const RuntimeBindingFragment* b = nullptr;
};

// Two of the views that share bytes or cannot be proved not to; empty when all are apart. The views
// are made ones.
std::optional<ViewPair> FindOverlappingViews(std::span<const RuntimeBindingFragment* const> views);

}  // namespace mooncake::manifest
