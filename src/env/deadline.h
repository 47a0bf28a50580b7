// The latest moment until which a blocking call may wait, on the host's monotonic clock. Blocking
// calls exist only where real descriptors do, so a Deadline never asks an injected Clock.
#pragma once

#include <cstdint>
#include <limits>

namespace mooncake::env {

class Deadline {
 public:
  // Never runs out.
  static Deadline Infinite() { return Deadline(kNever); }
  // `ms` from now; a negative value has run out already.
  static Deadline AfterMs(int64_t ms);

  bool infinite() const { return at_ms_ == kNever; }
  bool Expired() const { return RemainingMs() == 0; }
  // Never negative; the largest int64 when infinite.
  int64_t RemainingMs() const;
  // As poll(2) wants it: -1 when infinite, capped at the largest int.
  int PollTimeoutMs() const;

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  explicit Deadline(int64_t at_ms) : at_ms_(at_ms) {}

  int64_t at_ms_;
};

}  // namespace mooncake::env
