// Balanced plans: the same bytes from other holders, evenly, the reader's own host first.
#include "reshard/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"
#include "reshard/plan_reuse.h"
#include "reshard/planner.h"
#include "reshard/random_extended.h"
#include "reshard/random_layouts.h"
#include "reshard/source_index.h"

namespace mooncake::reshard {
namespace {

using manifest::AxisKind;
using manifest::Fragment;
using manifest::Inventory;
using manifest::ParallelRank;
using manifest::PlacementFragment;
using manifest::PlacementPtr;
using manifest::Refused;
using manifest::Replicated;
using manifest::Split;
using manifest::Tensor;
using manifest::Topology;

// Tensors of these many elements, whole on every one of `dp` replicas.
PlacementPtr Replicas(int64_t dp, const std::vector<int64_t>& sizes, uint64_t generation = 1) {
  std::vector<ParallelRank> ranks;
  for (int64_t d = 0; d < dp; ++d) ranks.push_back({.dp = d});
  std::vector<manifest::TensorDescriptor> tensors;
  std::vector<PlacementFragment> fragments;
  for (size_t t = 0; t < sizes.size(); ++t) {
    const std::string id = "t" + std::to_string(t);
    tensors.push_back(Tensor(id, {sizes[t]}, {Replicated(AxisKind::kDp)}));
    for (const ParallelRank& rank : ranks) fragments.push_back(Fragment(id, {0}, {sizes[t]}, rank));
  }
  manifest::FragmentInventory inventory = Inventory(Topology(ranks), tensors, fragments);
  inventory.weight_generation = generation;
  return manifest::PlacementFromFragments(std::move(inventory)).value();
}

// Bytes that each source part sends.
std::vector<uint64_t> SentBytes(const LogicalPlan& plan) {
  const std::vector<uint32_t> part_of = PartsOfFragments(*plan.source_placement());
  std::vector<uint64_t> sent(plan.source_placement()->parts.size(), 0);
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    sent[part_of[plan.operations()[i].source]] += plan.region(i).total_bytes();
  }
  return sent;
}

uint64_t Spread(const std::vector<uint64_t>& sent) {
  const auto [least, most] = std::minmax_element(sent.begin(), sent.end());
  return *most - *least;
}

HostMap HostsOf(const manifest::Placement& placement,
                const std::function<std::string(size_t)>& host) {
  HostMap hosts;
  for (size_t p = 0; p < placement.parts.size(); ++p) {
    hosts[placement.parts[p].participant_id] = host(p);
  }
  return hosts;
}

TEST(Balance, ReadsOfEqualReplicasAreEvenToWithinOneFragment) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<int64_t> sizes(static_cast<size_t>(1 + Below(random, 12)));
    for (int64_t& size : sizes) size = 1 + Below(random, 40);
    const uint64_t largest =
        2 * static_cast<uint64_t>(*std::max_element(sizes.begin(), sizes.end()));
    const int64_t from = 1 + Below(random, 6), to = 1 + Below(random, 6);
    const PlacementPtr source = Replicas(from, sizes), target = Replicas(to, sizes);
    const Balance balance;
    const LogicalPlanPtr plan = PlanPlacement(source, target, {}, &balance).value();
    EXPECT_EQ(WhatIsWrong(*plan), "");
    EXPECT_LE(Spread(SentBytes(*plan)), largest) << from << " to " << to;
    // One participant alone: its own reads are even.
    for (const manifest::PlacementPart& part : target->parts) {
      const LogicalPlanPtr local =
          PlanPlacementToLocalTarget(source, target, part.participant_id, {}, &balance).value();
      EXPECT_EQ(WhatIsWrong(*local), "");
      EXPECT_LE(Spread(SentBytes(*local)), largest);
    }
  }
}

TEST(Balance, WithoutOneTheContractsChoiceStays) {
  const std::vector<int64_t> sizes(8, 4);
  const PlacementPtr source = Replicas(4, sizes), target = Replicas(1, sizes);
  // All from the first replica.
  EXPECT_THAT(SentBytes(*PlanPlacement(source, target).value()), testing::ElementsAre(64, 0, 0, 0));
  const Balance balance;
  EXPECT_THAT(SentBytes(*PlanPlacement(source, target, {}, &balance).value()),
              testing::ElementsAre(16, 16, 16, 16));
}

TEST(Balance, ParticipantsAloneBeginAtDifferentHolders) {
  const PlacementPtr source = Replicas(4, {10}), target = Replicas(4, {10});
  const Balance balance;
  std::vector<uint64_t> sent(4, 0);
  for (const manifest::PlacementPart& part : target->parts) {
    const std::vector<uint64_t> own = SentBytes(
        *PlanPlacementToLocalTarget(source, target, part.participant_id, {}, &balance).value());
    for (size_t p = 0; p < sent.size(); ++p) sent[p] += own[p];
  }
  EXPECT_THAT(sent, testing::Each(20));
}

