// What goes wrong while a revision is published, and what must hold then: writers that fail, vanish
// or are refused at every step; Masters that die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/steps.h"
#include "cluster/step_trap.h"
#include "cluster/test_cluster.h"
#include "cluster/test_publish.h"

namespace mooncake::cluster {
namespace {

using testing::HasSubstr;

const TestLayout kLayout{.tp = 2};

TEST(ImportFaultTest, AFailureAtAnyStepLeavesNothing) {
  const std::vector<std::string> steps = StepsOfPublish(kLayout);
  ASSERT_GE(steps.size(), 15u);
  TestCluster cluster;
  const auto observer = cluster.NewClient();
  uint64_t generation = 0;
  for (const size_t at : InterestingSteps(steps)) {
    SCOPED_TRACE("step " + std::to_string(at) + " " + steps[at]);
    const model::WeightIdentity identity = TestIdentity(++generation);
    const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
    StepTrap trap;
    trap.ActAt(at, [] { return Cancelled("stopped by the test"); });
    client::StoreClientOptions options;
    options.step_observer = trap.Observer();
    const auto client = cluster.NewClient(options);
    const auto report = Publish(*client, identity, source);
    ASSERT_FALSE(report.ok());
    EXPECT_THAT(report.status().message(), HasSubstr("stopped by the test"));
    if (steps[at] == client::import_step::kCommitted) {
      // Durable before the step: a failure after it changes nothing any more.
      EXPECT_TRUE(*observer->Exists(identity));
      ASSERT_TRUE(observer->Remove(identity).ok());
    } else {
      EXPECT_FALSE(*observer->Exists(identity));
      EXPECT_TRUE(observer->List({})->revisions.empty());
      EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
      const auto again = Publish(*observer, identity, source);
      ASSERT_TRUE(again.ok()) << again.status().ToString();
      EXPECT_FALSE(again->already_published);
      ASSERT_TRUE(observer->Remove(identity).ok());
    }
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  }
}

TEST(ImportFaultTest, AWriterThatVanishesAtAnyStepIsReclaimed) {
  const std::vector<std::string> steps = StepsOfPublish(kLayout);
  TestCluster cluster;
  const auto observer = cluster.NewClient();
  uint64_t generation = 0;
  for (const size_t at : InterestingSteps(steps)) {
    SCOPED_TRACE("step " + std::to_string(at) + " " + steps[at]);
    const model::WeightIdentity identity = TestIdentity(++generation);
    const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
    StepTrap trap;
    HookedMaster* hooks = nullptr;
    client::StoreClientOptions options;
    options.step_observer = trap.Observer();
    // Short, since its end is waited for; but a commit must come before it, however slowly.
    if (steps[at] != client::import_step::kCommitted) options.import_ttl_ms = 100;
    const auto client = cluster.NewClient(options, &hooks);
    trap.ActAt(at, [&] {
      hooks->Vanish();
      return Cancelled("vanished");
    });
    ASSERT_FALSE(Publish(*client, identity, source).ok());
    if (steps[at] == client::import_step::kCommitted) {
      EXPECT_TRUE(*observer->Exists(identity));
      LoadEveryRank(*observer, identity, MakeLayout(identity, {}));
      ASSERT_TRUE(observer->Remove(identity).ok());
      EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
      continue;
    }
    EXPECT_FALSE(*observer->Exists(identity));
    EXPECT_TRUE(observer->List({})->revisions.empty());
    // The Master notices by itself, and all space comes back.
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
    EXPECT_EQ(cluster.Status().open_imports(), 0u);
    const auto again = Publish(*observer, identity, source);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    LoadEveryRank(*observer, identity, MakeLayout(identity, {}));
    ASSERT_TRUE(observer->Remove(identity).ok());
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  }
}

// Also where the end came before the importer knew where its bytes go: the answer is why.
TEST(ImportFaultTest, AnImportThatEndsWhileAWriterJoinsSaysWhy) {
  TestCluster cluster;
  const auto other = cluster.NewClient();
  const manifest::PlacementPtr source = MakeLayout(TestIdentity(), kLayout);
  const auto begun = other->BeginImport({TestIdentity(), source, {"d0p0t1"}, {}});
  ASSERT_TRUE(begun.ok()) << begun.status().ToString();
  client::StoreClientOptions options;
  options.step_observer = [&begun](std::string_view step) {
    return step == client::import_step::kBegun ? (*begun)->Abort("the other one's reason")
                                               : OkStatus();
  };
  const auto client = cluster.NewClient(options);
  const auto joined = client->BeginImport({TestIdentity(), source, {"d0p0t0"}, {}});
  EXPECT_EQ(joined.status().code(), Code::kCancelled) << joined.status().ToString();
  EXPECT_THAT(joined.status().message(), HasSubstr("the other one's reason"));
}

// The one that retries comes while the dead writer's import is still open.
TEST(ImportFaultTest, ARetryOutlivesTheImportOfADeadWriter) {
  const std::vector<std::string> steps = StepsOfPublish(kLayout);
  TestCluster cluster;
  uint64_t generation = 0;
  for (const size_t at : InterestingSteps(steps)) {
    if (steps[at] == client::import_step::kCommitted) continue;
    SCOPED_TRACE("step " + std::to_string(at) + " " + steps[at]);
    const model::WeightIdentity identity = TestIdentity(++generation);
    const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
    StepTrap trap;
    HookedMaster* hooks = nullptr;
    client::StoreClientOptions options;
    options.step_observer = trap.Observer();
    options.import_ttl_ms = 150;
    const auto dying = cluster.NewClient(options, &hooks);
    trap.ActAt(at, [&] {
      hooks->Vanish();
      return Cancelled("vanished");
    });
    ASSERT_FALSE(Publish(*dying, identity, source).ok());
    const auto retry = cluster.NewClient();
    const auto report = Publish(*retry, identity, source);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    // Or another rank of the dying client committed what was complete.
    EXPECT_TRUE(report->already_published || report->bytes_uploaded > 0);
    LoadEveryRank(*retry, identity, MakeLayout(identity, {}));
    ASSERT_TRUE(retry->Remove(identity).ok());
  }
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
}

// A rank that has nothing to bring follows the retry, not the dead import.
TEST(ImportFaultTest, ARankWithoutBytesOutlivesTheImportOfADeadWriter) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, {.dp = 2});
  client::StoreClientOptions options;
  options.import_ttl_ms = 300;
  HookedMaster* hooks = nullptr;
  const auto dying = cluster.NewClient(options, &hooks);
  auto lost = dying->BeginImport({identity, source, {"d0p0t0"}, {}, {}});
  ASSERT_TRUE(lost.ok());
  hooks->Vanish();
  const auto owner = cluster.NewClient();
  const auto replica = cluster.NewClient();
  std::jthread follower([&] {
    auto importer = replica->BeginImport({identity, source, {"d1p0t0"}, {}, {}});
    ASSERT_TRUE(importer.ok()) << importer.status().ToString();
    const auto report = (*importer)->Finish();
    EXPECT_TRUE(report.ok()) << report.status().ToString();
  });
  auto importer = owner->BeginImport({identity, source, {"d0p0t0"}, {}, {}});
  ASSERT_TRUE(importer.ok()) << importer.status().ToString();
  ASSERT_TRUE(PutAll(**importer, *source, {"d0p0t0"}).ok());
  const auto report = (*importer)->Finish();
  EXPECT_TRUE(report.ok()) << report.status().ToString();
}

