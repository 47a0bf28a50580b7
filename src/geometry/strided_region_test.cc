#include "geometry/strided_region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <tuple>
#include <vector>

namespace mooncake::geometry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<int64_t>;
using Segments = std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>;

Box B(Numbers offset, Numbers shape) { return *MakeBox(offset, shape); }

Segments SegmentsOf(const StridedRegion& region) {
  Segments segments;
  ForEachSegment(region,
                 [&](uint64_t s, uint64_t t, uint64_t n) { segments.emplace_back(s, t, n); });
  return segments;
}

// What the region copies, byte by byte in order.
std::vector<std::pair<uint64_t, uint64_t>> BytesOf(const StridedRegion& region) {
  std::vector<std::pair<uint64_t, uint64_t>> bytes;
  ForEachSegment(region, [&](uint64_t s, uint64_t t, uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) bytes.emplace_back(s + i, t + i);
  });
  return bytes;
}

// The oracle: where the element at `at` lies in the row-major buffer of `box`.
uint64_t ByteOf(const Box& box, const Numbers& at, uint64_t itemsize) {
  uint64_t position = 0;
  for (int d = 0; d < box.rank(); ++d) {
    position = position * static_cast<uint64_t>(box.extent(d)) +
               static_cast<uint64_t>(at[static_cast<size_t>(d)] - box.begin(d));
  }
  return position * itemsize;
}

std::vector<std::pair<uint64_t, uint64_t>> ExpectedBytes(const Box& source, const Box& target,
                                                         const Box& overlap, uint64_t itemsize) {
  std::vector<std::pair<uint64_t, uint64_t>> bytes;
  Numbers at;
  for (int d = 0; d < overlap.rank(); ++d) at.push_back(overlap.begin(d));
  while (true) {
    for (uint64_t i = 0; i < itemsize; ++i) {
      bytes.emplace_back(ByteOf(source, at, itemsize) + i, ByteOf(target, at, itemsize) + i);
    }
    int d = overlap.rank() - 1;
    for (; d >= 0; --d) {
      if (++at[static_cast<size_t>(d)] < overlap.end(d)) break;
      at[static_cast<size_t>(d)] = overlap.begin(d);
    }
    if (d < 0) return bytes;
  }
}

StridedRegion R(uint64_t source, uint64_t target, uint64_t inner,
                const std::vector<std::array<uint64_t, 3>>& loops = {}) {
  StridedRegion region;
  region.source_base_offset = source;
  region.target_base_offset = target;
  region.inner_bytes = inner;
  for (const auto& [count, source_stride, target_stride] : loops) {
    region.counts[region.loops] = count;
    region.source_strides[region.loops] = source_stride;
    region.target_strides[region.loops] = target_stride;
    ++region.loops;
  }
  return region;
}

StridedRegion Fused(StridedRegion a, const StridedRegion& b) {
  EXPECT_TRUE(Fuse(&a, b));
  return a;
}

TEST(Fuse, FourWaysToBeOneRegion) {
  // Runs that follow each other.
  EXPECT_EQ(Fused(R(0, 100, 8), R(8, 108, 4)), R(0, 100, 12));
  // More rounds of the same loop: one, and several.
  EXPECT_EQ(Fused(R(0, 0, 4, {{3, 10, 20}}), R(30, 60, 4)), R(0, 0, 4, {{4, 10, 20}}));
  EXPECT_EQ(Fused(R(0, 0, 4, {{3, 10, 20}}), R(30, 60, 4, {{2, 10, 20}})),
            R(0, 0, 4, {{5, 10, 20}}));
  // Wider runs of the same loop, up to a whole row.
  EXPECT_EQ(Fused(R(0, 0, 4, {{3, 10, 20}}), R(4, 4, 3, {{3, 10, 20}})), R(0, 0, 7, {{3, 10, 20}}));
  EXPECT_EQ(Fused(R(0, 0, 4, {{3, 10, 10}}), R(4, 4, 6, {{3, 10, 10}})), R(0, 0, 30));
  // The same again, further on.
  EXPECT_EQ(Fused(R(0, 0, 4, {{3, 10, 20}}), R(50, 90, 4, {{3, 10, 20}})),
            R(0, 0, 4, {{2, 50, 90}, {3, 10, 20}}));
  EXPECT_EQ(Fused(R(0, 0, 4), R(6, 9, 4)), R(0, 0, 4, {{2, 6, 9}}));
}

