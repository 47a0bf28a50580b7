// The Master's time: the last logged time plus the monotonic time that has passed since. It never
// runs back, knows no wall clock, and a restart resumes where the log ended. Single-threaded.
#pragma once

#include <algorithm>
#include <cstdint>

#include "env/clock.h"

namespace mooncake::master {

class LoggedClock {
 public:
  // `pause_tolerance_ms`: see MasterOptions.
  LoggedClock(const env::Clock& clock, int64_t pause_tolerance_ms)
      : clock_(clock), pause_tolerance_ms_(pause_tolerance_ms) {}

  void ResumeAt(int64_t logged_ms) {
    now_ms_ = logged_ms;
    looked_ms_ = clock_.MonotonicMs();
  }

  int64_t NowMs() {
    const int64_t monotonic_ms = clock_.MonotonicMs();
    const int64_t passed_ms = monotonic_ms - looked_ms_;
    looked_ms_ = monotonic_ms;
    now_ms_ += pause_tolerance_ms_ > 0 ? std::min(passed_ms, pause_tolerance_ms_) : passed_ms;
    return now_ms_;
  }

 private:
  const env::Clock& clock_;
  const int64_t pause_tolerance_ms_;
  int64_t now_ms_ = 0;
  int64_t looked_ms_ = 0;
};

}  // namespace mooncake::master
