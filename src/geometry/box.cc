#include "geometry/box.h"

#include <algorithm>
#include <limits>

namespace mooncake::geometry {

Volume VolumeOf(std::span<const int64_t> shape) {
  Volume volume = 1;
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(volume, static_cast<Volume>(extent), &volume)) return kVolumeMax;
  }
  return volume;
}

Volume SaturatingAdd(Volume a, Volume b) { return a > kVolumeMax - b ? kVolumeMax : a + b; }

Volume Box::volume() const {
  Volume volume = 1;
  for (int d = 0; d < rank_; ++d) {
    if (__builtin_mul_overflow(volume, static_cast<Volume>(extent(d)), &volume)) return kVolumeMax;
  }
  return volume;
}

bool Box::Contains(const Box& inner) const {
  if (inner.rank_ != rank_) return false;
  for (int d = 0; d < rank_; ++d) {
    if (inner.begin_[d] < begin_[d] || inner.end_[d] > end_[d]) return false;
  }
  return true;
}

bool Box::Overlaps(const Box& other) const {
  if (other.rank_ != rank_) return false;
  for (int d = 0; d < rank_; ++d) {
    if (begin_[d] >= other.end_[d] || other.begin_[d] >= end_[d]) return false;
  }
  return true;
}

std::optional<Box> Box::Intersect(const Box& other) const {
  if (!Overlaps(other)) return std::nullopt;
  Box result;
  result.rank_ = rank_;
  for (int d = 0; d < rank_; ++d) {
    result.begin_[d] = std::max(begin_[d], other.begin_[d]);
    result.end_[d] = std::min(end_[d], other.end_[d]);
  }
  return result;
}

std::string Box::ToString() const {
  std::string text = "[";
  for (int d = 0; d < rank_; ++d) {
    if (d > 0) text += ", ";
    text += std::to_string(begin_[d]) + ":" + std::to_string(end_[d]);
  }
  return text + "]";
}

bool operator==(const Box& a, const Box& b) {
  return a.rank_ == b.rank_ &&
         std::equal(a.begin_.begin(), a.begin_.begin() + a.rank_, b.begin_.begin()) &&
         std::equal(a.end_.begin(), a.end_.begin() + a.rank_, b.end_.begin());
}

bool operator<(const Box& a, const Box& b) {
  if (a.rank_ != b.rank_) return a.rank_ < b.rank_;
  for (int d = 0; d < a.rank_; ++d) {
    if (a.begin_[d] != b.begin_[d]) return a.begin_[d] < b.begin_[d];
  }
  // With equal offsets, ends compare as extents do.
  for (int d = 0; d < a.rank_; ++d) {
    if (a.end_[d] != b.end_[d]) return a.end_[d] < b.end_[d];
  }
  return false;
}

Box UncheckedBox(std::span<const int64_t> offset, std::span<const int64_t> shape) {
  Box box;
  box.rank_ = static_cast<int>(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    box.begin_[d] = offset[d];
    box.end_[d] = offset[d] + shape[d];
  }
  return box;
}

Result<Box> MakeBox(std::span<const int64_t> offset, std::span<const int64_t> shape) {
  if (offset.size() != shape.size()) {
    return InvalidArgument("a box needs as many offsets as extents, got " +
                           std::to_string(offset.size()) + " and " + std::to_string(shape.size()));
  }
  if (shape.empty() || shape.size() > kMaxRank) {
    return InvalidArgument("a box has 1 to " + std::to_string(kMaxRank) + " dimensions, got " +
                           std::to_string(shape.size()));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 1) {
      return InvalidArgument("box extent of dimension " + std::to_string(d) +
                             " must be at least 1, got " + std::to_string(shape[d]));
    }
    int64_t end = 0;
    if (__builtin_add_overflow(offset[d], shape[d], &end)) {
      return InvalidArgument("box dimension " + std::to_string(d) + " leaves 64 bits: offset " +
                             std::to_string(offset[d]) + " plus extent " +
                             std::to_string(shape[d]));
    }
  }
  return UncheckedBox(offset, shape);
}

}  // namespace mooncake::geometry
