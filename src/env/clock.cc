#include "env/clock.h"

#include <array>
#include <cstdio>
#include <ctime>

#include "base/check.h"
#include "env/world.h"

namespace mooncake::env {
namespace {

int64_t ReadNs(clockid_t id) {
  timespec now{};
  MC_CHECK(clock_gettime(id, &now) == 0);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

const SystemClock& SystemClock::Instance() {
  static const SystemClock clock;
  return clock;
}

int64_t SystemClock::MonotonicNs() const {
  if (World* world = World::Current()) return world->MonotonicNs();
  return ReadNs(CLOCK_MONOTONIC);
}

int64_t SystemClock::WallMs() const {
  if (World* world = World::Current()) return world->WallMs();
  return ReadNs(CLOCK_REALTIME) / 1'000'000;
}

std::string Iso8601Utc(int64_t wall_ms) {
  MC_CHECK(wall_ms >= 0);
  const auto seconds = static_cast<time_t>(wall_ms / 1000);
  tm fields{};
  MC_CHECK(gmtime_r(&seconds, &fields) != nullptr);
  MC_CHECK(fields.tm_year + 1900 <= 9999);
  std::array<char, 96> text{};
  const int length =
      std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ",
                    fields.tm_year + 1900, fields.tm_mon + 1, fields.tm_mday, fields.tm_hour,
                    fields.tm_min, fields.tm_sec, static_cast<int>(wall_ms % 1000));
  return {text.data(), static_cast<size_t>(length)};
}

}  // namespace mooncake::env
