// A clock that moves only when told to: tests and the simulation.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "env/clock.h"

namespace mooncake::env {

class ManualClock final : public Clock {
 public:
  // Starts away from zero, so that "0" never passes for a time.
  explicit ManualClock(int64_t monotonic_ms = 1'000'000, int64_t wall_ms = 1'800'000'000'000)
      : monotonic_ns_(monotonic_ms * 1'000'000), wall_ms_(wall_ms) {}

  int64_t MonotonicNs() const override { return monotonic_ns_.load(); }
  int64_t WallMs() const override { return wall_ms_.load(); }

  // Moves both times forward.
  void AdvanceMs(int64_t ms) {
    MC_CHECK(ms >= 0);
    monotonic_ns_ += ms * 1'000'000;
    wall_ms_ += ms;
  }
  // Moves only the wall clock, in either direction, as an operator or NTP may.
  void JumpWallMs(int64_t ms) { wall_ms_ += ms; }

 private:
  std::atomic<int64_t> monotonic_ns_;
  std::atomic<int64_t> wall_ms_;
};

}  // namespace mooncake::env