TEST(Fuse, WhatIsTwoRegionsStaysTwo) {
  const auto stays = [](StridedRegion a, const StridedRegion& b) {
    const StridedRegion before = a;
    return !Fuse(&a, b) && a == before;
  };
  EXPECT_TRUE(stays(R(0, 100, 8), R(12, 108, 4)));  // a gap, another length
  EXPECT_TRUE(stays(R(0, 100, 8), R(8, 92, 8)));    // backwards in the target
  EXPECT_TRUE(stays(R(8, 100, 8), R(0, 108, 8)));   // backwards in the source
  EXPECT_TRUE(stays(R(0, 0, 8), R(4, 8, 8)));       // the same source bytes twice
  // Rounds would reach into each other.
  EXPECT_TRUE(stays(R(0, 0, 4, {{3, 10, 20}}), R(5, 50, 4, {{3, 10, 20}})));
  EXPECT_TRUE(stays(R(0, 0, 4, {{3, 6, 20}}), R(4, 4, 4, {{3, 6, 20}})));
  // No loop is left for one more around.
  std::vector<std::array<uint64_t, 3>> loops;
  for (uint64_t l = 0; l < kMaxRank; ++l) {
    const uint64_t stride = uint64_t{1} << (4 * (kMaxRank - l));
    loops.push_back({2, stride, stride});
  }
  const uint64_t step = uint64_t{1} << 50;
  EXPECT_TRUE(stays(R(0, 0, 4, loops), R(step, step, 4, loops)));
}

TEST(StridedRegionTest, KeepsLoopsOfOneRound) {
  // The contract's own example.
  const StridedRegion region =
      CanonicalRegion(B({0, 0, 0}, {4, 1, 8}), B({0, 0, 0}, {4, 1, 4}), B({0, 0, 0}, {4, 1, 4}), 2);
  EXPECT_EQ(region.loops, 2);
  EXPECT_EQ(region.inner_bytes, 8u);
  EXPECT_THAT(std::vector(region.counts.begin(), region.counts.begin() + 2), ElementsAre(4, 1));
  EXPECT_EQ(region.segment_count(), 4u);
  const StridedRegion coalesced = Coalesced(region);
  EXPECT_EQ(coalesced.loops, 1);
  EXPECT_EQ(BytesOf(coalesced), BytesOf(region));
}

TEST(StridedRegionTest, FoldsWhileBothSidesAreDense) {
  const Box whole = B({0, 0, 0}, {4, 6, 8});
  const StridedRegion same = CanonicalRegion(whole, whole, whole, 2);
  EXPECT_EQ(same.loops, 0);
  EXPECT_EQ(same.inner_bytes, 4u * 6 * 8 * 2);
  EXPECT_EQ(SegmentsOf(same), (Segments{{0, 0, 384}}));
  // Rows 2..3 of the source's six, into a target that has only those.
  const StridedRegion rows =
      CanonicalRegion(whole, B({0, 2, 0}, {4, 2, 8}), B({0, 2, 0}, {4, 2, 8}), 2);
  EXPECT_EQ(SegmentsOf(rows), (Segments{{32, 0, 32}, {128, 32, 32}, {224, 64, 32}, {320, 96, 32}}));
}

TEST(StridedRegionTest, CoalescesOuterLoops) {
  // Both sides keep dims 0 and 1 whole and cut dim 2: two loops with one gap.
  const StridedRegion region =
      CanonicalRegion(B({0, 0, 0}, {3, 4, 8}), B({0, 0, 0}, {3, 4, 2}), B({0, 0, 0}, {3, 4, 2}), 1);
  EXPECT_EQ(region.loops, 2);
  const StridedRegion coalesced = Coalesced(region);
  EXPECT_EQ(coalesced.loops, 1);
  EXPECT_EQ(coalesced.counts[0], 12u);
  EXPECT_EQ(BytesOf(coalesced), BytesOf(region));
}

TEST(StridedRegionTest, BoundsNameTheSideAndBothValues) {
  const StridedRegion region =
      CanonicalRegion(B({0, 0}, {4, 8}), B({0, 0}, {4, 4}), B({0, 0}, {4, 4}), 2);
  EXPECT_EQ(region.source_end(), 3u * 16 + 8);
  EXPECT_EQ(region.target_end(), 32u);
  EXPECT_TRUE(ValidateBounds(region, 56, 32).ok());
  EXPECT_THAT(ValidateBounds(region, 55, 32).message(),
              HasSubstr("transfer region exceeds source fragment: ends at byte 56 of 55"));
  EXPECT_THAT(ValidateBounds(region, 64, 31).message(),
              HasSubstr("transfer region exceeds target fragment: ends at byte 32 of 31"));
}

TEST(StridedRegionTest, EndsDoNotWrap) {
  StridedRegion region;
  region.source_base_offset = UINT64_MAX - 1;
  region.inner_bytes = 8;
  region.loops = 1;
  region.counts[0] = UINT64_MAX;
  region.target_strides[0] = UINT64_MAX;
  EXPECT_EQ(region.source_end(), UINT64_MAX);
  EXPECT_EQ(region.target_end(), UINT64_MAX);
  EXPECT_FALSE(ValidateBounds(region, 100, 100).ok());
}

