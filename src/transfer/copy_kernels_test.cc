#include "transfer/copy_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "transfer/test_memory.h"

namespace mooncake::transfer {
namespace {

class CopyKernelsTest : public testing::TestWithParam<const CopyKernels*> {
 protected:
  const CopyKernels& kernels() const { return *GetParam(); }
  std::mt19937_64 random_{TestSeed()};
};

// Bytes around a target that no kernel may touch.
constexpr size_t kGuard = 256;

// Runs the grid with both kernels and compares every byte of the target, the gaps included.
void ExpectExact(const CopyKernels& kernels, const std::vector<std::byte>& source, RunGrid grid,
                 uint64_t source_offset, uint64_t target_offset, uint64_t target_bytes,
                 std::mt19937_64& random) {
  const std::vector<std::byte> before = RandomBytes(random, target_bytes + 2 * kGuard + 64);
  for (const auto kernel : {kernels.copy, kernels.stream}) {
    std::vector<std::byte> target = before;
    std::vector<std::byte> expected = before;
    // The same alignment in every round, whatever the vector's memory has.
    const size_t align = (64 - reinterpret_cast<uintptr_t>(target.data()) % 64) % 64;
    const uint64_t base = align + kGuard + target_offset;
    for (uint64_t row = 0; row < grid.rows; ++row) {
      for (uint64_t column = 0; column < grid.columns; ++column) {
        const auto r = static_cast<int64_t>(row);
        const auto c = static_cast<int64_t>(column);
        for (uint64_t i = 0; i < grid.inner_bytes; ++i) {
          expected[base + r * grid.target_row_stride + c * grid.target_column_stride + i] =
              source[source_offset + r * grid.source_row_stride + c * grid.source_column_stride +
                     i];
        }
      }
    }
    grid.source = source.data() + source_offset;
    grid.target = target.data() + base;
    kernel(grid);
    FenceStreams();
    ASSERT_TRUE(target == expected)
        << kernels.name << " inner " << grid.inner_bytes << " rows " << grid.rows << " columns "
        << grid.columns << " at source " << source_offset << " target " << target_offset;
  }
}

TEST_P(CopyKernelsTest, EveryInnerSizeAndAlignment) {
  const std::vector<std::byte> source = RandomBytes(random_, 8192);
  for (uint64_t inner = 1; inner <= 300; ++inner) {
    for (uint64_t alignment = 0; alignment < 64; ++alignment) {
      const RunGrid grid{.inner_bytes = inner,
                         .columns = 3,
                         .source_column_stride = static_cast<int64_t>(inner + alignment % 7),
                         .target_column_stride = static_cast<int64_t>(inner + alignment % 5)};
      ExpectExact(kernels(), source, grid, (alignment * 13 + inner) % 64, alignment,
                  3 * (inner + 5) + 64, random_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CopyKernelsTest, LongRunsOfEveryAlignment) {
  const std::vector<std::byte> source = RandomBytes(random_, 70'000);
  for (const uint64_t inner :
       {511u, 512u, 1023u, 1024u, 1025u, 1087u, 4096u, 8191u, 8192u, 8193u, 65'536u}) {
    for (uint64_t alignment = 0; alignment<64; alignment += inner> 2000 ? 7 : 1) {
      ExpectExact(kernels(), source, {.inner_bytes = inner}, (alignment * 5) % 64, alignment,
                  inner + 64, random_);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(CopyKernelsTest, RandomGridsWithStridesOfBothSigns) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  const std::vector<std::byte> source = RandomBytes(random, 600'000);
  for (int round = 0; round < 500; ++round) {
    RunGrid grid;
    grid.inner_bytes = random() % 3 == 0 ? 64 * Between(random, 1, 5) : Between(random, 1, 1500);
    grid.rows = Between(random, 1, 6);
    grid.columns = Between(random, 1, 20);
    // Dense, line-aligned and odd targets, so that each way of streaming is met.
    const uint64_t gap = std::array<uint64_t, 3>{0, 64, Between(random, 0, 70)}[random() % 3];
    const uint64_t column = grid.inner_bytes + gap;
    const uint64_t row = column * grid.columns + (random() % 2 == 0 ? 0 : 64);
    const uint64_t source_column =
        random() % 4 == 0 ? 0 : grid.inner_bytes + Between(random, 0, 2000);
    const uint64_t source_row = random() % 4 == 0 ? 0 : Between(random, 1, 5000);
    grid.target_column_stride = static_cast<int64_t>(column);
    grid.target_row_stride = static_cast<int64_t>(row);
    grid.source_column_stride = static_cast<int64_t>(source_column);
    grid.source_row_stride = static_cast<int64_t>(source_row);
    const uint64_t source_span =
        grid.inner_bytes + (grid.columns - 1) * source_column + (grid.rows - 1) * source_row;
    uint64_t source_offset = Between(random, 0, source.size() - source_span);
    uint64_t target_offset = random() % 2 == 0 ? 0 : Between(random, 0, 63);
    const uint64_t target_bytes = target_offset + row * grid.rows;
    if (random() % 4 == 0) {
      source_offset += (grid.columns - 1) * source_column;
      grid.source_column_stride = -grid.source_column_stride;
    }
    if (random() % 4 == 0) {
      target_offset += (grid.rows - 1) * row;
      grid.target_row_stride = -grid.target_row_stride;
    }
    ExpectExact(kernels(), source, grid, source_offset, target_offset, target_bytes, random);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CopyKernelsTest, BlockDigestsAreTheLibrarys) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  std::vector<std::byte> memory = RandomBytes(random, kDigestBlockBytes + 200);
  for (uint64_t offset = 0; offset < 130; ++offset) {
    EXPECT_EQ(kernels().hash_block(memory.data() + offset),
              BlockDigestOf(memory.data() + offset, kDigestBlockBytes));
  }
  std::memset(memory.data(), 0, memory.size());
  EXPECT_EQ(kernels().hash_block(memory.data()), BlockDigestOf(memory.data(), kDigestBlockBytes));
  std::memset(memory.data(), 0xff, memory.size());
  EXPECT_EQ(kernels().hash_block(memory.data()), BlockDigestOf(memory.data(), kDigestBlockBytes));
}

TEST_P(CopyKernelsTest, HashAndStreamCopiesBesideTheDigest) {
  const std::vector<std::byte> block = RandomBytes(random_, kDigestBlockBytes + 64);
  const std::vector<std::byte> other = RandomBytes(random_, kDigestBlockBytes + 64);
  for (uint64_t alignment = 0; alignment < 64; ++alignment) {
    for (const std::vector<std::byte>* from : {&block, &other}) {
      std::vector<std::byte> target(kDigestBlockBytes + 2 * kGuard, std::byte{0x5a});
      const size_t at = kGuard + alignment;
      const std::byte* hashed = block.data() + alignment % 9;
      const std::byte* source = from->data() + alignment % 9;
      EXPECT_EQ(kernels().hash_and_stream(hashed, source, target.data() + at),
                BlockDigestOf(hashed, kDigestBlockBytes));
      FenceStreams();
      ASSERT_EQ(std::memcmp(target.data() + at, source, kDigestBlockBytes), 0) << alignment;
      for (size_t i = 0; i < target.size(); ++i) {
        const bool outside = i < at || i >= at + kDigestBlockBytes;
        ASSERT_TRUE(!outside || target[i] == std::byte{0x5a}) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CopyKernelsTest, testing::ValuesIn(AllKernelsOfThisCpu()),
                         [](const auto& param) { return std::string(param.param->name); });

TEST(KernelChoiceTest, TheFastestThatRunsHere) {
  EXPECT_EQ(&KernelsOfThisCpu(), AllKernelsOfThisCpu().back());
  EXPECT_EQ(AllKernelsOfThisCpu().front()->name, "portable");
}

}  // namespace
}  // namespace mooncake::transfer