TEST(ImportFaultTest, JoiningALiveWriterNeitherWaitsForItsEndNorIgnoresTheCaller) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, {});
  client::StoreClientOptions options;
  options.import_ttl_ms = 1'500;
  const auto first = cluster.NewClient(options);
  const auto second = cluster.NewClient();
  auto writing = first->BeginImport({identity, source, {}, {}, {}});
  ASSERT_TRUE(writing.ok());
  const auto cancelled = second->BeginImport({identity, source, {}, {}, [] { return false; }});
  EXPECT_EQ(cancelled.status().code(), Code::kCancelled) << cancelled.status().ToString();
  EXPECT_THAT(cancelled.status().message(), HasSubstr("waiting for an earlier writer"));
  // It joins while the first is still writing, and makes only digests.
  auto joined = second->BeginImport({identity, source, {}, {}, {}});
  ASSERT_TRUE(joined.ok()) << joined.status().ToString();
  EXPECT_FALSE((*joined)->already_published());
  ASSERT_TRUE(PutAll(**joined, *source, {"d0p0t0"}).ok());
  ASSERT_TRUE(PutAll(**writing, *source, {"d0p0t0"}).ok());
  ASSERT_TRUE((*writing)->Finish().ok());
  const auto report = (*joined)->Finish();
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->bytes_uploaded, 0u);
  EXPECT_GT(report->bytes_compared, 0u);
}

