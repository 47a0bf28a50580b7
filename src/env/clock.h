// Time as the world gives it. Everything that decides by time takes a Clock, so that tests and the
// simulation own it.
//
// Monotonic time never runs back and has no meaning outside this boot; wall time may jump and is
// for people and for `created_at` only: no expiry is ever computed from it. Threads: every method
// may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mooncake::env {

class Clock {
 public:
  virtual ~Clock() = default;

  virtual int64_t MonotonicNs() const = 0;
  int64_t MonotonicMs() const { return MonotonicNs() / 1'000'000; }
  // Milliseconds since 1970-01-01T00:00:00Z.
  virtual int64_t WallMs() const = 0;
};

// CLOCK_MONOTONIC and CLOCK_REALTIME of this host, or of the World the caller is in.
class SystemClock final : public Clock {
 public:
  // One for the process; it has no state.
  static const SystemClock& Instance();

  int64_t MonotonicNs() const override;
  int64_t WallMs() const override;
};

// "2026-11-30T05:12:07.123Z". Years outside 1970..9999 are a programmer's error.
std::string Iso8601Utc(int64_t wall_ms);

}  // namespace mooncake::env
