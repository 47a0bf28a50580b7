#include "transfer/strided_walk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "transfer/test_memory.h"

namespace mooncake::transfer {
namespace {

using testing::HasSubstr;

const std::function<std::string()> kName = [] { return std::string("copy 7"); };

// Target byte -> source byte, both as offsets from the cut's bases.
using ByteMap = std::map<int64_t, int64_t>;

ByteMap BytesOf(const StridedWalk& walk, const std::byte* source, const std::byte* target) {
  ByteMap bytes;
  ForEachRunOracle(
      walk.loops, walk.counts, walk.source_strides, walk.target_strides, [&](int64_t s, int64_t t) {
        for (uint64_t i = 0; i < walk.inner_bytes; ++i) {
          const auto at = static_cast<int64_t>(i);
          const bool fresh =
              bytes.emplace(walk.target - target + t + at, walk.source - source + s + at).second;
          EXPECT_TRUE(fresh) << "a target byte written twice";
        }
      });
  return bytes;
}

StridedCopy CopyOf(const RandomCut& cut, const std::byte* source, std::byte* target) {
  return {.source = source + cut.source_offset,
          .target = target + cut.target_offset,
          .inner_bytes = cut.inner_bytes,
          .loops = cut.loops,
          .counts = cut.counts,
          .source_strides = cut.source_strides,
          .target_strides = cut.target_strides};
}

TEST(MakeWalkTest, RefusesWhatCannotBe) {
  std::byte byte{};
  StridedCopy copy{.source = &byte, .target = &byte, .inner_bytes = 1, .loops = 9};
  EXPECT_THAT(MakeWalk(copy, kName).status().ToString(),
              HasSubstr("INVALID_ARGUMENT: copy 7: loops must be 0 to 8, got 9"));
  copy.loops = -1;
  EXPECT_FALSE(MakeWalk(copy, kName).ok());
  copy.loops = 2;
  copy.counts = {uint64_t{1} << 40, uint64_t{1} << 40};
  EXPECT_THAT(MakeWalk(copy, kName).status().message(), HasSubstr("beyond 2^63"));
  copy.counts = {2, 2};
  copy.source_strides = {INT64_MAX, 1};
  EXPECT_THAT(MakeWalk(copy, kName).status().message(), HasSubstr("beyond 2^63"));
  copy.source_strides = {INT64_MIN, 1};
  EXPECT_THAT(MakeWalk(copy, kName).status().message(), HasSubstr("beyond 2^63"));
  copy.source_strides = {};
  copy.inner_bytes = uint64_t{1} << 63;
  copy.loops = 0;
  EXPECT_THAT(MakeWalk(copy, kName).status().message(), HasSubstr("beyond 2^63"));
  copy.inner_bytes = 1;
  copy.source = nullptr;
  EXPECT_THAT(MakeWalk(copy, kName).status().message(), HasSubstr("copy 7: source is null"));
  copy.source = &byte;
  copy.target = nullptr;
  EXPECT_THAT(MakeWalk(copy, kName).status().message(), HasSubstr("copy 7: target is null"));
}

TEST(MakeWalkTest, NothingToCopyNeedsNoPointers) {
  StridedCopy copy;
  EXPECT_EQ(MakeWalk(copy, kName)->inner_bytes, 0u);
  copy = {.inner_bytes = 5, .loops = 2, .counts = {uint64_t{1} << 63, 0}};
  const auto walk = MakeWalk(copy, kName);
  ASSERT_TRUE(walk.ok());
  EXPECT_EQ(walk->inner_bytes, 0u);
  EXPECT_EQ(walk->total_bytes(), 0u);
}

TEST(MakeWalkTest, CoalescesToTheFewestLoops) {
  std::byte byte{};
  const auto dense = MakeWalk({.source = &byte,
                               .target = &byte,
                               .inner_bytes = 4,
                               .loops = 4,
                               .counts = {2, 3, 1, 5},
                               .source_strides = {60, 20, 999, 4},
                               .target_strides = {60, 20, -7, 4}},
                              kName);
  ASSERT_TRUE(dense.ok());
  EXPECT_EQ(dense->loops, 0);
  EXPECT_EQ(dense->inner_bytes, 120u);
  const auto pitched = MakeWalk({.source = &byte,
                                 .target = &byte,
                                 .inner_bytes = 4,
                                 .loops = 3,
                                 .counts = {2, 3, 5},
                                 .source_strides = {150, 50, 4},
                                 .target_strides = {60, 20, 4}},
                                kName);
  ASSERT_TRUE(pitched.ok());
  EXPECT_EQ(pitched->loops, 1);
  EXPECT_EQ(pitched->inner_bytes, 20u);
  EXPECT_EQ(pitched->counts[0], 6u);
}

TEST(StridedWalkTest, EveryFormCopiesTheSameBytes) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  std::vector<std::byte> memory(1 << 20);
  for (int round = 0; round < 400; ++round) {
    const int loops = round % (kLoopsMax + 1);
    const RandomCut cut = MakeRandomCut(random, loops, 9, 2000, true);
    const StridedCopy copy = CopyOf(cut, memory.data(), memory.data());
    const auto walk = MakeWalk(copy, kName);
    ASSERT_TRUE(walk.ok());
    StridedWalk raw{.source = copy.source,
                    .target = copy.target,
                    .inner_bytes = copy.inner_bytes,
                    .loops = copy.loops,
                    .counts = copy.counts,
                    .source_strides = copy.source_strides,
                    .target_strides = copy.target_strides};
    const ByteMap expected = BytesOf(raw, memory.data(), memory.data());
    ASSERT_EQ(expected.size(), raw.total_bytes());
    EXPECT_EQ(BytesOf(*walk, memory.data(), memory.data()), expected);
    EXPECT_EQ(BytesOf(BySource(*walk), memory.data(), memory.data()), expected);
    EXPECT_EQ(BytesOf(ByTarget(*walk), memory.data(), memory.data()), expected);
    EXPECT_LE(walk->loops, loops);
  }
}

// Every window [begin, end) of both orders holds exactly the bytes whose position lies in it.
TEST(ForEachCutTest, AgreesWithTheOracleAtEveryWindow) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  std::vector<std::byte> memory(1 << 20);
  const std::byte* base = memory.data();
  for (int round = 0; round < 300; ++round) {
    const RandomCut cut = MakeRandomCut(random, round % (kLoopsMax + 1), 7, 300, false);
    const auto made = MakeWalk(CopyOf(cut, memory.data(), memory.data()), kName);
    ASSERT_TRUE(made.ok());
    const StridedWalk walk = BySource(*made);
    WalkAxis source_axis;
    ASSERT_TRUE(WalkAxis::Source(walk, &source_axis));
    const WalkAxis stream_axis = WalkAxis::Stream(walk);

    // Positions of every byte in both orders, by the oracle.
    std::vector<std::pair<uint64_t, std::pair<int64_t, int64_t>>> by_source;
    std::vector<std::pair<uint64_t, std::pair<int64_t, int64_t>>> by_stream;
    ForEachRunOracle(walk.loops, walk.counts, walk.source_strides, walk.target_strides,
                     [&](int64_t s, int64_t t) {
                       for (uint64_t i = 0; i < walk.inner_bytes; ++i) {
                         const auto at = static_cast<int64_t>(i);
                         const std::pair pair(walk.target - base + t + at,
                                              walk.source - base + s + at);
                         by_source.emplace_back(static_cast<uint64_t>(s + at), pair);
                         by_stream.emplace_back(by_stream.size(), pair);
                       }
                     });
    const uint64_t source_span = by_source.back().first + 1;
    for (int window = 0; window < 40; ++window) {
      const bool stream = window % 2 == 0;
      const uint64_t span = stream ? by_stream.size() : source_span;
      const uint64_t begin = Between(random, 0, span - 1);
      const uint64_t end = Between(random, begin, span + 5);
      ByteMap expected;
      for (const auto& [position, pair] : stream ? by_stream : by_source) {
        if (position >= begin && position < end) expected.insert(pair);
      }
      ByteMap found;
      size_t parts = 0;
      ForEachCut(walk, stream ? stream_axis : source_axis, begin, end,
                 [&](const StridedWalk& part) {
                   ++parts;
                   EXPECT_GT(part.inner_bytes, 0u);
                   for (const auto& pair : BytesOf(part, base, base)) {
                     EXPECT_TRUE(found.insert(pair).second) << "a byte cut twice";
                   }
                 });
      ASSERT_EQ(found, expected) << "window [" << begin << ", " << end << ")";
      EXPECT_LE(parts, static_cast<size_t>(2 * walk.loops + 1));
    }
  }
}

