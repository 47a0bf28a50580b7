// CopyEngine::ReadObjects against an element-wise oracle, and its promise about flipped bytes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>

#include "transfer/copy_engine.h"
#include "transfer/test_memory.h"

namespace mooncake::transfer {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A stored object with its digests, and a target for its regions with what it must hold afterwards.
struct Stored {
  std::vector<std::byte> bytes;
  std::vector<BlockDigest> digests;
  std::vector<ObjectRegion> regions;
  std::vector<std::vector<std::byte>> targets;
  std::vector<std::vector<std::byte>> initial;   // targets as they were before any read
  std::vector<std::vector<std::byte>> expected;  // and as they must be after one
  std::set<uint64_t> touched_blocks;
  uint64_t wanted_bytes = 0;

  ObjectRead Read(const std::string& name) const {
    return {.name = name,
            .data = bytes.data(),
            .bytes = bytes.size(),
            .digests = digests,
            .regions = regions};
  }
  // Bytes of all blocks that hold a wanted byte.
  uint64_t touched_bytes() const {
    uint64_t sum = 0;
    for (const uint64_t block : touched_blocks) {
      sum += std::min(kDigestBlockBytes, bytes.size() - block * kDigestBlockBytes);
    }
    return sum;
  }
};

void Store(Stored* object, std::vector<std::byte> bytes) {
  object->bytes = std::move(bytes);
  for (uint64_t offset = 0; offset < object->bytes.size(); offset += kDigestBlockBytes) {
    object->digests.push_back(BlockDigestOf(
        object->bytes.data() + offset, std::min(kDigestBlockBytes, object->bytes.size() - offset)));
  }
}

void Want(std::mt19937_64& random, Stored* object, const RandomCut& cut, uint64_t base) {
  std::vector<std::byte>& target =
      object->targets.emplace_back(RandomBytes(random, cut.target_bytes));
  object->initial.push_back(target);
  std::vector<std::byte>& expected = object->expected.emplace_back(target);
  ObjectRegion region{.source_offset = base + cut.source_offset,
                      .target = target.data() + cut.target_offset,
                      .inner_bytes = cut.inner_bytes,
                      .loops = cut.loops,
                      .counts = cut.counts,
                      .target_strides = cut.target_strides};
  for (int loop = 0; loop < cut.loops; ++loop) {
    region.source_strides[loop] = static_cast<uint64_t>(cut.source_strides[loop]);
  }
  object->regions.push_back(region);
  ForEachRunOracle(
      cut.loops, cut.counts, cut.source_strides, cut.target_strides, [&](int64_t s, int64_t t) {
        const uint64_t from = region.source_offset + s;
        const uint64_t end = from + cut.inner_bytes;
        std::copy(object->bytes.begin() + from, object->bytes.begin() + end,
                  expected.begin() + cut.target_offset + t);
        for (uint64_t block = from / kDigestBlockBytes; block * kDigestBlockBytes < end; ++block) {
          object->touched_blocks.insert(block);
        }
        object->wanted_bytes += cut.inner_bytes;
      });
}

// An object of some hundred KiB and random cuts out of it.
Stored MakeStored(std::mt19937_64& random, uint64_t bytes, uint64_t regions) {
  Stored object;
  Store(&object, RandomBytes(random, bytes));
  for (uint64_t i = 0; i < regions; ++i) {
    const int loops = static_cast<int>(random() % (kLoopsMax + 1));
    const uint64_t inner_max = std::array<uint64_t, 4>{8, 300, 5'000, 150'000}[random() % 4];
    RandomCut cut;
    do {
      cut = MakeRandomCut(random, loops, inner_max, bytes / 3, true);
    } while (cut.source_bytes > bytes);
    Want(random, &object, cut, Between(random, 0, bytes - cut.source_bytes));
  }
  return object;
}

class ReadObjectsTest : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  ReadObjectsTest()
      : engine_({.threads = std::get<0>(GetParam()),
                 .non_temporal_bytes_min = std::get<1>(GetParam()) ? 0 : UINT64_MAX}) {}

  CopyEngine engine_;
};