TEST(ImportFaultTest, AMasterThatDiesAtAnyStepForgetsNothingAcknowledged) {
  const std::vector<std::string> steps = StepsOfPublish(kLayout);
  TestCluster cluster;
  const auto observer = cluster.NewClient();
  uint64_t generation = 0;
  for (const size_t at : InterestingSteps(steps)) {
    SCOPED_TRACE("step " + std::to_string(at) + " " + steps[at]);
    const model::WeightIdentity identity = TestIdentity(++generation);
    const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
    StepTrap trap;
    client::StoreClientOptions options;
    options.step_observer = trap.Observer();
    const auto client = cluster.NewClient(options);
    trap.ActAt(at, [&] {
      cluster.master().Kill();
      cluster.master().Start();
      return OkStatus();
    });
    const auto report = Publish(*client, identity, source);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    LoadEveryRank(*client, identity, MakeLayout(identity, {}));
    ASSERT_TRUE(observer->Remove(identity).ok());
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  }
}

TEST(ImportFaultTest, APublishRightAfterARestartWaitsForTheNodes) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  for (const uint64_t generation : {1, 2, 3}) {
    cluster.master().Kill();
    cluster.master().Start();
    const model::WeightIdentity identity = TestIdentity(generation);
    const auto report = Publish(*client, identity, MakeLayout(identity, kLayout));
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  }
}

TEST(ImportFaultTest, LostRequestsAndRepliesChangeNothing) {
  TestCluster cluster;
  for (const bool lose_replies : {false, true}) {
    const model::WeightIdentity identity = TestIdentity(lose_replies ? 2 : 1);
    HookedMaster* hooks = nullptr;
    const auto client = cluster.NewClient({}, &hooks);
    // Every call of every kind fails the first two times it is tried.
    std::mutex mutex;
    std::map<std::string, int, std::less<>> calls;
    const auto lossy = [&](std::string_view method) {
      std::lock_guard lock(mutex);
      const int call = calls[std::string(method)]++ % 3;
      return call < 2 ? OutcomeUnknown("lost by the test") : OkStatus();
    };
    (lose_replies ? hooks->after : hooks->before) = lossy;
    const auto report = Publish(*client, identity, MakeLayout(identity, kLayout));
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_FALSE(report->already_published);
    LoadEveryRank(*client, identity, MakeLayout(identity, {.tp = 3}));
    EXPECT_EQ(cluster.Status().active_leases(), 0u);
    ASSERT_TRUE(client->Remove(identity).ok());
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  }
}

