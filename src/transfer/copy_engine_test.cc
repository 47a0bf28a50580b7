#include "transfer/copy_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "transfer/test_memory.h"

namespace mooncake::transfer {
namespace {

using testing::HasSubstr;

// Every thread count and both kinds of store.
std::vector<CopyEngineOptions> AllOptions() {
  return {{.threads = 1, .non_temporal_bytes_min = 0},
          {.threads = 1, .non_temporal_bytes_min = UINT64_MAX},
          {.threads = 3, .non_temporal_bytes_min = 0},
          {.threads = 3, .non_temporal_bytes_min = UINT64_MAX}};
}

TEST(CopyTest, RandomCutsOfEveryRankAgainstTheOracle) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  for (const CopyEngineOptions& options : AllOptions()) {
    CopyEngine engine(options);
    for (int round = 0; round < 90; ++round) {
      const uint64_t bytes_max = round % 10 == 0 ? 2'000'000 : 20'000;
      const RandomCut cut = MakeRandomCut(random, round % (kLoopsMax + 1),
                                          round % 3 == 0 ? 2000 : 70, bytes_max, true);
      const std::vector<std::byte> source = RandomBytes(random, cut.source_bytes);
      std::vector<std::byte> target = RandomBytes(random, cut.target_bytes);
      std::vector<std::byte> expected = target;
      ForEachRunOracle(cut.loops, cut.counts, cut.source_strides, cut.target_strides,
                       [&](int64_t s, int64_t t) {
                         for (uint64_t i = 0; i < cut.inner_bytes; ++i) {
                           expected[cut.target_offset + t + i] = source[cut.source_offset + s + i];
                         }
                       });
      const StridedCopy copy{.source = source.data() + cut.source_offset,
                             .target = target.data() + cut.target_offset,
                             .inner_bytes = cut.inner_bytes,
                             .loops = cut.loops,
                             .counts = cut.counts,
                             .source_strides = cut.source_strides,
                             .target_strides = cut.target_strides};
      ASSERT_TRUE(engine.Copy({&copy, 1}).ok());
      ASSERT_TRUE(target == expected) << "round " << round;
    }
  }
}

TEST(CopyTest, LargeBatchIsSplitAndWhole) {
  std::mt19937_64 random(1);
  // One run of some MiB, many tiny copies, and one with millions of runs, in one batch.
  const uint64_t kLong = (uint64_t{9} << 20) + 12'345;
  const uint64_t kRuns = 300'000;
  const std::vector<std::byte> source = RandomBytes(random, kLong);
  for (const CopyEngineOptions& options : AllOptions()) {
    CopyEngine engine(options);
    std::vector<std::byte> straight(kLong);
    std::vector<std::byte> strided(kRuns * 6);
    std::vector<std::byte> tiny(5'000 * 3);
    std::vector<StridedCopy> batch;
    batch.push_back({.source = source.data(), .target = straight.data(), .inner_bytes = kLong});
    for (size_t i = 0; i < 5'000; ++i) {
      batch.push_back(
          {.source = source.data() + 7 * i, .target = tiny.data() + 3 * i, .inner_bytes = 3});
    }
    batch.push_back({.source = source.data(),
                     .target = strided.data(),
                     .inner_bytes = 6,
                     .loops = 1,
                     .counts = {kRuns},
                     .source_strides = {30},
                     .target_strides = {6}});
    std::atomic<uint64_t> progress{0};
    ASSERT_TRUE(engine.Copy(batch, {.progress_bytes = &progress}).ok());
    EXPECT_EQ(progress, kLong + kRuns * 6 + 5'000 * 3);
    EXPECT_TRUE(straight == source);
    for (size_t i = 0; i < 5'000; ++i) {
      ASSERT_EQ(std::memcmp(&tiny[3 * i], &source[7 * i], 3), 0) << i;
    }
    for (size_t i = 0; i < kRuns; ++i) {
      ASSERT_EQ(std::memcmp(&strided[6 * i], &source[30 * i], 6), 0) << i;
    }
  }
}

TEST(CopyTest, NegativeAndZeroStrides) {
  std::mt19937_64 random(2);
  const std::vector<std::byte> source = RandomBytes(random, 4000);
  for (const CopyEngineOptions& options : AllOptions()) {
    CopyEngine engine(options);
    std::vector<std::byte> target(4000);
    // Runs of 4 in reverse order, and one run of 8 repeated.
    const std::vector<StridedCopy> batch = {{.source = source.data() + 3996,
                                             .target = target.data(),
                                             .inner_bytes = 4,
                                             .loops = 1,
                                             .counts = {500},
                                             .source_strides = {-4},
                                             .target_strides = {4}},
                                            {.source = source.data() + 100,
                                             .target = target.data() + 3992,
                                             .inner_bytes = 8,
                                             .loops = 1,
                                             .counts = {250},
                                             .source_strides = {0},
                                             .target_strides = {-8}}};
    ASSERT_TRUE(engine.Copy(batch).ok());
    for (size_t i = 0; i < 500; ++i) {
      ASSERT_EQ(std::memcmp(&target[4 * i], &source[3996 - 4 * i], 4), 0) << i;
    }
    for (size_t i = 0; i < 250; ++i) {
      ASSERT_EQ(std::memcmp(&target[3992 - 8 * i], &source[100], 8), 0) << i;
    }
  }
}

TEST(CopyTest, EmptyBatchesAndCopies) {
  CopyEngine engine({.threads = 2});
  EXPECT_EQ(engine.threads(), 2);
  EXPECT_TRUE(engine.Copy({}).ok());
  const std::vector<StridedCopy> nothing(3);
  std::atomic<uint64_t> progress{0};
  EXPECT_TRUE(engine.Copy(nothing, {.progress_bytes = &progress}).ok());
  EXPECT_EQ(progress, 0u);
}

TEST(CopyTest, RefusedBeforeAnyByteMoves) {
  CopyEngine engine({.threads = 1});
  const std::vector<std::byte> source(16, std::byte{1});
  std::vector<std::byte> target(16);
  const std::vector<StridedCopy> batch = {
      {.source = source.data(), .target = target.data(), .inner_bytes = 16},
      {.source = source.data(), .inner_bytes = 16}};
  const Status status = engine.Copy(batch);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("copy 1: target is null"));
  EXPECT_EQ(target, std::vector<std::byte>(16));
}

TEST(CopyTest, CancelledBeforeAndDuring) {
  for (const int threads : {1, 3}) {
    CopyEngine engine({.threads = threads});
    const std::vector<std::byte> source(uint64_t{8} << 20, std::byte{1});
    std::vector<std::byte> target(source.size());
    const StridedCopy copy{
        .source = source.data(), .target = target.data(), .inner_bytes = source.size()};
    std::atomic<bool> cancelled{true};
    std::atomic<uint64_t> progress{0};
    const Status status =
        engine.Copy({&copy, 1}, {.cancelled = &cancelled, .progress_bytes = &progress});
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_EQ(progress, 0u);
    EXPECT_EQ(target, std::vector<std::byte>(source.size()));

    // From another thread, as soon as the first piece was reported.
    cancelled = false;
    std::thread canceller([&] {
      while (progress == 0) std::this_thread::yield();
      cancelled = true;
    });
    Status during;
    do {
      during = engine.Copy({&copy, 1}, {.cancelled = &cancelled, .progress_bytes = &progress});
    } while (during.ok());
    canceller.join();
    EXPECT_EQ(during.code(), Code::kCancelled);
    cancelled = false;
    EXPECT_TRUE(engine.Copy({&copy, 1}, {.cancelled = &cancelled}).ok());
    EXPECT_EQ(target, source);
  }
}

// Case H4: one batch's bytes never end in another's target.
TEST(CopyTest, ManyConcurrentBatchesKeepApart) {
  CopyEngine engine({.threads = 2, .non_temporal_bytes_min = 1 << 18});
  std::vector<std::thread> callers;
  callers.reserve(8);
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&engine, caller] {
      std::mt19937_64 random(caller);
      const size_t bytes = 700'000;
      for (int round = 0; round < 25; ++round) {
        const std::vector<std::byte> source = RandomBytes(random, bytes);
        std::vector<std::byte> target(bytes);
        const uint64_t runs = 1000;
        const std::vector<StridedCopy> batch = {
            // The first half as columns, the second half as one run.
            {.source = source.data(),
             .target = target.data(),
             .inner_bytes = 350,
             .loops = 1,
             .counts = {runs},
             .source_strides = {350 * 2},
             .target_strides = {350}},
            {.source = source.data(), .target = target.data() + 350'000, .inner_bytes = 350'000}};
        ASSERT_TRUE(engine.Copy(batch).ok());
        for (uint64_t run = 0; run < runs; ++run) {
          ASSERT_EQ(std::memcmp(&target[350 * run], &source[700 * run], 350), 0);
        }
        ASSERT_EQ(std::memcmp(&target[350'000], source.data(), 350'000), 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(CopyTest, WorksInAForkedChild) {
  CopyEngine engine({.threads = 3});
  const std::vector<std::byte> source(uint64_t{3} << 20, std::byte{7});
  const pid_t child = ::fork();
  if (child == 0) {
    bool equal = false;
    {
      CopyEngine own({.threads = 1});
      std::vector<std::byte> target(source.size());
      const StridedCopy copy{
          .source = source.data(), .target = target.data(), .inner_bytes = source.size()};
      equal = engine.Copy({&copy, 1}).ok() && target == source;
    }
    ::_exit(equal ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace mooncake::transfer