TEST(WalkAxisTest, SourceRefusesOverlapsAndBackwardSteps) {
  std::byte byte{};
  const auto nested = [&](std::array<uint64_t, kLoopsMax> counts,
                          std::array<int64_t, kLoopsMax> strides) {
    const auto walk = MakeWalk({.source = &byte,
                                .target = &byte,
                                .inner_bytes = 4,
                                .loops = 2,
                                .counts = counts,
                                .source_strides = strides,
                                .target_strides = {1000, 100}},
                               kName);
    MC_CHECK(walk.ok());
    WalkAxis axis;
    return WalkAxis::Source(BySource(*walk), &axis);
  };
  EXPECT_TRUE(nested({3, 3}, {100, 10}));
  EXPECT_TRUE(nested({3, 3}, {10, 100}));
  EXPECT_TRUE(nested({3, 3}, {24, 10}));
  EXPECT_FALSE(nested({3, 3}, {23, 10}));
  EXPECT_FALSE(nested({3, 3}, {100, 3}));
  EXPECT_FALSE(nested({3, 3}, {100, 0}));
  EXPECT_FALSE(nested({3, 3}, {100, -10}));
  EXPECT_TRUE(nested({3, 1}, {100, 0})) << "a single round has no stride";
}

}  // namespace
}  // namespace mooncake::transfer
