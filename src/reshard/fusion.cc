#include "reshard/fusion.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace mooncake::reshard {

ObjectCopy CopyOf(const BoundOperation& operation) {
  ObjectCopy copy{operation.target_buffer, geometry::Coalesced(operation.region)};
  copy.region.source_base_offset += operation.object_offset;
  copy.region.target_base_offset += operation.target_address;
  return copy;
}

std::vector<ObjectCopy> FuseCopies(std::vector<ObjectCopy> copies) {
  const auto by_source = [](const ObjectCopy& a, const ObjectCopy& b) {
    return std::tie(a.region.source_base_offset, a.region.target_base_offset) <
           std::tie(b.region.source_base_offset, b.region.target_base_offset);
  };
  std::sort(copies.begin(), copies.end(), [&](const ObjectCopy& a, const ObjectCopy& b) {
    return a.buffer != b.buffer ? a.buffer < b.buffer : by_source(a, b);
  });
  size_t kept = 0;
  for (const ObjectCopy& copy : copies) {
    if (kept > 0 && copies[kept - 1].buffer == copy.buffer &&
        geometry::Fuse(&copies[kept - 1].region, copy.region)) {
      continue;
    }
    copies[kept++] = copy;
  }
  copies.resize(kept);
  std::sort(copies.begin(), copies.end(), by_source);
  return copies;
}

}  // namespace mooncake::reshard
