// What goes wrong, and what must hold then: writers and readers that fail, vanish or are refused at
// every step; Masters and nodes that die; bytes that change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "client/steps.h"
#include "cluster/test_cluster.h"
#include "cluster/test_publish.h"

namespace mooncake::cluster {
namespace {

using client::StepObserver;
using testing::HasSubstr;

// Tells which steps were passed, and acts at one occurrence of one of them.
class StepTrap {
 public:
  StepObserver Observer() {
    return [this](std::string_view step) {
      std::unique_lock lock(mutex_);
      passed_.emplace_back(step);
      if (passed_.size() - 1 != at_) return OkStatus();
      lock.unlock();
      return action_();
    };
  }
  void ActAt(size_t occurrence, std::function<Status()> action) {
    at_ = occurrence;
    action_ = std::move(action);
  }
  std::vector<std::string> passed() {
    std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> passed_;
  size_t at_ = SIZE_MAX;
  std::function<Status()> action_;
};

// The steps of one undisturbed publish of this placement by one client.
std::vector<std::string> StepsOfPublish(const TestLayout& layout) {
  TestCluster cluster;
  StepTrap trap;
  client::StoreClientOptions options;
  options.step_observer = trap.Observer();
  const auto client = cluster.NewClient(options);
  const auto report = Publish(*client, TestIdentity(), MakeLayout(TestIdentity(), layout));
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return trap.passed();
}

// Step numbers that differ in what has happened: the first and last occurrence of each name.
std::vector<size_t> InterestingSteps(const std::vector<std::string>& steps) {
  std::set<size_t> chosen;
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!last.contains(steps[i])) chosen.insert(i);
    last[steps[i]] = i;
  }
  for (const auto& [name, at] : last) chosen.insert(at);
  return {chosen.begin(), chosen.end()};
}

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
    options.import_ttl_ms = 100;
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

class LoadFaultTest : public testing::Test {
 protected:
  void PublishModel(TestCluster& cluster, uint64_t generation = 1) {
    const model::WeightIdentity identity = TestIdentity(generation);
    const auto client = cluster.NewClient();
    const auto report = Publish(*client, identity, MakeLayout(identity, kLayout));
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  }
};

TEST_F(LoadFaultTest, AReaderKeepsTheRevisionFromBeingRemoved) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr target = MakeLayout(identity, {});
  const auto remover = cluster.NewClient();
  StepTrap trap;
  trap.ActAt(0, [&] {  // leased
    const Status busy = remover->Remove(identity).status();
    EXPECT_EQ(busy.code(), Code::kBusy) << busy.ToString();
    EXPECT_THAT(busy.message(), HasSubstr("reader-7"));
    // Probes are not readers: they extend nothing and hold nothing.
    EXPECT_TRUE(*remover->Exists(identity));
    return OkStatus();
  });
  client::StoreClientOptions options;
  options.step_observer = trap.Observer();
  options.holder = "reader-7";
  const auto client = cluster.NewClient(options);
  const TargetMemory memory(target, "d0p0t0");
  ASSERT_TRUE(client->Load(identity, {memory.target()}).ok());
  EXPECT_EQ(memory.WhatIsWrong(), "");

  const auto view = remover->GetMetadata(identity);
  client::RemoveOptions stale;
  stale.expected_metadata_generation = view->metadata.metadata_generation.value + 1;
  EXPECT_EQ(remover->Remove(identity, stale).status().code(), Code::kStaleGeneration);
  const auto removed = remover->Remove(identity);
  ASSERT_TRUE(removed.ok()) << removed.status().ToString();
  EXPECT_EQ(removed->availability, model::Availability::kDeleted);
  EXPECT_EQ(removed->observed_residency, model::Residency::kAbsent);
  ASSERT_TRUE(remover->Remove(identity).ok());
  EXPECT_FALSE(*remover->Exists(identity));
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  const TargetMemory late(target, "d0p0t0");
  const Status gone = client->Load(identity, {late.target()}).status();
  EXPECT_FALSE(gone.ok());
  EXPECT_THAT(gone.message(), HasSubstr("no byte of a target was written"));
  EXPECT_TRUE(late.Untouched());
  // A tombstone is not published onto.
  EXPECT_EQ(Publish(*remover, identity, MakeLayout(identity, kLayout)).status().code(),
            Code::kStaleGeneration);
}