TEST_P(ReadObjectsTest, RandomRegionsAgainstTheOracle) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 12; ++round) {
    std::vector<Stored> objects;
    for (uint64_t i = Between(random, 1, 4); i > 0; --i) {
      objects.push_back(
          MakeStored(random, Between(random, 200'000, 900'000), Between(random, 0, 7)));
    }
    for (const Verify verify : {Verify::kBlocks, Verify::kOff}) {
      std::vector<ObjectRead> reads;
      uint64_t wanted = 0;
      uint64_t touched = 0;
      for (Stored& object : objects) {
        reads.push_back(object.Read("w" + std::to_string(reads.size())));
        wanted += object.wanted_bytes;
        touched += object.touched_bytes();
        for (size_t i = 0; i < object.targets.size(); ++i) {
          std::copy(object.initial[i].begin(), object.initial[i].end(), object.targets[i].begin());
        }
      }
      std::atomic<uint64_t> progress{0};
      std::atomic<uint64_t> verified{0};
      const Status status = engine_.ReadObjects(
          reads, verify, {.progress_bytes = &progress, .verified_bytes = &verified});
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(progress, wanted);
      EXPECT_EQ(verified, verify == Verify::kBlocks ? touched : 0) << "each block exactly once";
      for (const Stored& object : objects) {
        for (size_t i = 0; i < object.targets.size(); ++i) {
          ASSERT_TRUE(object.targets[i] == object.expected[i]) << "region " << i;
        }
      }
    }
  }
}

TEST_P(ReadObjectsTest, LargeContiguousReads) {
  std::mt19937_64 random(5);
  for (const uint64_t bytes : {kDigestBlockBytes, 5 * kDigestBlockBytes, uint64_t{6'000'000}}) {
    Stored object;
    Store(&object, RandomBytes(random, bytes));
    for (const uint64_t skip : {0u, 1u, 63u, 64u, 4096u}) {
      RandomCut cut;
      cut.inner_bytes = bytes - skip;
      cut.target_bytes = bytes + 64;
      cut.target_offset = skip % 64;
      Want(random, &object, cut, skip);
    }
    const std::vector<ObjectRead> reads = {object.Read("w")};
    ASSERT_TRUE(engine_.ReadObjects(reads, Verify::kBlocks).ok());
    EXPECT_TRUE(object.targets == object.expected);
  }
}

TEST_P(ReadObjectsTest, RegionsThatMeetBlockBoundaries) {
  std::mt19937_64 random(6);
  Stored object;
  Store(&object, RandomBytes(random, 4 * kDigestBlockBytes));
  const uint64_t edge = 2 * kDigestBlockBytes;
  // One byte on either side of an edge, beside regions that end and begin elsewhere.
  for (const uint64_t begin : {edge - 2, edge - 1, edge, edge + 1}) {
    for (const uint64_t bytes : {uint64_t{1}, uint64_t{2}, kDigestBlockBytes, edge - 1}) {
      RandomCut cut;
      cut.inner_bytes = std::min(bytes, object.bytes.size() - begin);
      cut.target_bytes = cut.inner_bytes;
      Want(random, &object, cut, begin);
      cut.inner_bytes = cut.target_bytes = std::min(bytes, begin);
      Want(random, &object, cut, begin - cut.inner_bytes);
    }
  }
  const std::vector<ObjectRead> reads = {object.Read("w")};
  ASSERT_TRUE(engine_.ReadObjects(reads, Verify::kBlocks).ok());
  EXPECT_TRUE(object.targets == object.expected);
}

