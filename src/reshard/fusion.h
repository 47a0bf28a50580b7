// Fusion: the copies out of one source object, as few as they can be.
//
// A plan has a region for each pair of fragments, in the contract's canonical form. Where fragments
// lie side by side in a source object (small ones in a pack, experts of a grouped tensor) and their
// targets do in one buffer (a flat parameter buffer, a grouped weight), their regions are pieces of
// one strided copy. Fusing needs addresses, so it happens to bound operations; the plan keeps its
// canonical regions. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "geometry/strided_region.h"
#include "reshard/bind.h"

namespace mooncake::reshard {

// One coalesced copy from a source object to target memory.
struct ObjectCopy {
  uint64_t buffer = 0;  // which target buffer (BoundOperation::target_buffer)
  // Source offsets from the object's first byte; the target's base offset is an address.
  geometry::StridedRegion region;
};
ObjectCopy CopyOf(const BoundOperation& operation);

// The same bytes to the same places by as few copies as neighbours of one buffer fuse to, by source
// offset. `copies` are of one object, and no two write the same target byte.
std::vector<ObjectCopy> FuseCopies(std::vector<ObjectCopy> copies);

}  // namespace mooncake::reshard