TEST(ImportFaultTest, AFullStoreRefusesBeforeAByteAndIsUnchanged) {
  TestCluster cluster({.nodes = 2, .capacity_bytes = 2 << 20});
  const auto client = cluster.NewClient();
  const model::WeightIdentity first = TestIdentity(1);
  ASSERT_TRUE(Publish(*client, first, MakeLayout(first, kLayout)).ok());
  const uint64_t charged = cluster.ChargedBytes();
  const uint64_t held = cluster.HeldBytes();
  const model::WeightIdentity second = TestIdentity(2);
  const auto refused = client->BeginImport({second, MakeLayout(second, kLayout), {}, {}});
  ASSERT_EQ(refused.status().code(), Code::kExhausted) << refused.status().ToString();
  EXPECT_THAT(refused.status().message(), HasSubstr("free"));
  EXPECT_EQ(cluster.ChargedBytes(), charged);
  EXPECT_EQ(cluster.HeldBytes(), held);
  EXPECT_FALSE(*client->Exists(second));
  EXPECT_EQ(cluster.Status().open_imports(), 0u);
  LoadEveryRank(*client, first, MakeLayout(first, {}));
  // Room again once the first is gone.
  ASSERT_TRUE(client->Remove(first).ok());
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  const auto report = Publish(*client, second, MakeLayout(second, kLayout));
  EXPECT_TRUE(report.ok()) << report.status().ToString();
}

TEST(ImportFaultTest, MistakesOfTheCallerAreNamed) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
  const auto client = cluster.NewClient();
  const auto expect = [](const Status& status, Code code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  model::WeightIdentity other = identity;
  other.revision = "dev";
  expect(client->BeginImport({other, source, {}, {}}).status(), Code::kInvalidArgument,
         "revision: the identity has dev, the placement main");
  other = identity;
  other.weight_generation = model::WeightGeneration(7);
  expect(client->BeginImport({other, source, {}, {}}).status(), Code::kInvalidArgument,
         "weight_generation: the identity has 7, the placement 1");
  expect(client->BeginImport({identity, nullptr, {}, {}}).status(), Code::kInvalidArgument,
         "placement");
  expect(client->BeginImport({identity, source, {"nobody"}, {}}).status(), Code::kInvalidArgument,
         "nobody is not in the placement");
  expect(client->BeginImport({identity, source, {"d0p0t0", "d0p0t0"}, {}}).status(),
         Code::kInvalidArgument, "d0p0t0 occurs twice");
  model::StoragePolicy cold;
  cold.preferred_residency = model::Residency::kCold;
  expect(client->BeginImport({identity, source, {}, cold}).status(), Code::kPolicyUnsatisfiable,
         "COLD");

  auto importer = client->BeginImport({identity, source, {"d0p0t0"}, {}});
  ASSERT_TRUE(importer.ok()) << importer.status().ToString();
  const auto wanted = (*importer)->WantedFragments("d0p0t0");
  ASSERT_TRUE(wanted.ok());
  EXPECT_FALSE(wanted->empty());
  expect((*importer)->WantedFragments("d0p0t1").status(), Code::kInvalidArgument, "d0p0t1");
  const manifest::PlacementPart& part = *manifest::FindPart(*source, "d0p0t0");
  const manifest::PlacementFragment& fragment = part.fragments[0];
  const reshard::Bytes bytes = Content(*source, fragment);
  expect((*importer)->PutFragment("d0p0t0", "no-such", {bytes.data(), bytes.size(), {}}),
         Code::kInvalidArgument, "no fragment no-such");
  expect((*importer)->PutFragment("d0p0t1", fragment.placement_fragment_id,
                                  {bytes.data(), bytes.size(), {}}),
         Code::kInvalidArgument, "d0p0t1 is not one of this importer's");
  expect((*importer)->PutFragment("d0p0t0", fragment.placement_fragment_id,
                                  {bytes.data(), bytes.size() - 1, {}}),
         Code::kInvalidArgument,
         fragment.tensor_id + ": expected " + std::to_string(bytes.size()) + " bytes, got " +
             std::to_string(bytes.size() - 1));
  // After a refusal the same fragment may come again, but not after a success.
  const bool is_wanted =
      std::find(wanted->begin(), wanted->end(), fragment.placement_fragment_id) != wanted->end();
  EXPECT_TRUE(
      (*importer)
          ->PutFragment("d0p0t0", fragment.placement_fragment_id, {bytes.data(), bytes.size(), {}})
          .ok());
  if (is_wanted) {
    expect((*importer)->PutFragment("d0p0t0", fragment.placement_fragment_id,
                                    {bytes.data(), bytes.size(), {}}),
           Code::kConflict, "put before");
  }
  const Status incomplete = (*importer)->Finish().status();
  expect(incomplete, Code::kInvalidArgument, "fragments were not put of");
  expect(incomplete, Code::kInvalidArgument, "l0.up");
  expect((*importer)->Finish().status(), Code::kInvalidArgument, "over");
  EXPECT_TRUE((*importer)->Abort("again").ok());
  EXPECT_FALSE(
      (*importer)
          ->PutFragment("d0p0t0", fragment.placement_fragment_id, {bytes.data(), bytes.size(), {}})
          .ok());
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
}