TEST(Balance, ReplicasInsideAnAxisAreHoldersToo) {
  // Whole on both tp ranks; read by two targets that are cut in halves.
  std::vector<ParallelRank> ranks{{.tp = 0}, {.tp = 1}};
  std::vector<PlacementFragment> whole, halves;
  for (const ParallelRank& rank : ranks) {
    whole.push_back(Fragment("w", {0}, {8}, rank));
    halves.push_back(Fragment("w", {4 * rank.tp}, {4}, rank));
  }
  const PlacementPtr source =
      manifest::PlacementFromFragments(
          Inventory(Topology(ranks), {Tensor("w", {8}, {Replicated(AxisKind::kTp)})}, whole))
          .value();
  const PlacementPtr target =
      manifest::PlacementFromFragments(
          Inventory(Topology(ranks), {Tensor("w", {8}, {Split(AxisKind::kTp, 0)})}, halves))
          .value();
  const Balance balance;
  EXPECT_THAT(SentBytes(*PlanPlacement(source, target, {}, &balance).value()),
              testing::ElementsAre(8, 8));
  EXPECT_THAT(SentBytes(*PlanPlacement(source, target).value()), testing::ElementsAre(16, 0));
}

TEST(Balance, TheReadersOwnHostIsReadWhereItHoldsAReplica) {
  const std::vector<int64_t> sizes{5, 3, 8, 1};
  const PlacementPtr source = Replicas(4, sizes), target = Replicas(6, sizes);
  Balance balance;
  balance.source_hosts = HostsOf(*source, [](size_t p) { return "host-" + std::to_string(p / 2); });
  // The last two targets are on hosts where no source is.
  balance.target_hosts = HostsOf(*target, [](size_t p) { return "host-" + std::to_string(p / 2); });
  const LogicalPlanPtr plan = PlanPlacement(source, target, {}, &balance).value();
  EXPECT_EQ(WhatIsWrong(*plan), "");
  const std::vector<uint32_t> from = PartsOfFragments(*source), to = PartsOfFragments(*target);
  for (const PlannedOperation& operation : plan->operations()) {
    const uint32_t reader = to[operation.target];
    if (reader >= 4) continue;
    EXPECT_EQ(from[operation.source] / 2, reader / 2);
  }
  for (const manifest::PlacementPart& part : target->parts) {
    const LogicalPlanPtr local =
        PlanPlacementToLocalTarget(source, target, part.participant_id, {}, &balance).value();
    const uint32_t reader = *local->local_target_part();
    for (const PlannedOperation& operation : local->operations()) {
      if (reader >= 4) continue;
      EXPECT_EQ(from[operation.source] / 2, reader / 2);
    }
  }
}

TEST(Balance, WhoIsNotNamedIsNobodysNeighbour) {
  const PlacementPtr source = Replicas(2, {4, 4}), target = Replicas(2, {4, 4});
  Balance unnamed;
  unnamed.source_hosts = {{"p0", ""}};
  unnamed.target_hosts = {{"p1", ""}};
  const Balance none;
  EXPECT_EQ(SentBytes(*PlanPlacement(source, target, {}, &unnamed).value()),
            SentBytes(*PlanPlacement(source, target, {}, &none).value()));
}

RC_GTEST_PROP(Balance, TheSameBytesArriveWhateverTheLayouts, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<manifest::TensorDescriptor> tensors = RandomTensors(random);
  manifest::FragmentInventory from = RandomExtended(random, tensors);
  const PlacementPtr target =
      manifest::PlacementFromFragments(RandomExtended(random, tensors)).value();
  const PlacementPtr source = manifest::PlacementFromFragments(from).value();
  Balance balance;
  const auto host = [&random](size_t) { return "host-" + std::to_string(Below(random, 3)); };
  if (Chance(random, 70)) balance.source_hosts = HostsOf(*source, host);
  if (Chance(random, 70)) balance.target_hosts = HostsOf(*target, host);
  const auto plan = PlanPlacement(source, target, {}, &balance);
  const auto contract = PlanPlacement(source, target);
  RC_ASSERT(plan.status() == contract.status());
  if (!plan.ok()) return;
  RC_ASSERT(WhatIsWrong(**plan) == "");
  RC_ASSERT((*plan)->operations().size() == (*contract)->operations().size());
  RC_ASSERT((*plan)->total_segments() == (*contract)->total_segments());
  // The order of input never matters.
  std::shuffle(from.tensors.begin(), from.tensors.end(), random);
  std::shuffle(from.fragments.begin(), from.fragments.end(), random);
  const auto again =
      PlanPlacement(manifest::PlacementFromFragments(from).value(), target, {}, &balance);
  RC_ASSERT(std::equal((*again)->operations().begin(), (*again)->operations().end(),
                       (*plan)->operations().begin(), (*plan)->operations().end()));
  for (const manifest::PlacementPart& part : target->parts) {
    if (!manifest::HoldsElements(part)) continue;
    const auto local =
        PlanPlacementToLocalTarget(source, target, part.participant_id, {}, &balance).value();
    RC_ASSERT(WhatIsWrong(*local) == "");
  }
}