TEST_F(LoadFaultTest, ALostLeaseIsSeenBeforeDataIsHandedOver) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const auto remover = cluster.NewClient();
  std::atomic<bool> cut{false};
  HookedMaster* hooks = nullptr;
  client::StoreClientOptions options;
  options.lease_ttl_ms = 60;
  options.step_observer = [&](std::string_view step) {
    if (step != client::load_step::kGroupCopied) return OkStatus();
    // Stalled: no renewal gets through until the Master has given the lease up.
    cut = true;
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Status().active_leases() == 0; }));
    EXPECT_TRUE(remover->Remove(identity).ok());
    cut = false;
    return OkStatus();
  };
  const auto client = cluster.NewClient(options, &hooks);
  hooks->before = [&](std::string_view method) {
    return cut && method == "RenewLeases" ? Unavailable("stalled") : OkStatus();
  };
  const TargetMemory memory(MakeLayout(identity, {}), "d0p0t0");
  const Status status = client->Load(identity, {memory.target()}).status();
  EXPECT_EQ(status.code(), Code::kLeaseExpired) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("the targets are invalid"));
}

TEST_F(LoadFaultTest, ASlowLoadOutlivesItsTtlByRenewing) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  std::atomic<int> renewals{0};
  HookedMaster* hooks = nullptr;
  client::StoreClientOptions options;
  options.lease_ttl_ms = 60;
  options.step_observer = [&](std::string_view step) {
    if (step != client::load_step::kPlanned) return OkStatus();
    EXPECT_TRUE(TestCluster::Eventually([&] { return renewals >= 8; }));
    return OkStatus();
  };
  const auto client = cluster.NewClient(options, &hooks);
  hooks->before = [&](std::string_view method) {
    if (method == "RenewLeases") ++renewals;
    return OkStatus();
  };
  LoadEveryRank(*client, identity, MakeLayout(identity, {}));
}

TEST_F(LoadFaultTest, AFailureAtAnyStepReleasesTheLeaseAndSaysWhatTheTargetsAre) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr target = MakeLayout(identity, {});
  StepTrap first;
  client::StoreClientOptions options;
  options.step_observer = first.Observer();
  {
    const auto client = cluster.NewClient(options);
    const TargetMemory memory(target, "d0p0t0");
    ASSERT_TRUE(client->Load(identity, {memory.target()}).ok());
  }
  const std::vector<std::string> steps = first.passed();
  ASSERT_EQ(steps.back(), client::load_step::kReleased);
  for (size_t at = 0; at < steps.size(); ++at) {
    SCOPED_TRACE(steps[at]);
    StepTrap trap;
    trap.ActAt(at, [] { return Cancelled("stopped by the test"); });
    options.step_observer = trap.Observer();
    const auto client = cluster.NewClient(options);
    const TargetMemory memory(target, "d0p0t0");
    const Status status = client->Load(identity, {memory.target()}).status();
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_EQ(cluster.Status().active_leases(), 0u);
    const bool untouched = memory.Untouched();
    EXPECT_THAT(status.message(), HasSubstr(untouched ? "no byte of a target was written"
                                                      : "the targets are invalid"));
    const bool before_copy =
        steps[at] == client::load_step::kLeased || steps[at] == client::load_step::kManifestRead ||
        steps[at] == client::load_step::kPlanned || steps[at] == client::load_step::kLocated;
    EXPECT_EQ(untouched, before_copy);
  }
}

