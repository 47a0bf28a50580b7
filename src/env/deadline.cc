#include "env/deadline.h"

#include <algorithm>

#include "env/clock.h"

namespace mooncake::env {

Deadline Deadline::AfterMs(int64_t ms) {
  const int64_t now = SystemClock::Instance().MonotonicMs();
  return Deadline(ms >= kNever - now ? kNever : now + ms);
}

int64_t Deadline::RemainingMs() const {
  if (infinite()) return kNever;
  return std::max<int64_t>(0, at_ms_ - SystemClock::Instance().MonotonicMs());
}

int Deadline::PollTimeoutMs() const {
  if (infinite()) return -1;
  return static_cast<int>(std::min<int64_t>(RemainingMs(), std::numeric_limits<int>::max()));
}

}  // namespace mooncake::env