TEST(Balance, APlanWithAnotherBalanceIsAnotherPlan) {
  const PlacementPtr source = Replicas(2, {4, 4}), target = Replicas(2, {4, 4});
  const Balance even;
  Balance near;
  near.source_hosts = {{"p0", "a"}};
  const LogicalPlanPtr contract = PlanPlacement(source, target).value();
  const LogicalPlanPtr balanced = PlanPlacement(source, target, {}, &even).value();
  EXPECT_EQ(contract->balance_digest(), "");
  EXPECT_EQ(balanced->balance_digest(), DigestOf(even));
  EXPECT_NE(DigestOf(near), DigestOf(even));
  EXPECT_NE(GeometryDigestOf(*balanced), GeometryDigestOf(*contract));
  EXPECT_NE(GeometryDigestOf(*PlanPlacement(source, target, {}, &near).value()),
            GeometryDigestOf(*balanced));
}

TEST(Balance, ReuseAndFilesKeepIt) {
  const std::vector<int64_t> sizes{4, 4, 2};
  const PlacementPtr source = Replicas(3, sizes), target = Replicas(2, sizes);
  const PlacementPtr next_source = Replicas(3, sizes, 2), next_target = Replicas(2, sizes, 2);
  const Balance balance;
  const LogicalPlanPtr plan = PlanPlacement(source, target, {}, &balance).value();
  const auto reused = ReusePlan(*plan, {next_source, nullptr}, next_target).value();
  const auto planned = PlanPlacement(next_source, next_target, {}, &balance).value();
  EXPECT_EQ(SentBytes(*reused), SentBytes(*planned));
  EXPECT_EQ(reused->balance_digest(), plan->balance_digest());
  EXPECT_EQ(GeometryDigestOf(*reused), GeometryDigestOf(*plan));
  const std::string saved = SavePlan(*plan).value();
  EXPECT_TRUE(saved.starts_with("MCWPLAN2"));
  const auto loaded = LoadPlan(saved, {next_source, nullptr}, next_target).value();
  EXPECT_EQ(loaded->balance_digest(), plan->balance_digest());
  EXPECT_EQ(SentBytes(*loaded), SentBytes(*planned));
  for (size_t i = 0; i < saved.size(); ++i) {
    std::string damaged = saved;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(LoadPlan(damaged, {source, nullptr}, target).ok()) << i;
    EXPECT_FALSE(LoadPlan(saved.substr(0, i), {source, nullptr}, target).ok()) << i;
  }
  // A plan of the contract's choice is saved as ever.
  EXPECT_TRUE(SavePlan(*PlanPlacement(source, target).value()).value().starts_with("MCWPLAN1"));
}

TEST(Balance, LimitsAreThePlansOwn) {
  const PlacementPtr source = Replicas(2, {4, 4}), target = Replicas(2, {4, 4});
  const Balance balance;
  EXPECT_THAT(PlanPlacement(source, target, {.max_transfer_regions = 3}, &balance),
              Refused("exceeds max_transfer_regions: 3, it needs 4"));
}

TEST(HostOf, Endpoints) {
  EXPECT_EQ(HostOfEndpoint("node-1"), "node-1");
  EXPECT_EQ(HostOfEndpoint("node-1:8000"), "node-1");
  EXPECT_EQ(HostOfEndpoint("tcp://node-1:8000/x"), "node-1");
  EXPECT_EQ(HostOfEndpoint("[fe80::1]:8000"), "fe80::1");
  EXPECT_EQ(HostOfEndpoint("fe80::1"), "fe80::1");
  EXPECT_EQ(HostOfEndpoint("[fe80::1"), "[fe80::1");
  EXPECT_EQ(HostOfEndpoint(""), "");
}

TEST(HostOf, ABindingOfOneHost) {
  const PlacementPtr target = Replicas(1, {4, 4});
  manifest::RuntimeBinding binding = *BindMemory(*target, target->parts[0]).binding;
  EXPECT_EQ(HostOf(binding), "endpoint");
  binding.fragments[0].endpoint = "node-1:1";
  EXPECT_EQ(HostOf(binding), std::nullopt);
  binding.fragments[1].endpoint = "node-1:2";
  EXPECT_EQ(HostOf(binding), "node-1");
  binding.fragments.clear();
  EXPECT_EQ(HostOf(binding), std::nullopt);
}

}  // namespace
}  // namespace mooncake::reshard