TEST_F(LoadFaultTest, CancelByTokenAndByProgress) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr target = MakeLayout(identity, {});
  const auto client = cluster.NewClient();
  {
    const TargetMemory memory(target, "d0p0t0");
    client::LoadOptions options;
    std::vector<client::LoadProgress> seen;
    options.progress = [&](const client::LoadProgress& progress) {
      seen.push_back(progress);
      return true;
    };
    ASSERT_TRUE(client->Load(identity, {memory.target()}, options).ok());
    ASSERT_FALSE(seen.empty());
    EXPECT_EQ(seen.back().bytes_done, memory.nbytes());
    EXPECT_EQ(seen.back().bytes_total, memory.nbytes());
  }
  {
    const TargetMemory memory(target, "d0p0t0");
    client::LoadOptions options;
    options.progress = [](const client::LoadProgress&) { return false; };
    const Status status = client->Load(identity, {memory.target()}, options).status();
    EXPECT_EQ(status.code(), Code::kCancelled);
  }
  {
    const TargetMemory memory(target, "d0p0t0");
    std::stop_source source;
    source.request_stop();
    client::LoadOptions options;
    options.cancel = source.get_token();
    const Status status = client->Load(identity, {memory.target()}, options).status();
    EXPECT_EQ(status.code(), Code::kCancelled);
    EXPECT_TRUE(memory.Untouched());
    EXPECT_THAT(status.message(), HasSubstr("no byte of a target was written"));
  }
  EXPECT_EQ(cluster.Status().active_leases(), 0u);
}

TEST_F(LoadFaultTest, TargetsThatDoNotFitAreRefusedUntouched) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const auto client = cluster.NewClient();
  const auto expect = [&](const std::vector<client::LoadTarget>& targets, Code code,
                          const std::string& part) {
    const Status status = client->Load(identity, targets).status();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(part));
    EXPECT_THAT(status.message(), HasSubstr("no byte of a target was written"));
    EXPECT_EQ(cluster.Status().active_leases(), 0u);
  };
  expect({}, Code::kInvalidArgument, "targets");
  expect({{nullptr, nullptr}}, Code::kInvalidArgument, "targets[0] has no placement");

  const TargetMemory good(MakeLayout(identity, {}), "d0p0t0");
  expect({{good.target().placement, nullptr}}, Code::kInvalidArgument, "no binding");
  expect({good.target(), good.target()}, Code::kInvalidArgument, "overlap in memory");

  const TargetMemory later(MakeLayout(TestIdentity(2), {}), "d0p0t0");
  expect({later.target()}, Code::kInvalidArgument, "weight_generation");

  std::vector<TestTensor> tensors = TestModel();
  tensors[0].shape = {1000, 65};
  const TargetMemory shape(MakeLayout(identity, {}, tensors), "d0p0t0");
  expect({shape.target()}, Code::kInvalidArgument, "embed");
  tensors = TestModel();
  tensors.push_back({"unknown", {4}, 2, -1, 0});
  const TargetMemory unknown(MakeLayout(identity, {}, tensors), "d0p0t0");
  expect({unknown.target()}, Code::kInvalidArgument, "unknown");
  tensors = TestModel();
  tensors[2].itemsize = 4;
  const TargetMemory dtype(MakeLayout(identity, {}, tensors), "d0p0t0");
  expect({dtype.target()}, Code::kInvalidArgument, "l0.up");

  manifest::RuntimeBinding binding = *good.target().binding;
  for (auto& fragment : binding.fragments) fragment.device = "cuda:0";
  expect({{good.target().placement, *manifest::MakeRuntimeBinding(binding)}}, Code::kUnsupported,
         "cuda:0");
  binding = *good.target().binding;
  binding.placement_digest = std::string(64, '0');
  expect({{good.target().placement, *manifest::MakeRuntimeBinding(binding)}},
         Code::kInvalidArgument, "digest");
  for (const TargetMemory* memory : {&good, &later, &shape, &unknown, &dtype}) {
    EXPECT_TRUE(memory->Untouched());
  }
}

