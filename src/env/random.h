// Randomness as the world gives it; the simulation passes a seeded source instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "env/sync.h"

namespace mooncake::env {

// Threads: every method may be called from any thread.
class RandomSource {
 public:
  virtual ~RandomSource() = default;

  virtual std::string RandomBytes(size_t bytes) = 0;
  uint64_t RandomU64();
};

// getrandom(2), or the World the caller is in: fit for keys and instance ids. Failure ends the
// process, since nothing secret could be made any more.
class SystemRandom final : public RandomSource {
 public:
  static SystemRandom& Instance();

  std::string RandomBytes(size_t bytes) override;
};

// The same bytes for the same seed and order of calls. Never fit for keys.
class SeededRandom final : public RandomSource {
 public:
  explicit SeededRandom(uint64_t seed) : engine_(seed) {}

  std::string RandomBytes(size_t bytes) override;

 private:
  Mutex mutex_;
  std::mt19937_64 engine_;
};

}  // namespace mooncake::env