TEST(ImportFaultTest, OneWriterThatAbortsEndsItForAll) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
  const auto a = cluster.NewClient();
  const auto b = cluster.NewClient();
  auto failing = a->BeginImport({identity, source, {"d0p0t0"}, {}});
  auto waiting = b->BeginImport({identity, source, {"d0p0t1"}, {}});
  ASSERT_TRUE(failing.ok() && waiting.ok());
  ASSERT_TRUE(PutAll(**waiting, *source, {"d0p0t1"}).ok());
  std::jthread finisher([&] {
    const Status status = (*waiting)->Finish().status();
    EXPECT_EQ(status.code(), Code::kCancelled) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("ValueError in rank 0"));
  });
  EXPECT_TRUE((*failing)->Abort("ValueError in rank 0").ok());
  finisher.join();
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  EXPECT_FALSE(*a->Exists(identity));
}

// The same outcome for a writer that has yet to hand in its receipt when the abort comes.
TEST(ImportFaultTest, AWriterThatFinishesAfterAnAbortHearsItsReason) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
  const auto a = cluster.NewClient();
  auto failing = a->BeginImport({identity, source, {"d0p0t0"}, {}});
  client::StoreClientOptions options;
  options.step_observer = [&](std::string_view step) {
    // Between writing its digests and handing in the receipt.
    if (step == client::import_step::kDigestsWritten) {
      EXPECT_TRUE((*failing)->Abort("ValueError in rank 0").ok());
    }
    return OkStatus();
  };
  const auto late = cluster.NewClient(options);
  auto finishing = late->BeginImport({identity, source, {"d0p0t1"}, {}});
  ASSERT_TRUE(failing.ok() && finishing.ok());
  ASSERT_TRUE(PutAll(**finishing, *source, {"d0p0t1"}).ok());
  const Status status = (*finishing)->Finish().status();
  EXPECT_EQ(status.code(), Code::kCancelled) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("ValueError in rank 0"));
}

TEST(ImportFaultTest, WaitingForOthersHasADeadlineAndCanBeCancelled) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  for (const bool by_callback : {false, true}) {
    const model::WeightIdentity identity = TestIdentity(by_callback ? 1 : 2);
    const manifest::PlacementPtr source = MakeLayout(identity, kLayout);
    auto importer = client->BeginImport({identity, source, {"d0p0t0"}, {}});
    ASSERT_TRUE(importer.ok());
    ASSERT_TRUE(PutAll(**importer, *source, {"d0p0t0"}).ok());
    client::WaitOptions wait;
    wait.timeout_ms = by_callback ? -1 : 50;
    int looks = 0;
    if (by_callback) wait.keep_waiting = [&] { return ++looks < 3; };
    const Status status = (*importer)->Finish(wait).status();
    EXPECT_EQ(status.code(), by_callback ? Code::kCancelled : Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("d0p0t1"));
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  }
}

// ---- reading ----

}  // namespace
}  // namespace mooncake::cluster
