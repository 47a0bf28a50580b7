// Interval and Box: the half-open ranges of whole numbers that everything logical is measured in.
//
// Values of at most kMaxRank dimensions, held inline. A Box knows nothing of tensors, dtypes or
// bytes. Invariants of a made Box: 1 <= rank <= kMaxRank, every extent >= 1, and offset + extent
// does not leave int64_t. Only MakeBox takes unchecked numbers; Intersect keeps the invariants.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"

namespace mooncake::geometry {

// The planner's documented limit; more dimensions are INVALID_ARGUMENT.
inline constexpr int kMaxRank = 8;

// [begin, end)
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t length() const { return end - begin; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

constexpr bool Overlaps(Interval a, Interval b) { return a.begin < b.end && b.begin < a.end; }

// Wide enough for the volume of a Box in elements: eight extents may leave 64 bits. Saturates.
__extension__ using Volume = unsigned __int128;
inline constexpr Volume kVolumeMax = ~Volume{0};

class Box {
 public:
  Box() = default;

  int rank() const { return rank_; }
  int64_t begin(int dim) const { return begin_[dim]; }
  int64_t end(int dim) const { return end_[dim]; }
  int64_t extent(int dim) const { return end_[dim] - begin_[dim]; }
  Interval interval(int dim) const { return {begin_[dim], end_[dim]}; }

  // Elements; kVolumeMax when 128 bits do not hold it.
  Volume volume() const;
  bool Contains(const Box& inner) const;
  bool Overlaps(const Box& other) const;
  // Empty when the boxes have no element in common. Both have the same rank.
  std::optional<Box> Intersect(const Box& other) const;

  // "[0:4, 2:8]", for messages.
  std::string ToString() const;

  friend bool operator==(const Box& a, const Box& b);
  // By rank, then offsets, then extents.
  friend bool operator<(const Box& a, const Box& b);

 private:
  friend Result<Box> MakeBox(std::span<const int64_t> offset, std::span<const int64_t> shape);
  friend Box UncheckedBox(std::span<const int64_t> offset, std::span<const int64_t> shape);

  int rank_ = 0;
  std::array<int64_t, kMaxRank> begin_{};
  std::array<int64_t, kMaxRank> end_{};
};

// INVALID_ARGUMENT unless the invariants above hold and offset and shape have the same length.
Result<Box> MakeBox(std::span<const int64_t> offset, std::span<const int64_t> shape);

// For numbers that were proved to be a Box before (a made placement's fragment in a tensor of at
// most kMaxRank dimensions).
Box UncheckedBox(std::span<const int64_t> offset, std::span<const int64_t> shape);

// Product of extents >= 0, saturating.
Volume VolumeOf(std::span<const int64_t> shape);
Volume SaturatingAdd(Volume a, Volume b);

}  // namespace mooncake::geometry
