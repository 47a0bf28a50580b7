// Memory for copy tests: random content, guard bytes around every target, and seeds that are
// printed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "transfer/copy_engine.h"

namespace mooncake::transfer {

// The seed of a random test: MOONCAKE_TEST_SEED when set, else a fresh one.
inline uint64_t TestSeed() {
  const char* given = std::getenv("MOONCAKE_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

inline std::string SeedLine(uint64_t seed) {
  return "repeat with MOONCAKE_TEST_SEED=" + std::to_string(seed);
}

inline std::vector<std::byte> RandomBytes(std::mt19937_64& random, size_t bytes) {
  std::vector<std::byte> content(bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(content.data() + i, &word, std::min(sizeof word, bytes - i));
  }
  return content;
}

inline uint64_t Between(std::mt19937_64& random, uint64_t low, uint64_t high) {
  return low + random() % (high - low + 1);
}

// Calls visit(source offset, target offset) for every run of nested loops: the oracle's walk, one
// index at a time.
template <class Visit>
void ForEachRunOracle(int loops, const std::array<uint64_t, kLoopsMax>& counts,
                      const std::array<int64_t, kLoopsMax>& source_strides,
                      const std::array<int64_t, kLoopsMax>& target_strides, Visit visit) {
  uint64_t runs = 1;
  for (int loop = 0; loop < loops; ++loop) runs *= counts[loop];
  for (uint64_t run = 0; run < runs; ++run) {
    int64_t source = 0;
    int64_t target = 0;
    uint64_t rest = run;
    for (int loop = loops - 1; loop >= 0; --loop) {
      const auto i = static_cast<int64_t>(rest % counts[loop]);
      rest /= counts[loop];
      source += i * source_strides[loop];
      target += i * target_strides[loop];
    }
    visit(source, target);
  }
}

// A random box cut out of a random source array and put into a random target array, as strided
// loops: offsets and strides in bytes, `inner` the run. Dense row-major arrays; loops in random
// order when `shuffle`.
struct RandomCut {
  uint64_t inner_bytes = 0;
  int loops = 0;
  std::array<uint64_t, kLoopsMax> counts{};
  std::array<int64_t, kLoopsMax> source_strides{};
  std::array<int64_t, kLoopsMax> target_strides{};
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t source_bytes = 0;
  uint64_t target_bytes = 0;
};

inline RandomCut MakeRandomCut(std::mt19937_64& random, int loops, uint64_t inner_max,
                               uint64_t bytes_max, bool shuffle) {
  RandomCut cut;
  cut.loops = loops;
  cut.inner_bytes = Between(random, 1, inner_max);
  // Innermost dimension: bytes; each side has its own padding around the box.
  uint64_t source_pitch = cut.inner_bytes + random() % 2 * Between(random, 0, 40);
  uint64_t target_pitch = cut.inner_bytes + random() % 2 * Between(random, 0, 40);
  cut.source_offset = Between(random, 0, source_pitch - cut.inner_bytes);
  cut.target_offset = Between(random, 0, target_pitch - cut.inner_bytes);
  for (int loop = loops - 1; loop >= 0; --loop) {
    const uint64_t room = std::max<uint64_t>(1, bytes_max / std::max(source_pitch, target_pitch));
    const uint64_t count = Between(random, 1, std::min<uint64_t>(room, loops > 3 ? 4 : 40));
    cut.counts[loop] = count;
    cut.source_strides[loop] = static_cast<int64_t>(source_pitch);
    cut.target_strides[loop] = static_cast<int64_t>(target_pitch);
    const uint64_t source_extra = random() % 2 * Between(random, 0, 3);
    const uint64_t target_extra = random() % 2 * Between(random, 0, 3);
    cut.source_offset += Between(random, 0, source_extra) * source_pitch;
    cut.target_offset += Between(random, 0, target_extra) * target_pitch;
    source_pitch *= count + source_extra;
    target_pitch *= count + target_extra;
  }
  cut.source_bytes = source_pitch;
  cut.target_bytes = target_pitch;
  if (shuffle) {
    for (int loop = loops - 1; loop > 0; --loop) {
      const auto other = static_cast<int>(Between(random, 0, static_cast<uint64_t>(loop)));
      std::swap(cut.counts[loop], cut.counts[other]);
      std::swap(cut.source_strides[loop], cut.source_strides[other]);
      std::swap(cut.target_strides[loop], cut.target_strides[other]);
    }
  }
  return cut;
}

}  // namespace mooncake::transfer
