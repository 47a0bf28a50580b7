#include "master/command_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mooncake::master {
namespace {

using testing::HasSubstr;

CommandOutcome Outcome(const std::string& client, uint64_t sequence, uint64_t acked_below,
                       const std::string& request, const std::string& reply) {
  return {client, sequence, acked_below, Sha256Of(request), reply};
}

std::string DigestOf(const CommandTable& table) {
  model::StateDigest digest;
  table.AddTo(&digest);
  return ToHex(digest.Finish());
}

TEST(CommandTable, TheFirstAnswerIsTheAnswer) {
  CommandTable table;
  EXPECT_EQ(table.Find("a", 1, 0, Sha256Of("x")).value(), nullptr);
  ASSERT_TRUE(table.Apply(Outcome("a", 1, 0, "x", "one"), 0).ok());
  EXPECT_EQ(*table.Find("a", 1, 0, Sha256Of("x")).value(), "one");
  EXPECT_EQ(table.Find("a", 2, 0, Sha256Of("x")).value(), nullptr);
  EXPECT_EQ(table.Find("b", 1, 0, Sha256Of("x")).value(), nullptr);
  const Status other = table.Find("a", 1, 0, Sha256Of("y")).status();
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr(ToHex(Sha256Of("x"))));
  EXPECT_THAT(other.message(), HasSubstr(ToHex(Sha256Of("y"))));
  EXPECT_EQ(table.Apply(Outcome("a", 1, 0, "x", "two"), 0).code(), Code::kCorrupt);
  EXPECT_EQ(*table.Find("a", 1, 0, Sha256Of("x")).value(), "one");
}

TEST(CommandTable, AcknowledgedOutcomesAreForgottenAndRefused) {
  CommandTable table;
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    ASSERT_TRUE(table.Apply(Outcome("a", sequence, 0, "x", "r"), 0).ok());
  }
  ASSERT_TRUE(table.Apply(Outcome("a", 7, 4, "x", "r"), 0).ok());
  EXPECT_EQ(table.outcome_count(), 3u);  // 4, 5, 7
  const Status status = table.Find("a", 3, 0, Sha256Of("x")).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("command 3 of client a was acknowledged"));
  EXPECT_NE(table.Find("a", 4, 0, Sha256Of("x")).value(), nullptr);
  EXPECT_EQ(table.Find("a", 6, 0, Sha256Of("x")).value(), nullptr);
  EXPECT_EQ(table.Apply(Outcome("a", 3, 0, "x", "r"), 0).code(), Code::kCorrupt);
  // A watermark never goes back.
  ASSERT_TRUE(table.Apply(Outcome("a", 8, 2, "x", "r"), 0).ok());
  EXPECT_FALSE(table.Find("a", 3, 0, Sha256Of("x")).ok());
}

TEST(CommandTable, ADayLaterEverythingIsForgotten) {
  constexpr int64_t kDay = CommandTable::kForgetAfterMs;
  CommandTable table;
  const std::string empty = DigestOf(table);
  ASSERT_TRUE(table.Apply(Outcome("a", 1, 0, "x", "r"), 1000).ok());
  ASSERT_TRUE(table.Apply(Outcome("b", 1, 0, "x", "r"), 2000).ok());
  table.Forget(1000 + kDay);
  EXPECT_EQ(table.outcome_count(), 2u);
  table.Forget(1001 + kDay);
  EXPECT_EQ(table.outcome_count(), 1u);
  EXPECT_EQ(table.Find("a", 1, 0, Sha256Of("other")).value(), nullptr);
  EXPECT_NE(table.Find("b", 1, 0, Sha256Of("x")).value(), nullptr);
  // Of a client that goes on, only its old outcomes go.
  ASSERT_TRUE(table.Apply(Outcome("b", 2, 0, "x", "r"), 2001 + kDay).ok());
  EXPECT_EQ(table.Find("b", 1, 0, Sha256Of("x")).value(), nullptr);
  EXPECT_NE(table.Find("b", 2, 0, Sha256Of("x")).value(), nullptr);
  table.Forget(2002 + 2 * kDay);
  EXPECT_EQ(table.outcome_count(), 0u);
  EXPECT_EQ(DigestOf(table), empty);
}

TEST(CommandTable, AClientThatAcknowledgesNothingIsStopped) {
  CommandTable table;
  for (uint64_t sequence = 1; sequence <= CommandTable::kOutcomesPerClientMax; ++sequence) {
    ASSERT_TRUE(table.Find("a", sequence, 0, Sha256Of("x")).ok());
    ASSERT_TRUE(table.Apply(Outcome("a", sequence, 0, "x", "r"), 0).ok());
  }
  const Status status =
      table.Find("a", CommandTable::kOutcomesPerClientMax + 1, 1, Sha256Of("x")).status();
  EXPECT_EQ(status.code(), Code::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("client a has 4096 unacknowledged commands"));
  // The request that acknowledges some is welcome.
  EXPECT_TRUE(table.Find("a", CommandTable::kOutcomesPerClientMax + 1, 2, Sha256Of("x")).ok());
  // Retries are answered still, and other clients served.
  EXPECT_NE(table.Find("a", 1, 0, Sha256Of("x")).value(), nullptr);
  EXPECT_TRUE(table.Find("b", 1, 0, Sha256Of("x")).ok());
}

TEST(CommandTable, TheDigestSeesEverything) {
  const auto with = [](CommandOutcome outcome, int64_t logged_ms) {
    CommandTable table;
    EXPECT_TRUE(table.Apply(std::move(outcome), logged_ms).ok());
    return DigestOf(table);
  };
  const std::string base = with(Outcome("a", 2, 1, "x", "r"), 5);
  EXPECT_EQ(with(Outcome("a", 2, 1, "x", "r"), 5), base);
  EXPECT_NE(with(Outcome("b", 2, 1, "x", "r"), 5), base);
  EXPECT_NE(with(Outcome("a", 3, 1, "x", "r"), 5), base);
  EXPECT_NE(with(Outcome("a", 2, 2, "x", "r"), 5), base);
  EXPECT_NE(with(Outcome("a", 2, 1, "y", "r"), 5), base);
  EXPECT_NE(with(Outcome("a", 2, 1, "x", "s"), 5), base);
  EXPECT_NE(with(Outcome("a", 2, 1, "x", "r"), 6), base);
}

}  // namespace
}  // namespace mooncake::master