// Every single flipped byte is found exactly when its block holds a wanted byte.
TEST_P(ReadObjectsTest, FlippedByteIsFoundIffItsBlockIsTouched) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedLine(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 6; ++round) {
    Stored object = MakeStored(random, Between(random, 400'000, 1'500'000), 2);
    const std::vector<ObjectRead> reads = {object.Read("layer.0/w_q")};
    for (int flip = 0; flip < 60; ++flip) {
      const uint64_t at = Between(random, 0, object.bytes.size() - 1);
      const auto mask = static_cast<std::byte>(1u << random() % 8);
      object.bytes[at] ^= mask;
      const Status status = engine_.ReadObjects(reads, Verify::kBlocks);
      const uint64_t block = at / kDigestBlockBytes;
      if (object.touched_blocks.contains(block)) {
        const uint64_t begin = block * kDigestBlockBytes;
        const uint64_t end = std::min<uint64_t>(begin + kDigestBlockBytes, object.bytes.size());
        ASSERT_EQ(status.code(), Code::kCorrupt) << "byte " << at;
        EXPECT_THAT(
            status.message(),
            AllOf(HasSubstr("payload layer.0/w_q: block " + std::to_string(block) + ","),
                  HasSubstr("bytes [" + std::to_string(begin) + ", " + std::to_string(end) + ")"),
                  HasSubstr("expected digest "), HasSubstr("found ")));
      } else {
        ASSERT_TRUE(status.ok()) << "byte " << at << ": " << status.ToString();
      }
      EXPECT_TRUE(engine_.ReadObjects(reads, Verify::kOff).ok());
      object.bytes[at] ^= mask;
    }
    ASSERT_TRUE(engine_.ReadObjects(reads, Verify::kBlocks).ok());
    EXPECT_TRUE(object.targets == object.expected);
  }
}

// A corrupt block's bytes never reach a target, not even before the error is returned.
TEST_P(ReadObjectsTest, NothingOfACorruptBlockIsCopied) {
  std::mt19937_64 random(9);
  const uint64_t blocks = 40;
  for (const uint64_t corrupt : {uint64_t{0}, uint64_t{17}, blocks - 1}) {
    Stored object;
    Store(&object, RandomBytes(random, blocks * kDigestBlockBytes));
    std::vector<std::byte> target(object.bytes.size(), std::byte{0});
    object.regions = {{.target = target.data(), .inner_bytes = target.size()}};
    std::memset(object.bytes.data() + corrupt * kDigestBlockBytes, 0xee, kDigestBlockBytes);
    const std::vector<ObjectRead> reads = {object.Read("w")};
    ASSERT_EQ(engine_.ReadObjects(reads, Verify::kBlocks).code(), Code::kCorrupt);
    for (uint64_t i = 0; i < kDigestBlockBytes; ++i) {
      ASSERT_EQ(target[corrupt * kDigestBlockBytes + i], std::byte{0}) << i;
    }
  }
}

TEST_P(ReadObjectsTest, TheLowestCorruptBlockIsNamed) {
  std::mt19937_64 random(10);
  Stored object;
  Store(&object, RandomBytes(random, 200 * kDigestBlockBytes));
  std::vector<std::byte> target(object.bytes.size());
  object.regions = {{.target = target.data(), .inner_bytes = target.size()}};
  for (const uint64_t block : {150u, 31u, 90u})
    object.bytes[block * kDigestBlockBytes] ^= std::byte{1};
  const std::vector<ObjectRead> reads = {object.Read("w")};
  for (int round = 0; round < 10; ++round) {
    EXPECT_THAT(engine_.ReadObjects(reads, Verify::kBlocks).message(), HasSubstr("block 31,"));
  }
}

TEST_P(ReadObjectsTest, MissingEvidenceIsCorrupt) {
  std::mt19937_64 random(11);
  Stored object;
  Store(&object, RandomBytes(random, 3 * kDigestBlockBytes + 1));
  std::vector<std::byte> target(16);
  object.regions = {{.target = target.data(), .inner_bytes = 16}};
  ObjectRead read = object.Read("w");
  for (const size_t digests : {0u, 1u, 3u}) {
    read.digests = std::span(object.digests).first(digests);
    const Status status = engine_.ReadObjects({&read, 1}, Verify::kBlocks);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(),
                HasSubstr("payload w of 196609 bytes has " + std::to_string(digests) +
                          " block digests, expected 4"));
    EXPECT_EQ(target, std::vector<std::byte>(16));
    EXPECT_TRUE(engine_.ReadObjects({&read, 1}, Verify::kOff).ok());
    std::fill(target.begin(), target.end(), std::byte{0});
  }
}

