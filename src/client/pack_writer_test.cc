#include "client/pack_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

namespace mooncake::client {
namespace {

struct Part {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Cuts [0, total) at random places.
std::vector<Part> Cut(uint64_t total, uint64_t part_max, std::mt19937& rng) {
  std::vector<Part> parts;
  for (uint64_t at = 0; at < total;) {
    const uint64_t bytes = std::min<uint64_t>(1 + rng() % part_max, total - at);
    parts.push_back({at, bytes});
    at += bytes;
  }
  return parts;
}

std::vector<BlockDigest> OracleOf(const std::vector<std::byte>& pack) {
  std::vector<BlockDigest> digests;
  for (uint64_t at = 0; at < pack.size(); at += kDigestBlockBytes) {
    digests.push_back(
        BlockDigestOf(pack.data() + at, std::min<uint64_t>(kDigestBlockBytes, pack.size() - at)));
  }
  return digests;
}

TEST(PackWriterTest, DigestsOfAnyOrderAndAnyCutWithAndWithoutTarget) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (const uint64_t total :
       {uint64_t{1}, kDigestBlockBytes, kDigestBlockBytes + 1, uint64_t{1'000'003}}) {
    std::vector<std::byte> bytes(total);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    for (const bool with_target : {false, true}) {
      std::vector<Part> parts = Cut(total, 200'000, rng);
      std::shuffle(parts.begin(), parts.end(), rng);
      std::vector<std::byte> target(total);
      PackWriter writer(with_target ? target.data() : nullptr, total);
      std::vector<std::jthread> threads;
      std::atomic<size_t> next{0};
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          for (size_t i = next++; i < parts.size(); i = next++) {
            const Part& part = parts[i];
            EXPECT_FALSE(writer.complete());
            if (with_target) {
              std::memcpy(target.data() + part.offset, bytes.data() + part.offset, part.bytes);
            }
            writer.Add(part.offset, {bytes.data() + part.offset, part.bytes});
          }
        });
      }
      threads.clear();
      EXPECT_TRUE(writer.complete());
      EXPECT_EQ(writer.digests(), OracleOf(bytes));
    }
  }
}

}  // namespace
}  // namespace mooncake::client