// Coalesced regions that together copy these bytes, in whatever order.
bool CopySameBytes(const std::vector<StridedRegion>& regions,
                   std::vector<std::pair<uint64_t, uint64_t>> expected) {
  std::vector<std::pair<uint64_t, uint64_t>> together;
  for (const StridedRegion& region : regions) {
    if (!(Coalesced(region) == region)) return false;
    const auto bytes = BytesOf(region);
    together.insert(together.end(), bytes.begin(), bytes.end());
  }
  std::sort(together.begin(), together.end());
  std::sort(expected.begin(), expected.end());
  return together == expected;
}

RC_GTEST_PROP(StridedRegionProperty, CopiesTheElementsOfTheOverlap, ()) {
  std::mt19937_64 random(*rc::gen::noShrink(rc::gen::arbitrary<uint64_t>()));
  const int rank = 1 + static_cast<int>(random() % kMaxRank);
  const uint64_t itemsize = 1 + random() % 4;
  const uint64_t extent_max = rank <= 4 ? 6 : 3;
  // Two boxes around one overlap.
  Numbers overlap_at, overlap_shape, at[2], shape[2];
  for (int d = 0; d < rank; ++d) {
    overlap_at.push_back(3 + static_cast<int64_t>(random() % 5));
    overlap_shape.push_back(1 + static_cast<int64_t>(random() % extent_max));
    for (int side = 0; side < 2; ++side) {
      const auto before = static_cast<int64_t>(random() % 2);
      const auto after = static_cast<int64_t>(random() % 2);
      at[side].push_back(overlap_at.back() - before);
      shape[side].push_back(overlap_shape.back() + before + after);
    }
  }
  const Box source = B(at[0], shape[0]);
  const Box target = B(at[1], shape[1]);
  const Box overlap = B(overlap_at, overlap_shape);
  const StridedRegion region = CanonicalRegion(source, target, overlap, itemsize);
  const auto expected = ExpectedBytes(source, target, overlap, itemsize);
  RC_ASSERT(BytesOf(region) == expected);
  RC_ASSERT(BytesOf(Coalesced(region)) == expected);
  RC_ASSERT(region.total_bytes() == expected.size());
  RC_ASSERT(region.segment_count() == SegmentsOf(region).size());
  const RegionSummary summary = SummarizeRegion(source, target, overlap, itemsize);
  RC_ASSERT(summary.segment_count == region.segment_count());
  RC_ASSERT(summary.target_base_offset == region.target_base_offset);
  uint64_t source_end = 0;
  uint64_t target_end = 0;
  for (const auto& [s, t] : expected) {
    source_end = std::max(source_end, s + 1);
    target_end = std::max(target_end, t + 1);
  }
  RC_ASSERT(region.source_end() == source_end);
  RC_ASSERT(region.target_end() == target_end);
  RC_ASSERT(ValidateBounds(region, static_cast<uint64_t>(source.volume()) * itemsize,
                           static_cast<uint64_t>(target.volume()) * itemsize)
                .ok());
  // Coalescing leaves no loop that could join its neighbour.
  const StridedRegion coalesced = Coalesced(region);
  RC_ASSERT(Coalesced(coalesced) == coalesced);
  RC_ASSERT(coalesced.loops <= region.loops);
  for (int l = 0; l < coalesced.loops; ++l) RC_ASSERT(coalesced.counts[l] > 1u);

  // Splitting: the same bytes in the same order, each piece within the limit, few pieces.
  const uint64_t max_bytes = 1 + random() % (expected.size() + 2);
  std::vector<std::pair<uint64_t, uint64_t>> pieced;
  uint64_t pieces = 0;
  std::vector<StridedRegion> fused;
  RegionSplitter splitter(random() % 2 == 0 ? region : coalesced, max_bytes);
  const uint64_t piece_count = splitter.piece_count();
  for (; !splitter.done(); ++pieces) {
    const StridedRegion piece = splitter.Next();
    RC_ASSERT(piece.total_bytes() <= max_bytes);
    if (fused.empty() || !Fuse(&fused.back(), Coalesced(piece))) fused.push_back(Coalesced(piece));
    const auto bytes = BytesOf(piece);
    pieced.insert(pieced.end(), bytes.begin(), bytes.end());
  }
  RC_ASSERT(pieced == expected);
  RC_ASSERT(pieces == piece_count);
  RC_ASSERT(fused.size() <= pieces);
  RC_ASSERT(CopySameBytes(fused, expected));
  RC_ASSERT(max_bytes < expected.size() || pieces == 1u);
}

}  // namespace
}  // namespace mooncake::geometry
