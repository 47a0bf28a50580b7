#include "client/fragment_source.h"

#include <string>

namespace mooncake::client {
namespace {

std::string Name(const manifest::PlacementFragment& fragment) {
  return "fragment " + fragment.placement_fragment_id + " of " + fragment.tensor_id;
}

}  // namespace

Result<transfer::StridedSource> MakeStridedSource(const manifest::PlacementFragment& fragment,
                                                  const FragmentSource& source) {
  if (source.nbytes != fragment.nbytes) {
    return InvalidArgument(Name(fragment) + ": expected " + std::to_string(fragment.nbytes) +
                           " bytes, got " + std::to_string(source.nbytes));
  }
  if (fragment.is_empty()) return transfer::StridedSource();  // a fact; nothing is read
  if (source.address == nullptr) return InvalidArgument(Name(fragment) + " has no address");
  transfer::StridedSource made;
  made.data = static_cast<const std::byte*>(source.address);
  made.inner_bytes = fragment.nbytes;
  if (source.strides_bytes.empty()) return made;

  const manifest::Extents& shape = fragment.local_shape;
  if (source.strides_bytes.size() != shape.size()) {
    return InvalidArgument(Name(fragment) + ": expected " + std::to_string(shape.size()) +
                           " strides, got " + std::to_string(source.strides_bytes.size()));
  }
  uint64_t elements = 1;
  for (const int64_t extent : shape) elements *= static_cast<uint64_t>(extent);
  made.inner_bytes = fragment.nbytes / elements;
  // From the innermost dimension out: one that continues the run joins it, one that continues the
  // loop inside it joins that.
  std::array<uint64_t, transfer::kLoopsMax> counts{};
  std::array<int64_t, transfer::kLoopsMax> strides{};
  int loops = 0;
  for (size_t dim = shape.size(); dim-- > 0;) {
    const auto count = static_cast<uint64_t>(shape[dim]);
    const int64_t stride = source.strides_bytes[dim];
    if (stride < 0) {
      return InvalidArgument(Name(fragment) + ": stride of dimension " + std::to_string(dim) +
                             " must not be negative, got " + std::to_string(stride));
    }
    if (count == 1) continue;
    const auto unsigned_stride = static_cast<uint64_t>(stride);
    if (loops == 0 && unsigned_stride == made.inner_bytes) {
      made.inner_bytes *= count;
    } else if (loops > 0 &&
               unsigned_stride == counts[loops - 1] * static_cast<uint64_t>(strides[loops - 1])) {
      counts[loops - 1] *= count;
    } else if (loops == transfer::kLoopsMax) {
      return Unsupported(Name(fragment) + ": more than " + std::to_string(transfer::kLoopsMax) +
                         " strided dimensions");
    } else {
      counts[loops] = count;
      strides[loops++] = stride;
    }
  }
  made.loops = loops;
  for (int i = 0; i < loops; ++i) {
    made.counts[i] = counts[loops - 1 - i];
    made.strides[i] = strides[loops - 1 - i];
  }
  return made;
}

}  // namespace mooncake::client
