// CopyEngine::WritePayloads against objects assembled byte by byte.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "transfer/copy_engine.h"
#include "transfer/test_memory.h"

namespace mooncake::transfer {
namespace {

using testing::HasSubstr;

std::vector<BlockDigest> DigestsOf(const std::vector<std::byte>& object) {
  std::vector<BlockDigest> digests;
  for (uint64_t offset = 0; offset < object.size(); offset += kDigestBlockBytes) {
    digests.push_back(
        BlockDigestOf(object.data() + offset, std::min(kDigestBlockBytes, object.size() - offset)));
  }
  return digests;
}

// A source with its own memory, and its bytes in stream order by the oracle.
struct Fragment {
  std::vector<std::byte> memory;
  StridedSource source;
  std::vector<std::byte> stream;
};

Fragment MakeFragment(std::mt19937_64& random, int loops, uint64_t inner_max, uint64_t bytes_max) {
  const RandomCut cut = MakeRandomCut(random, loops, inner_max, bytes_max, true);
  Fragment fragment;
  fragment.memory = RandomBytes(random, cut.source_bytes);
  fragment.source = {.data = fragment.memory.data() + cut.source_offset,
                     .inner_bytes = cut.inner_bytes,
                     .loops = cut.loops,
                     .counts = cut.counts,
                     .strides = cut.source_strides};
  ForEachRunOracle(cut.loops, cut.counts, cut.source_strides, cut.source_strides,
                   [&](int64_t s, int64_t) {
                     const auto from = fragment.memory.begin() + cut.source_offset + s;
                     fragment.stream.insert(fragment.stream.end(), from, from + cut.inner_bytes);
                   });
  return fragment;
}

class WritePayloadsTest : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  WritePayloadsTest()
      : engine_({.threads = std::get<0>(GetParam()),
                 .non_temporal_bytes_min = std::get<1>(GetParam()) ? 0 : UINT64_MAX}) {}

  // Writes the objects (with and without a target) and compares bytes, digests and progress.
  void ExpectWritten(const std::vector<std::vector<Fragment>>& objects) {
    std::vector<PayloadWrite> writes;
    std::vector<std::vector<std::byte>> expected;
    std::vector<std::vector<std::byte>> targets;
    std::vector<std::vector<BlockDigest>> digests;
    uint64_t total = 0;
    for (const std::vector<Fragment>& object : objects) {
      PayloadWrite& write = writes.emplace_back();
      std::vector<std::byte>& bytes = expected.emplace_back();
      for (const Fragment& fragment : object) {
        write.sources.push_back(fragment.source);
        bytes.insert(bytes.end(), fragment.stream.begin(), fragment.stream.end());
      }
      total += bytes.size();
      digests.push_back(DigestsOf(bytes));
      targets.emplace_back(bytes.size() + 128, std::byte{0xa5});
    }
    std::atomic<uint64_t> progress{0};
    const auto fingerprints = engine_.WritePayloads(writes, {.progress_bytes = &progress});
    ASSERT_TRUE(fingerprints.ok()) << fingerprints.status().ToString();
    EXPECT_EQ(*fingerprints, digests);
    EXPECT_EQ(progress, total);

    for (size_t i = 0; i < writes.size(); ++i) writes[i].target = targets[i].data() + 64;
    const auto written = engine_.WritePayloads(writes);
    ASSERT_TRUE(written.ok());
    EXPECT_EQ(*written, digests);
    for (size_t i = 0; i < writes.size(); ++i) {
      std::vector<std::byte> framed(64, std::byte{0xa5});
      framed.insert(framed.end(), expected[i].begin(), expected[i].end());
      framed.resize(framed.size() + 64, std::byte{0xa5});
      ASSERT_TRUE(targets[i] == framed) << "object " << i;
    }
  }