TEST_P(ReadObjectsTest, RefusedBeforeAnyByteMoves) {
  std::mt19937_64 random(12);
  Stored object;
  Store(&object, RandomBytes(random, 1000));
  std::vector<std::byte> target(5000);
  const ObjectRegion good{.target = target.data(), .inner_bytes = 100};
  const auto refused = [&](ObjectRegion bad) {
    object.regions = {good, bad};
    const ObjectRead read = object.Read("w");
    for (const Verify verify : {Verify::kBlocks, Verify::kOff}) {
      const Status status = engine_.ReadObjects({&read, 1}, verify);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
      EXPECT_EQ(target, std::vector<std::byte>(5000));
      if (verify == Verify::kBlocks) continue;
      return status.message();
    }
    return std::string();
  };
  EXPECT_THAT(refused({.source_offset = 901, .target = target.data(), .inner_bytes = 100}),
              HasSubstr("payload w, region 1: ends at byte 1001 of an object of 1000"));
  EXPECT_THAT(refused({.source_offset = 1001, .target = target.data(), .inner_bytes = 0}),
              HasSubstr("begins at byte 1001 of an object of 1000"));
  EXPECT_THAT(refused({.source_offset = UINT64_MAX, .target = target.data(), .inner_bytes = 2}),
              HasSubstr("begins at byte"));
  EXPECT_THAT(refused({.inner_bytes = 1}), HasSubstr("target is null"));
  EXPECT_THAT(refused({.target = target.data(), .inner_bytes = 1, .loops = 9}),
              HasSubstr("loops must be 0 to 8, got 9"));
  const auto runs = [&](uint64_t count, uint64_t stride) {
    return ObjectRegion{.target = target.data() + 200,
                        .inner_bytes = 10,
                        .loops = 1,
                        .counts = {count},
                        .source_strides = {stride},
                        .target_strides = {20}};
  };
  EXPECT_THAT(refused(runs(100, 11)), HasSubstr("ends at byte 1099 of an object of 1000"));
  EXPECT_THAT(refused(runs(3, 9)), HasSubstr("overlap or interleave"));
  EXPECT_THAT(refused(runs(3, 0)), HasSubstr("overlap or interleave"));
  EXPECT_THAT(refused(runs(3, UINT64_MAX)), HasSubstr("overlap or interleave"));
  EXPECT_THAT(refused(runs(3, uint64_t{1} << 62)), HasSubstr("beyond 2^63"));
  object.regions = {good, runs(100, 10)};
  const ObjectRead read = object.Read("w");
  EXPECT_TRUE(engine_.ReadObjects({&read, 1}, Verify::kBlocks).ok());
}

TEST_P(ReadObjectsTest, CancelledAndEmpty) {
  std::mt19937_64 random(13);
  Stored object;
  Store(&object, RandomBytes(random, 1000));
  std::vector<std::byte> target(1000);
  object.regions = {{.target = target.data(), .inner_bytes = 1000}};
  const ObjectRead read = object.Read("w");
  const std::atomic<bool> cancelled{true};
  EXPECT_EQ(engine_.ReadObjects({&read, 1}, Verify::kBlocks, {.cancelled = &cancelled}).code(),
            Code::kCancelled);
  EXPECT_EQ(target, std::vector<std::byte>(1000));
  EXPECT_TRUE(engine_.ReadObjects({}, Verify::kBlocks).ok());
  const ObjectRead nothing{.name = "empty"};
  EXPECT_TRUE(engine_.ReadObjects({&nothing, 1}, Verify::kBlocks).ok());
}

// Case H4 on the verified path.
TEST_P(ReadObjectsTest, ManyConcurrentReadsKeepApart) {
  std::vector<std::thread> callers;
  callers.reserve(8);
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([this, caller] {
      std::mt19937_64 random(caller);
      for (int round = 0; round < 3; ++round) {
        const Stored object = MakeStored(random, 400'000, 3);
        const std::vector<ObjectRead> reads = {object.Read("w")};
        const Status status = engine_.ReadObjects(reads, Verify::kBlocks);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_TRUE(object.targets == object.expected);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

INSTANTIATE_TEST_SUITE_P(All, ReadObjectsTest,
                         testing::Combine(testing::Values(1, 3), testing::Bool()),
                         [](const auto& param) {
                           return std::to_string(std::get<0>(param.param)) + "threads" +
                                  (std::get<1>(param.param) ? "Streamed" : "Cached");
                         });

}  // namespace
}  // namespace mooncake::transfer
