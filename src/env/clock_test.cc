#include "env/clock.h"

#include <gtest/gtest.h>

#include "env/deadline.h"
#include "env/manual_clock.h"

namespace mooncake::env {
namespace {

TEST(SystemClockTest, MonotonicNeverRunsBackAndWallIsThisCentury) {
  const SystemClock& clock = SystemClock::Instance();
  int64_t last = clock.MonotonicNs();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = clock.MonotonicNs();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GE(clock.MonotonicMs(), last / 1'000'000);
  EXPECT_GT(clock.WallMs(), 1'600'000'000'000);
}

TEST(ManualClockTest, MovesOnlyWhenTold) {
  ManualClock clock(5, 1000);
  EXPECT_EQ(clock.MonotonicMs(), 5);
  clock.AdvanceMs(7);
  EXPECT_EQ(clock.MonotonicMs(), 12);
  EXPECT_EQ(clock.MonotonicNs(), 12'000'000);
  EXPECT_EQ(clock.WallMs(), 1007);
  clock.JumpWallMs(-3'600'000);
  EXPECT_EQ(clock.WallMs(), 1007 - 3'600'000);
  EXPECT_EQ(clock.MonotonicMs(), 12);
}

TEST(Iso8601Test, KnownMoments) {
  EXPECT_EQ(Iso8601Utc(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(Iso8601Utc(951'782'399'999), "2000-02-28T23:59:59.999Z");
  EXPECT_EQ(Iso8601Utc(951'782'400'000), "2000-02-29T00:00:00.000Z");
  EXPECT_EQ(Iso8601Utc(253'402'300'799'999), "9999-12-31T23:59:59.999Z");
}

TEST(DeadlineTest, InfiniteExpiredAndHuge) {
  EXPECT_TRUE(Deadline::Infinite().infinite());
  EXPECT_EQ(Deadline::Infinite().PollTimeoutMs(), -1);
  EXPECT_FALSE(Deadline::Infinite().Expired());
  EXPECT_TRUE(Deadline::AfterMs(0).Expired());
  EXPECT_TRUE(Deadline::AfterMs(-5).Expired());
  EXPECT_EQ(Deadline::AfterMs(-5).PollTimeoutMs(), 0);
  EXPECT_TRUE(Deadline::AfterMs(INT64_MAX).infinite());
  const Deadline far = Deadline::AfterMs(int64_t{1} << 40);
  EXPECT_FALSE(far.Expired());
  EXPECT_EQ(far.PollTimeoutMs(), INT32_MAX);
}

}  // namespace
}  // namespace mooncake::env
