#include "pool/slab_space.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <vector>

namespace mooncake::pool {
namespace {

TEST(SlabSpaceTest, FindsTheSmallestRangeThatHoldsIt) {
  SlabSpace space(1000);
  ASSERT_TRUE(space.Take(100, 100));
  ASSERT_TRUE(space.Take(250, 50));
  // Free: [0,100) [200,250) [300,1000).
  EXPECT_EQ(space.Find(50), 200u);
  EXPECT_EQ(space.Find(51), 0u);
  EXPECT_EQ(space.Find(101), 300u);
  EXPECT_EQ(space.Find(701), std::nullopt);
  EXPECT_EQ(space.Find(0), std::nullopt);
  EXPECT_EQ(space.free_bytes(), 850u);
  EXPECT_EQ(space.largest_free(), 700u);
}

TEST(SlabSpaceTest, RefusesWhatIsTakenFreeOrOutside) {
  SlabSpace space(1000);
  ASSERT_TRUE(space.Take(100, 100));
  EXPECT_FALSE(space.Take(199, 1));
  EXPECT_FALSE(space.Take(50, 51));
  EXPECT_FALSE(space.Take(990, 11));
  EXPECT_FALSE(space.Take(0, 0));
  EXPECT_FALSE(space.Take(UINT64_MAX - 5, 10));
  EXPECT_FALSE(space.Free(99, 2));
  EXPECT_FALSE(space.Free(199, 2));
  EXPECT_FALSE(space.Free(0, 1001));
  EXPECT_FALSE(space.Free(500, 1));
  EXPECT_EQ(space.free_bytes(), 900u);
  EXPECT_TRUE(space.Free(100, 100));
  EXPECT_EQ(space.largest_free(), 1000u);
}

// Against an array that says of every byte whether it is free.
TEST(SlabSpaceTest, AgreesWithAnArrayOfBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr uint64_t kBytes = 256;
  SlabSpace space(kBytes);
  std::vector<bool> taken(kBytes, false);
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t offset = random() % kBytes;
    const uint64_t bytes = 1 + random() % 24;
    const bool inside = offset + bytes <= kBytes;
    bool all_taken = inside;
    bool all_free = inside;
    for (uint64_t i = offset; inside && i < offset + bytes; ++i) {
      (taken[i] ? all_free : all_taken) = false;
    }
    const bool take = random() % 2 == 0;
    ASSERT_EQ(take ? space.Take(offset, bytes) : space.Free(offset, bytes),
              take ? all_free : all_taken);
    if (take ? all_free : all_taken) {
      for (uint64_t i = offset; i < offset + bytes; ++i) taken[i] = take;
    }
    uint64_t free = 0;
    uint64_t run = 0;
    uint64_t largest = 0;
    for (const bool one : taken) {
      free += one ? 0 : 1;
      run = one ? 0 : run + 1;
      largest = std::max(largest, run);
    }
    ASSERT_EQ(space.free_bytes(), free);
    ASSERT_EQ(space.largest_free(), largest);
    const auto found = space.Find(bytes);
    ASSERT_EQ(found.has_value(), largest >= bytes);
    for (uint64_t i = 0; found && i < bytes; ++i) ASSERT_FALSE(taken[*found + i]);
  }
}

}  // namespace
}  // namespace mooncake::pool
