// Which replicas an upload plan compares, and with what.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/random_extended.h"
#include "reshard/upload_plan.h"

namespace mooncake::reshard {
namespace {

using manifest::AxisKind;
using manifest::Fragment;
using manifest::Inventory;
using manifest::ParallelRank;
using manifest::PlacementFragment;
using manifest::PlacementFromFragments;
using manifest::PlacementPtr;
using manifest::Refused;
using manifest::Replicated;
using manifest::Split;
using manifest::Tensor;
using manifest::Topology;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

UploadPlan Planned(const PlacementPtr& placement, ReplicaScope scope) {
  return PlanUpload(placement, "g", 1, scope).value();
}

std::string PartOf(const UploadPlan& plan, uint32_t fragment) {
  for (const auto& participant : plan.placement->topology.participants) {
    if (participant.rank == plan.placement->fragments[fragment].rank) {
      return participant.participant_id;
    }
  }
  return "?";
}

// "tensor@offset: replica's participant of uploader's", one a replica.
std::multiset<std::string> Compared(const UploadPlan& plan) {
  std::multiset<std::string> lines;
  for (const Replica& replica : plan.replicas) {
    const PlacementFragment& fragment = plan.placement->fragments[replica.fragment];
    const PlacementFragment& of = plan.placement->fragments[replica.of];
    lines.insert(fragment.tensor_id + "@" + std::to_string(fragment.global_offset[0]) + ": " +
                 PartOf(plan, replica.fragment) + " of " + PartOf(plan, replica.of) +
                 (of.tensor_id == fragment.tensor_id ? "" : " (" + of.tensor_id + ")"));
  }
  return lines;
}

// dp2 x tp2: a norm on every rank, a weight split over tp.
PlacementPtr Grid() {
  std::vector<ParallelRank> ranks;
  std::vector<PlacementFragment> fragments;
  for (int64_t dp = 0; dp < 2; ++dp) {
    for (int64_t tp = 0; tp < 2; ++tp) {
      ranks.push_back({.dp = dp, .tp = tp});
      fragments.push_back(Fragment("norm", {0}, {4}, ranks.back()));
      fragments.push_back(Fragment("w", {4 * tp}, {4}, ranks.back()));
    }
  }
  const auto dp = Replicated(AxisKind::kDp);
  return PlacementFromFragments(Inventory(Topology(ranks),
                                          {Tensor("norm", {4}, {dp, Replicated(AxisKind::kTp)}),
                                           Tensor("w", {8}, {dp, Split(AxisKind::kTp, 0)})},
                                          fragments))
      .value();
}

TEST(ReplicasTest, InsideTheSelectedReplicaUnlessAllAreAskedFor) {
  const PlacementPtr grid = Grid();
  const UploadPlan none = Planned(grid, ReplicaScope::kNone);
  EXPECT_THAT(none.replicas, IsEmpty());
  EXPECT_THAT(UploadPlanText(none), Not(HasSubstr("replica ")));

  const UploadPlan selected = Planned(grid, ReplicaScope::kSelected);
  EXPECT_THAT(Compared(selected), ElementsAre("norm@0: p1 of p0"));
  EXPECT_TRUE(selected.participants[1].hands_in());
  EXPECT_FALSE(selected.participants[2].hands_in());

  const UploadPlan all = Planned(grid, ReplicaScope::kAll);
  EXPECT_THAT(Compared(all),
              UnorderedElementsAre("norm@0: p1 of p0", "norm@0: p2 of p0", "norm@0: p3 of p0",
                                   "w@0: p2 of p0", "w@4: p3 of p1"));
  EXPECT_THAT(all.participants[2].objects, IsEmpty());
  EXPECT_EQ(all.participants[2].replicas.size(), 2u);
  EXPECT_TRUE(all.participants[2].hands_in());
  // What is uploaded is the same; what must be handed in is in the digest.
  EXPECT_EQ(all.nbytes, none.nbytes);
  EXPECT_EQ(std::set({none.plan_sha256, selected.plan_sha256, all.plan_sha256}).size(), 3u);
}

TEST(ReplicasTest, WithoutReplicasThePlanIsTheSameInEveryScope) {
  const PlacementPtr split = PlacementFromFragments(manifest::MiniInventory()).value();
  EXPECT_EQ(Planned(split, ReplicaScope::kAll).plan_sha256,
            Planned(split, ReplicaScope::kNone).plan_sha256);
}

// Both pipeline ends own a whole copy: owners of one tensor, though the store reads the first
// alone.
TEST(ReplicasTest, AnotherOwnerInTheSelectedReplicaIsCompared) {
  const PlacementPtr ends =
      PlacementFromFragments(Inventory(Topology({{.pp = 0}, {.pp = 1}}),
                                       {Tensor("embed", {4}, {manifest::Owned(AxisKind::kPp)})},
                                       {Fragment("embed", {0}, {4}, {.pp = 0}),
                                        Fragment("embed", {0}, {4}, {.pp = 1})}))
          .value();
  EXPECT_THAT(Compared(Planned(ends, ReplicaScope::kSelected)), ElementsAre("embed@0: p1 of p0"));
}

// Tied weights at both pipeline ends are two memories under two names; on one rank they are one.
TEST(ReplicasTest, ATiedNameOnAnotherRankIsCompared) {
  const std::vector<std::string> tie{"embed", "head"};
  const auto owned = manifest::Owned(AxisKind::kPp);
  const auto tied = [&](int64_t head_on) {
    return PlacementFromFragments(
               Inventory(Topology({{.pp = 0}, {.pp = 1}}),
                         {Tensor("embed", {4}, {owned}), Tensor("head", {4}, {owned}),
                          Tensor("x", {4}, {owned})},
                         {Fragment("embed", {0}, {4}, {.pp = 0}, tie),
                          Fragment("head", {0}, {4}, {.pp = head_on}, tie),
                          Fragment("x", {0}, {4}, {.pp = 1})}))
        .value();
  };
  EXPECT_THAT(Compared(Planned(tied(1), ReplicaScope::kSelected)),
              ElementsAre("head@0: p1 of p0 (embed)"));
  EXPECT_THAT(Planned(tied(0), ReplicaScope::kAll).replicas, IsEmpty());
}

TEST(ReplicasTest, AReplicaThatIsCutOtherwiseCannotBeCompared) {
  const auto axes = std::vector{Replicated(AxisKind::kDp), Split(AxisKind::kTp, 0)};
  const PlacementPtr uneven =
      PlacementFromFragments(
          Inventory(
              Topology(
                  {{.dp = 0, .tp = 0}, {.dp = 0, .tp = 1}, {.dp = 1, .tp = 0}, {.dp = 1, .tp = 1}}),
              {Tensor("w", {8}, axes)},
              {Fragment("w", {0}, {4}, {.dp = 0, .tp = 0}),
               Fragment("w", {4}, {4}, {.dp = 0, .tp = 1}),
               Fragment("w", {0}, {3}, {.dp = 1, .tp = 0}),
               Fragment("w", {3}, {5}, {.dp = 1, .tp = 1})}))
          .value();
  EXPECT_THAT(Planned(uneven, ReplicaScope::kSelected).replicas, IsEmpty());
  EXPECT_THAT(PlanUpload(uneven, "g", 1, ReplicaScope::kAll),
              Refused("replicas cannot be compared: w: p2 holds"));
}

// Of every placement: each fragment is compared at most once, with an uploaded one of its own box;
// with kAll no other fragment is left.
RC_GTEST_PROP(ReplicasTest, EveryFragmentIsUploadedOrCompared, ()) {
  Random random(*rc::gen::noShrink(rc::gen::arbitrary<uint64_t>()));
  const auto tensors = RandomTensors(random);
  const auto placement = PlacementFromFragments(RandomExtended(random, tensors)).value();
  const auto box_of = [&](uint32_t f) {
    const PlacementFragment& fragment = placement->fragments[f];
    return std::tuple(fragment.tensor_id, fragment.global_offset, fragment.local_shape);
  };
  std::map<ReplicaScope, std::set<std::pair<uint32_t, uint32_t>>> compared;
  for (const ReplicaScope scope : {ReplicaScope::kSelected, ReplicaScope::kAll}) {
    const auto plan = PlanUpload(placement, "g", 64, scope);
    if (!plan.ok()) {
      RC_ASSERT(scope == ReplicaScope::kAll);
      RC_ASSERT(plan.status().message().starts_with("replicas cannot be compared"));
      return;
    }
    std::set<uint32_t> seen;
    for (const PayloadObject& object : plan->objects) {
      for (const UploadedFragment& uploaded : object.fragments) seen.insert(uploaded.fragment);
    }
    const std::set<uint32_t> uploaded = seen;
    for (const Replica& replica : plan->replicas) {
      RC_ASSERT(uploaded.contains(replica.of));
      RC_ASSERT(seen.insert(replica.fragment).second);
      RC_ASSERT(box_of(replica.fragment) == box_of(replica.of));
      compared[scope].emplace(replica.fragment, replica.of);
    }
    if (scope == ReplicaScope::kAll) {
      for (uint32_t f = 0; f < placement->fragments.size(); ++f) {
        RC_ASSERT(seen.contains(f) != placement->fragments[f].is_empty());
      }
    }
    size_t listed = 0;
    for (const ParticipantUpload& participant : plan->participants) {
      listed += participant.replicas.size();
      for (const uint32_t f : participant.compared) RC_ASSERT(uploaded.contains(f));
    }
    RC_ASSERT(listed == plan->replicas.size());
  }
  for (const auto& pair : compared[ReplicaScope::kSelected]) {
    RC_ASSERT(compared[ReplicaScope::kAll].contains(pair));
  }
}

}  // namespace
}  // namespace mooncake::reshard
