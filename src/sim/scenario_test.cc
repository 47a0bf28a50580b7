// A fixed set of seeds, each run twice, and the planted bugs: what ./x test runs of the simulation.
#include "sim/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/log.h"

namespace mooncake::sim {
namespace {

using testing::AnyOf;

class ScenarioTest : public testing::Test {
 protected:
  // Faults make production code complain by the thousand.
  void SetUp() override { (void)SetLogLevel("off"); }
  void TearDown() override { (void)SetLogLevel("info"); }
};

std::string WhatWentWrong(const ScenarioReport& report) {
  std::string text = report.stuck;
  if (report.violation) {
    text += std::string(Name(report.violation->rule)) + ": " + report.violation->text;
  }
  return text;
}

TEST_F(ScenarioTest, FixedSeedsHoldEveryRuleAndAreDeterministic) {
  std::array<uint64_t, kRules> checks{};
  uint64_t published = 0;
  uint64_t loaded = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("again: ./x sim --seed " + std::to_string(seed) + " --verbose");
    const ScenarioReport report = RunScenario({.seed = seed});
    EXPECT_TRUE(report.ok()) << WhatWentWrong(report);
    EXPECT_EQ(RunScenario({.seed = seed}).trace_hash, report.trace_hash);
    for (size_t rule = 0; rule < kRules; ++rule) checks[rule] += report.checks[rule];
    published += report.counts.published;
    loaded += report.counts.loaded;
  }
  // A simulation in which nothing works proves nothing.
  EXPECT_GT(published, 500U);
  EXPECT_GT(loaded, 500U);
  for (size_t rule = 1; rule < kRules; ++rule) {
    const std::string name(Name(static_cast<Rule>(rule)));
    const bool exists = ArrivesWith(static_cast<Rule>(rule)).empty();
    EXPECT_EQ(checks[rule] > 0, exists) << name << " was checked " << checks[rule] << " times";
  }
}

// The rules that the bug was seen to break, over seeds until it was seen a few times.
std::set<Rule> BrokenBy(PlantedBug bug) {
  std::set<Rule> broken;
  int seen = 0;
  for (uint64_t seed = 1; seed <= 60 && seen < 3; ++seed) {
    const ScenarioReport report = RunScenario({.seed = seed, .seconds = 10, .bug = bug});
    if (!report.violation) continue;
    ++seen;
    broken.insert(report.violation->rule);
  }
  return broken;
}

std::string NamesOf(const std::set<Rule>& rules) {
  std::string names;
  for (const Rule rule : rules) names += std::string(Name(rule)) + " ";
  return names;
}

TEST_F(ScenarioTest, APlantedReplyBeforeTheFlushIsSeen) {
  const std::set<Rule> broken = BrokenBy(PlantedBug::kReplyBeforeFlush);
  EXPECT_FALSE(broken.empty());
  for (const Rule rule : broken) {
    EXPECT_THAT(rule, AnyOf(Rule::kOneOutcome, Rule::kAcknowledgedIsKept, Rule::kLeaseNotBoth,
                            Rule::kNoStaleGeneration, Rule::kReadyIsReadable))
        << NamesOf(broken);
  }
}

TEST_F(ScenarioTest, APlantedMissedFenceIsSeen) {
  EXPECT_EQ(BrokenBy(PlantedBug::kMissedFence), std::set<Rule>{Rule::kReadyIsReadable});
}

TEST_F(ScenarioTest, APlantedExtentFreedEarlyIsSeen) {
  EXPECT_EQ(BrokenBy(PlantedBug::kExtentFreedEarly), std::set<Rule>{Rule::kReadyIsReadable});
}

TEST_F(ScenarioTest, APlantedForgottenTombstoneIsSeen) {
  const std::set<Rule> broken = BrokenBy(PlantedBug::kForgottenTombstone);
  EXPECT_FALSE(broken.empty());
  for (const Rule rule : broken) {
    EXPECT_THAT(rule, AnyOf(Rule::kOneOutcome, Rule::kAcknowledgedIsKept, Rule::kLeaseNotBoth,
                            Rule::kNoStaleGeneration, Rule::kReadyIsReadable, Rule::kOneManifest,
                            Rule::kReaderGetsItsBytes))
        << NamesOf(broken);
  }
}

TEST_F(ScenarioTest, APlantedIgnoredLeaseIsSeen) {
  EXPECT_EQ(BrokenBy(PlantedBug::kIgnoredLease), std::set<Rule>{Rule::kLeaseProtects});
}

TEST_F(ScenarioTest, APlantedForgottenReadOfAnObjectIsSeen) {
  EXPECT_EQ(BrokenBy(PlantedBug::kForgottenRead), std::set<Rule>{Rule::kLeaseProtects});
}

TEST_F(ScenarioTest, APlantedHastyPutIsSeen) {
  EXPECT_EQ(BrokenBy(PlantedBug::kHastyPut), std::set<Rule>{Rule::kAcknowledgedIsKept});
}

}  // namespace
}  // namespace mooncake::sim
