// What goes wrong while a revision is read, and what must hold then: readers that fail or are
// refused at every step; Masters and nodes that die; bytes that change.
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
  // Renewed until the copy, however busy the machine; then waited for.
  options.lease_ttl_ms = 500;
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
  // A third of it passes between renewals; a busy machine may keep one waiting for another third.
  options.lease_ttl_ms = 1'200;
  options.step_observer = [&](std::string_view step) {
    if (step != client::load_step::kPlanned) return OkStatus();
    EXPECT_TRUE(TestCluster::Eventually([&] { return renewals >= 4; }));
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
  TestCluster cluster({.nodes = 1, .node_dead_after_ms = 1'000});
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