  CopyEngine engine_;
};

TEST_P(WritePayloadsTest, OneLargeContiguousFragment) {
  std::mt19937_64 random(1);
  for (const uint64_t bytes : {uint64_t{1}, kDigestBlockBytes - 1, kDigestBlockBytes,
                               kDigestBlockBytes + 1, 3 * kDigestBlockBytes, uint64_t{5'000'001}}) {
    Fragment fragment;
    fragment.memory = RandomBytes(random, bytes);
    fragment.source = {.data = fragment.memory.data(), .inner_bytes = bytes};
    fragment.stream = fragment.memory;
    std::vector<std::vector<Fragment>> objects(1);
    objects[0].push_back(std::move(fragment));
    ExpectWritten(objects);
  }
}

TEST_P(WritePayloadsTest, PacksOfRandomStridedFragments) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 8; ++round) {
    std::vector<std::vector<Fragment>> objects(Between(random, 1, 5));
    for (std::vector<Fragment>& object : objects) {
      const uint64_t fragments = Between(random, 0, 60);
      for (uint64_t i = 0; i < fragments; ++i) {
        const bool large = random() % 20 == 0;
        object.push_back(MakeFragment(random, static_cast<int>(random() % (kLoopsMax + 1)),
                                      large ? 100'000 : 300, large ? 300'000 : 20'000));
      }
    }
    ExpectWritten(objects);
    if (HasFatalFailure()) return;
  }
}

TEST_P(WritePayloadsTest, FragmentsThatMeetBlockBoundaries) {
  std::mt19937_64 random(3);
  for (const uint64_t first : {kDigestBlockBytes - 1, kDigestBlockBytes, kDigestBlockBytes + 1}) {
    std::vector<std::vector<Fragment>> objects(1);
    for (const uint64_t bytes : {first, uint64_t{1}, kDigestBlockBytes, uint64_t{0}, first}) {
      Fragment fragment;
      fragment.memory = RandomBytes(random, bytes + 1);
      fragment.source = {.data = fragment.memory.data(), .inner_bytes = bytes};
      fragment.stream.assign(fragment.memory.begin(), fragment.memory.begin() + bytes);
      objects[0].push_back(std::move(fragment));
    }
    ExpectWritten(objects);
  }
}

TEST_P(WritePayloadsTest, EmptyObjectsHaveNoDigests) {
  const std::vector<PayloadWrite> writes = {
      {}, {.sources = {StridedSource{}, {.inner_bytes = 4, .loops = 1}}}};
  const auto digests = engine_.WritePayloads(writes);
  ASSERT_TRUE(digests.ok());
  EXPECT_EQ(*digests, (std::vector<std::vector<BlockDigest>>(2)));
  EXPECT_TRUE(engine_.WritePayloads({})->empty());
}

TEST_P(WritePayloadsTest, RefusedBeforeAnyByteMoves) {
  const std::vector<std::byte> source(16, std::byte{1});
  std::vector<std::byte> target(16);
  std::vector<PayloadWrite> writes = {
      {.target = target.data(), .sources = {{.data = source.data(), .inner_bytes = 16}}},
      {.sources = {{.data = source.data(), .inner_bytes = 16}, {.inner_bytes = 1}}}};
  const auto missing = engine_.WritePayloads(writes);
  EXPECT_EQ(missing.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(missing.status().message(), HasSubstr("payload 1, source 1: source is null"));
  writes[1].sources[1] = {.data = source.data(),
                          .inner_bytes = 16,
                          .loops = 2,
                          .counts = {uint64_t{1} << 40, uint64_t{1} << 40}};
  EXPECT_THAT(engine_.WritePayloads(writes).status().message(), HasSubstr("beyond 2^63"));
  EXPECT_EQ(target, std::vector<std::byte>(16));
}

TEST_P(WritePayloadsTest, Cancelled) {
  const std::vector<std::byte> source(500'000, std::byte{1});
  const std::vector<PayloadWrite> writes = {
      {.sources = {{.data = source.data(), .inner_bytes = source.size()}}}};
  const std::atomic<bool> cancelled{true};
  EXPECT_EQ(engine_.WritePayloads(writes, {.cancelled = &cancelled}).status().code(),
            Code::kCancelled);
}

INSTANTIATE_TEST_SUITE_P(All, WritePayloadsTest,
                         testing::Combine(testing::Values(1, 3), testing::Bool()),
                         [](const auto& param) {
                           return std::to_string(std::get<0>(param.param)) + "threads" +
                                  (std::get<1>(param.param) ? "Streamed" : "Cached");
                         });

}  // namespace
}  // namespace mooncake::transfer
