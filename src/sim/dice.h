// The randomness of a simulation: everything that chance decides comes from one seed.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"

namespace mooncake::sim {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}

  uint64_t Next() { return engine_(); }
  // 0 <= value < n; n > 0. Uniform enough for choosing.
  uint64_t Below(uint64_t n) {
    MC_CHECK(n > 0);
    return engine_() % n;
  }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  bool Chance(uint32_t per_million) { return Below(1'000'000) < per_million; }
  template <class T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }
  std::string Bytes(size_t bytes) {
    std::string made(bytes, '\0');
    for (char& byte : made) byte = static_cast<char>(Next());
    return made;
  }
  // An independent stream.
  Dice Split() { return Dice(Next()); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace mooncake::sim