// Nothing that a node answers is believed before it matches what the Master knows.
TEST_F(LoadFaultTest, ForeignManifestsAndDigestsAreRefused) {
  TestCluster cluster;
  PublishModel(cluster, 1);
  PublishModel(cluster, 2);
  const model::WeightIdentity identity = TestIdentity(1);
  std::map<std::string, std::string> foreign;  // of the other revision
  cluster.on_read_metadata = [&](const std::string& name, Result<std::string> content) {
    if (content.ok()) foreign[name] = *content;
    return content;
  };
  LoadEveryRank(*cluster.NewClient(), TestIdentity(2), MakeLayout(TestIdentity(2), {}));
  ASSERT_EQ(foreign.size(), 3u);  // the manifest and two digests objects
  for (const auto& [victim, other] : foreign) {
    for (const std::string how : {"foreign", "cut", "flipped", "missing", "empty"}) {
      SCOPED_TRACE(victim + " " + how);
      cluster.on_read_metadata = [&](const std::string& name,
                                     Result<std::string> content) -> Result<std::string> {
        if (name != victim || !content.ok()) return content;
        if (how == "foreign") return other;
        if (how == "cut") return content->substr(0, content->size() - 1);
        if (how == "missing") return NotFound("not here");
        if (how == "empty") return std::string();
        std::string flipped = *content;
        flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 2);
        return flipped;
      };
      const auto client = cluster.NewClient();
      const TargetMemory memory(MakeLayout(identity, {}), "d0p0t0");
      const auto report = client->Load(identity, {memory.target()});
      // Equal content has equal digests objects; every other difference must be found.
      if (how == "foreign" && victim != "manifest") {
        EXPECT_TRUE(report.ok());
        continue;
      }
      EXPECT_EQ(report.status().code(), Code::kCorrupt) << report.status().ToString();
      EXPECT_THAT(report.status().message(), HasSubstr(victim));
      EXPECT_TRUE(memory.Untouched());
      EXPECT_EQ(cluster.Status().active_leases(), 0u);
    }
  }
}

TEST_F(LoadFaultTest, TheMasterMayRestartAtAnyStepOfALoad) {
  TestCluster cluster;
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr target = MakeLayout(identity, {.tp = 3});
  for (size_t at = 0; at < 8; ++at) {
    StepTrap trap;
    trap.ActAt(at, [&] {
      cluster.master().Kill();
      cluster.master().Start();
      return OkStatus();
    });
    client::StoreClientOptions options;
    options.step_observer = trap.Observer();
    const auto client = cluster.NewClient(options);
    const TargetMemory memory(target, "d0p0t1");
    const auto report = client->Load(identity, {memory.target()});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(memory.WhatIsWrong(), "");
  }
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Status().active_leases() == 0; }));
}

TEST_F(LoadFaultTest, ADeadNodeMakesItsRevisionsDegradedAndNothingWrong) {
  TestCluster cluster({.nodes = 1});
  PublishModel(cluster);
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr target = MakeLayout(identity, {});
  client::StoreClientOptions options;
  options.retry_ms = 200;
  const auto client = cluster.NewClient(options);
  cluster.KillNode(0);
  {
    // Not noticed yet, or noticed: never wrong bytes, never a success.
    const TargetMemory memory(target, "d0p0t0");
    const Status status = client->Load(identity, {memory.target()}).status();
    EXPECT_TRUE(status.code() == Code::kUnavailable || status.code() == Code::kNotReady)
        << status.ToString();
    EXPECT_TRUE(memory.Untouched());
  }
  ASSERT_TRUE(TestCluster::Eventually([&] {
    return client->GetMetadata(identity)->metadata.availability == model::Availability::kDegraded;
  }));
  EXPECT_THAT(client->GetMetadata(identity)->metadata.state_reason, HasSubstr("n0"));
  EXPECT_FALSE(*client->Exists(identity));
  // Another process of the same node: its memory is new.
  cluster.StartNode(0);
  const TargetMemory memory(target, "d0p0t0");
  const Status status = client->Load(identity, {memory.target()}).status();
  EXPECT_EQ(status.code(), Code::kNotReady) << status.ToString();
  EXPECT_TRUE(memory.Untouched());
  EXPECT_EQ(client->GetMetadata(identity)->metadata.availability, model::Availability::kDegraded);
  ASSERT_TRUE(client->Remove(identity).ok());
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
}

}  // namespace
}  // namespace mooncake::cluster
