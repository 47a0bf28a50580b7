// The planner's choices, orders, limits and refusals, one by one.
#include "reshard/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"

namespace mooncake::reshard {
namespace {

using manifest::AxisKind;
using manifest::Extents;
using manifest::Fragment;
using manifest::FragmentInventory;
using manifest::Inventory;
using manifest::Owned;
using manifest::ParallelRank;
using manifest::PlacementFragment;
using manifest::PlacementFromFragments;
using manifest::PlacementPtr;
using manifest::Refused;
using manifest::Replicated;
using manifest::Split;
using manifest::StoredManifest;
using manifest::StoredManifestPtr;
using manifest::Tensor;
using manifest::TensorDescriptor;
using manifest::Topology;
using testing::ElementsAre;
using testing::HasSubstr;

PlacementPtr Placement(FragmentInventory inventory) {
  return PlacementFromFragments(std::move(inventory)).value();
}

// "w" of `shape`, cut along `dim` into pieces of these extents, one tensor-parallel rank each.
PlacementPtr Cut(const Extents& shape, int64_t dim, const Extents& extents,
                 const std::string& id = "w") {
  std::vector<ParallelRank> ranks;
  std::vector<PlacementFragment> fragments;
  Extents offset(shape.size(), 0);
  for (size_t r = 0; r < extents.size(); ++r) {
    ranks.push_back({.tp = static_cast<int64_t>(r)});
    Extents local = shape;
    local[static_cast<size_t>(dim)] = extents[r];
    fragments.push_back(Fragment(id, offset, local, ranks.back()));
    offset[static_cast<size_t>(dim)] += extents[r];
  }
  return Placement(
      Inventory(Topology(ranks), {Tensor(id, shape, {Split(AxisKind::kTp, dim)})}, fragments));
}

// One participant that holds "w" whole.
PlacementPtr Whole(const Extents& shape) { return Cut(shape, 0, {shape[0]}); }

StoredManifestPtr Stored(const PlacementPtr& placement) {
  const UploadPlan upload = PlanUpload(placement, "g").value();
  return BuildStoredManifest(upload, "d", "2026-01-01T00:00:00Z").value();
}

TEST(PlannerTest, RowsToColumns) {  // case A1
  const auto plan = PlanPlacement(Cut({8, 6}, 0, {4, 4}), Cut({8, 6}, 1, {3, 3}));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(WhatIsWrong(**plan), "");
  EXPECT_EQ((*plan)->operations().size(), 4u);
  EXPECT_EQ((*plan)->total_bytes(), 96u);
  EXPECT_EQ((*plan)->total_segments(), 16u);
}

TEST(PlannerTest, UnevenDivision) {  // cases A3 and A9
  for (const Extents& from : {Extents{2, 2, 1}, Extents{2, 1, 1, 1}, Extents{5}, Extents{1, 4}}) {
    for (const Extents& to :
         {Extents{2, 2, 1}, Extents{1, 1, 3}, Extents{5}, Extents{1, 1, 1, 2}}) {
      const PlacementPtr source = Cut({5, 3}, 0, from);
      const PlacementPtr target = Cut({5, 3}, 0, to);
      const auto plan = PlanPlacement(source, target);
      ASSERT_TRUE(plan.ok());
      EXPECT_EQ(WhatIsWrong(**plan), "");
      const auto stored = PlanStored(Stored(source), target);
      ASSERT_TRUE(stored.ok());
      EXPECT_EQ(WhatIsWrong(**stored), "");
    }
  }
  // Eight single rows read by four ranks.
  const auto plan = PlanPlacement(Cut({8, 4}, 0, Extents(8, 1)), Cut({8, 4}, 0, {2, 2, 2, 2}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(WhatIsWrong(**plan), "");
  EXPECT_EQ((*plan)->operations().size(), 8u);
}

TEST(PlannerTest, CrossDimensionCutNeedsRegionsNotRows) {
  const Extents shape{32, 8192, 8192};
  const auto plan = PlanPlacement(Cut(shape, 0, Extents(8, 4)), Cut(shape, 2, Extents(8, 1024)));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ((*plan)->operations().size(), 64u);
  EXPECT_EQ((*plan)->total_segments(), 8u * 32 * 8192);
  const geometry::StridedRegion region = geometry::Coalesced((*plan)->region(9));
  EXPECT_EQ(region.loops, 1);
  EXPECT_EQ(region.inner_bytes, 2048u);
}

TEST(PlannerTest, TargetReplicasAreSpreadOverCompleteSourceReplicas) {
  const TensorDescriptor w = Tensor("w", {4}, {Replicated(AxisKind::kDp)});
  const auto replicas = [&](int64_t dp_size) {
    std::vector<ParallelRank> ranks;
    std::vector<PlacementFragment> fragments;
    for (int64_t dp = 0; dp < dp_size; ++dp) {
      ranks.push_back({.dp = dp});
      fragments.push_back(Fragment("w", {0}, {4}, ranks.back()));
    }
    return Placement(Inventory(Topology(ranks), {w}, fragments));
  };
  const auto plan = PlanPlacement(replicas(2), replicas(5));
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ((*plan)->operations().size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    const auto& source = (*plan)->source_placement_fragments()[(*plan)->operations()[i].source];
    EXPECT_EQ(source.rank.dp, (*plan)->target_fragment(i).rank.dp % 2);
  }
  // A local plan reads what the whole plan reads for that rank.
  const auto local = PlanPlacementToLocalTarget(replicas(2), replicas(5), "p3");
  ASSERT_TRUE(local.ok());
  EXPECT_EQ((*local)->source_placement_fragments()[(*local)->operations()[0].source].rank.dp, 1);
  EXPECT_THAT((*local)->source_executors(), ElementsAre(1));
  EXPECT_THAT((*local)->target_executors(), ElementsAre(3));
}

TEST(PlannerTest, ReadsTheSmallestOwnerAndTheFirstRankOfABox) {
  // Both pipeline stages own "w" whole; within a stage both tp ranks replicate it.
  const TensorDescriptor w = Tensor("w", {4}, {Owned(AxisKind::kPp), Replicated(AxisKind::kTp)});
  std::vector<ParallelRank> ranks;
  std::vector<PlacementFragment> fragments;
  for (int64_t pp = 0; pp < 2; ++pp) {
    for (int64_t tp = 0; tp < 2; ++tp) {
      ranks.push_back({.tp = tp, .pp = pp});
      fragments.push_back(Fragment("w", {0}, {4}, ranks.back()));
    }
  }
  const auto plan =
      PlanPlacement(Placement(Inventory(Topology(ranks), {w}, fragments)), Whole({4}));
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ((*plan)->operations().size(), 1u);
  const auto& source = (*plan)->source_placement_fragments()[(*plan)->operations()[0].source];
  EXPECT_EQ(source.rank, (ParallelRank{.tp = 0, .pp = 0}));
}

TEST(PlannerTest, OnlyCompleteReplicasAreRead) {
  // Within dp 0 the two tp replicas are cut differently; dp 1 and dp 2 hold the tensor well.
  std::vector<ParallelRank> ranks;
  std::vector<PlacementFragment> fragments;
  for (int64_t dp = 0; dp < 3; ++dp) {
    for (int64_t tp = 0; tp < 2; ++tp) {
      ranks.push_back({.dp = dp, .tp = tp});
      if (dp == 0 && tp == 1) {
        fragments.push_back(Fragment("w", {0}, {1}, ranks.back()));
        fragments.push_back(Fragment("w", {1}, {3}, ranks.back()));
      } else {
        fragments.push_back(Fragment("w", {0}, {4}, ranks.back()));
      }
    }
  }
  const PlacementPtr source = Placement(Inventory(
      Topology(ranks), {Tensor("w", {4}, {Replicated(AxisKind::kDp), Replicated(AxisKind::kTp)})},
      fragments));
  const PlacementPtr target = Placement(Inventory(
      Topology({{.dp = 0}, {.dp = 1}, {.dp = 2}}), {Tensor("w", {4}, {Replicated(AxisKind::kDp)})},
      {Fragment("w", {0}, {4}, {.dp = 0}), Fragment("w", {0}, {4}, {.dp = 1}),
       Fragment("w", {0}, {4}, {.dp = 2})}));
  const auto plan = PlanPlacement(source, target);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(WhatIsWrong(**plan), "");
  for (size_t i = 0; i < 3; ++i) {
    const auto& from = (*plan)->source_placement_fragments()[(*plan)->operations()[i].source];
    EXPECT_EQ(from.rank.dp, 1 + (*plan)->target_fragment(i).rank.dp % 2);
    EXPECT_EQ(from.rank.tp, 0);
  }
  const UploadPlan upload = PlanUpload(source, "g").value();
  ASSERT_EQ(upload.objects.size(), 1u);
  EXPECT_EQ(upload.placement->fragments[upload.objects[0].fragments[0].fragment].rank.dp, 1);
}

TEST(PlannerTest, DpOwnedTensorIsReadFromItsOwner) {
  const TensorDescriptor w = Tensor("w", {4}, {Owned(AxisKind::kDp)});
  const TensorDescriptor v = Tensor("v", {2}, {Replicated(AxisKind::kDp)});
  const PlacementPtr source =
      Placement(Inventory(Topology({{.dp = 0}, {.dp = 1}}), {w, v},
                          {Fragment("w", {0}, {4}, {.dp = 1}), Fragment("v", {0}, {2}, {.dp = 0}),
                           Fragment("v", {0}, {2}, {.dp = 1})}));
  const PlacementPtr target =
      Placement(Inventory(Topology({{}}), {Tensor("w", {4}), Tensor("v", {2})},
                          {Fragment("w", {0}, {4}), Fragment("v", {0}, {2})}));
  const auto plan = PlanPlacement(source, target);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(WhatIsWrong(**plan), "");
  for (size_t i = 0; i < 2; ++i) {
    const auto& from = (*plan)->source_placement_fragments()[(*plan)->operations()[i].source];
    EXPECT_EQ(from.rank.dp, from.tensor_id == "w" ? 1 : 0);
  }
  // And as a target: its owner alone receives it.
  const auto back = PlanPlacement(target, source);
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(WhatIsWrong(**back), "");
  EXPECT_EQ((*back)->operations().size(), 3u);
}

TEST(PlannerTest, InputOrderNeverChangesAPlan) {
  const PlacementPtr source = Cut({12, 5}, 0, {1, 4, 2, 5});
  const PlacementPtr target = Cut({12, 5}, 1, {2, 3});
  StoredManifest stored = *Stored(source);
  const auto expected = PlanStored(Stored(source), target);
  ASSERT_TRUE(expected.ok());
  std::mt19937_64 random(3);
  for (int round = 0; round < 10; ++round) {
    std::shuffle(stored.fragments.begin(), stored.fragments.end(), random);
    const auto plan = PlanStored(MakeStoredManifest(stored).value(), target);
    ASSERT_TRUE(plan.ok());
    ASSERT_EQ((*plan)->operations().size(), (*expected)->operations().size());
    for (size_t i = 0; i < (*plan)->operations().size(); ++i) {
      EXPECT_EQ((*plan)->source_fragment_id(i), (*expected)->source_fragment_id(i));
      EXPECT_EQ((*plan)->operations()[i].target, (*expected)->operations()[i].target);
    }
  }
}

// ---- refusals ----

TEST(PlannerRefusals, Identity) {
  const PlacementPtr source = Whole({4});
  const auto with = [&](auto change) {
    FragmentInventory inventory = Inventory(
        Topology({{}}), {Tensor("w", {4}, {Split(AxisKind::kTp, 0)})}, {Fragment("w", {0}, {4})});
    change(inventory);
    return Placement(std::move(inventory));
  };
  EXPECT_THAT(PlanPlacement(source, with([](auto& i) { i.resource_id = "n"; })),
              Refused("source and target resource_id differ: m and n"));
  EXPECT_THAT(PlanPlacement(source, with([](auto& i) {
                              i.revision = "q";
                              i.weight_generation = 2;
                            })),
              Refused("source and target revision differ: r and q"));
  EXPECT_THAT(PlanPlacement(source, with([](auto& i) { i.weight_generation = 2; })),
              Refused("source and target weight_generation differ: 1 and 2"));
  EXPECT_THAT(PlanStored(Stored(source), with([](auto& i) { i.weight_generation = 2; })),
              Refused("source and target weight_generation differ: 1 and 2"));
  EXPECT_TRUE(PlanPlacement(source, with([](auto& i) { i.placement_set_id = "other"; })).ok());
}

TEST(PlannerRefusals, LocalTargetParticipant) {
  const PlacementPtr two = Cut({4}, 0, {2, 2});
  EXPECT_THAT(PlanPlacementToLocalTarget(Whole({4}), two, std::nullopt),
              Refused("target_participant_id is required for a multi-participant target"));
  EXPECT_THAT(PlanPlacementToLocalTarget(Whole({4}), two, "p7"),
              Refused("unknown target participant: p7"));
  EXPECT_THAT(PlanStoredToLocalTarget(Stored(two), two, "p7"),
              Refused("unknown target participant: p7"));
  EXPECT_TRUE(PlanPlacementToLocalTarget(two, Whole({4}), std::nullopt).ok());
  EXPECT_TRUE(PlanStoredToLocalTarget(Stored(two), Whole({4}), std::nullopt).ok());
}

TEST(PlannerRefusals, TensorSets) {
  const auto holding = [](const std::vector<std::string>& ids) {
    std::vector<TensorDescriptor> tensors;
    std::vector<PlacementFragment> fragments;
    for (const std::string& id : ids) {
      tensors.push_back(Tensor(id, {4}));
      fragments.push_back(Fragment(id, {0}, {4}));
    }
    return Placement(Inventory(Topology({{}}), tensors, fragments));
  };
  const PlacementPtr abcd = holding({"a", "b", "c", "d"});
  EXPECT_THAT(PlanPlacement(abcd, holding({"b", "e", "d"})),
              Refused("target manifests are missing tensors: a, c"));
  EXPECT_THAT(PlanPlacement(holding({"b"}), abcd),
              Refused("target manifests contain unknown tensors: a, c, d"));
  EXPECT_THAT(PlanStored(Stored(abcd), holding({"a"})),
              Refused("target manifests are missing tensors: b, c, d"));
  EXPECT_THAT(PlanPlacementToLocalTarget(abcd, holding({"a", "z"}), std::nullopt),
              Refused("target manifests contain unknown tensors: z"));
  // A local target may want fewer.
  const auto local = PlanPlacementToLocalTarget(abcd, holding({"c"}), std::nullopt);
  ASSERT_TRUE(local.ok());
  EXPECT_EQ((*local)->source_tensors().size(), 4u);
  EXPECT_EQ((*local)->target_tensors().size(), 1u);
}

TEST(PlannerRefusals, LocalTargetWithoutFragments) {
  const PlacementPtr target = Placement(Inventory(Topology({{.pp = 0}, {.pp = 1}}),
                                                  {Tensor("w", {4}, {Owned(AxisKind::kPp)})},
                                                  {Fragment("w", {0}, {4}, {.pp = 0})}));
  EXPECT_THAT(PlanPlacementToLocalTarget(Whole({4}), target, "p1"),
              Refused("local target manifest has no fragments"));
  EXPECT_TRUE(PlanPlacementToLocalTarget(Whole({4}), target, "p0").ok());
  const auto plan = PlanPlacement(Whole({4}), target);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT((*plan)->target_executors(), ElementsAre(0));
}

// Replicas of one dp rank that are cut differently: a legal placement, and none to plan with.
PlacementPtr DifferentTilings(AxisKind replicated_over, std::vector<manifest::ParallelAxis> axes) {
  ParallelRank first, second;
  if (replicated_over == AxisKind::kTp) second.tp = 1;
  if (replicated_over == AxisKind::kEp) second.ep = 1;
  axes.push_back(Replicated(replicated_over));
  return Placement(Inventory(Topology({first, second}), {Tensor("w", {4}, axes)},
                             {Fragment("w", {0}, {4}, first), Fragment("w", {0}, {1}, second),
                              Fragment("w", {1}, {3}, second)}));
}

TEST(PlannerRefusals, TargetReplicasCutDifferently) {
  EXPECT_THAT(PlanPlacement(Whole({4}), DifferentTilings(AxisKind::kTp, {})),
              Refused("target tensor is not fully covered: w: dp=0"));
  EXPECT_THAT(PlanStored(Stored(Whole({4})), DifferentTilings(AxisKind::kEp, {})),
              Refused("target tensor is not fully covered: w: dp=0"));
  EXPECT_THAT(PlanPlacement(Whole({4}), DifferentTilings(AxisKind::kTp, {Owned(AxisKind::kDp)})),
              Refused("target tensor is not fully covered by its DP owner: w"));
  // One rank alone can be filled.
  const auto local =
      PlanPlacementToLocalTarget(Whole({4}), DifferentTilings(AxisKind::kTp, {}), "p1");
  ASSERT_TRUE(local.ok()) << local.status().ToString();
  EXPECT_EQ(WhatIsWrong(**local), "");
}

TEST(PlannerRefusals, SourceWithoutACompleteReplica) {
  const std::string text =
      "source manifests have no complete DP replica; tensors are not fully covered";
  EXPECT_THAT(PlanPlacement(DifferentTilings(AxisKind::kTp, {}), Whole({4})), Refused(text));
  EXPECT_THAT(
      PlanPlacementToLocalTarget(DifferentTilings(AxisKind::kTp, {}), Whole({4}), std::nullopt),
      Refused(text));
  EXPECT_THAT(PlanUpload(DifferentTilings(AxisKind::kTp, {}), "g"), Refused(text));
  // The target's own fault is named first.
  EXPECT_THAT(
      PlanPlacement(DifferentTilings(AxisKind::kTp, {}), DifferentTilings(AxisKind::kTp, {})),
      Refused("target tensor is not fully covered: w: dp=0"));
}

TEST(PlannerRefusals, DpOwnersOfTheSource) {
  EXPECT_THAT(PlanPlacement(DifferentTilings(AxisKind::kTp, {Owned(AxisKind::kDp)}), Whole({4})),
              Refused("DP-owned source tensor has no complete declared owner: w"));
  const PlacementPtr two_owners = Placement(
      Inventory(Topology({{.dp = 0}, {.dp = 1}}), {Tensor("w", {4}, {Owned(AxisKind::kDp)})},
                {Fragment("w", {0}, {4}, {.dp = 0}), Fragment("w", {0}, {4}, {.dp = 1})}));
  EXPECT_THAT(PlanPlacement(two_owners, Whole({4})),
              Refused("DP-owned source tensor has ambiguous declared owners: w"));
  EXPECT_TRUE(PlanPlacement(Whole({4}), two_owners).ok());
}

TEST(PlannerRefusals, IncompatibleDescriptors) {
  const auto with = [](auto change) {
    TensorDescriptor w = Tensor("w", {4});
    change(w);
    PlacementFragment fragment = Fragment("w", Extents(w.global_shape.size(), 0), w.global_shape);
    fragment.nbytes = static_cast<uint64_t>(w.itemsize);
    for (int64_t extent : w.global_shape) fragment.nbytes *= static_cast<uint64_t>(extent);
    return Placement(Inventory(Topology({{}}), {w}, {fragment}));
  };
  const PlacementPtr source = with([](auto&) {});
  const auto plan = [&](auto change) { return PlanPlacement(source, with(change)); };
  EXPECT_THAT(plan([](auto& w) {
                w.layout_fingerprint = "v2";
                w.dtype = "float16";
              }),
              Refused("layout mismatch for tensor w: source v1, target v2"));
  EXPECT_THAT(plan([](auto& w) { w.global_shape = {5}; }),
              Refused("tensor descriptor mismatch: w: global_shape is (4) in the source, (5)"));
  EXPECT_THAT(plan([](auto& w) {
                w.global_shape = {2, 2};
              }),
              Refused("tensor descriptor mismatch: w: global_shape is (4) in the source, (2, 2)"));
  EXPECT_THAT(plan([](auto& w) { w.dtype = "float16"; }),
              Refused("tensor descriptor mismatch: w: dtype is bfloat16 in the source, float16"));
  EXPECT_THAT(plan([](auto& w) { w.itemsize = 4; }),
              Refused("tensor descriptor mismatch: w: itemsize is 2 in the source, 4"));
  EXPECT_THAT(plan([](auto& w) { w.layer_id = 1; }),
              Refused("tensor descriptor mismatch: w: layer_id is 0 in the source, 1"));
  EXPECT_THAT(plan([](auto& w) { w.expert_id = 3; }),
              Refused("tensor descriptor mismatch: w: expert_id is none in the source, 3"));
  EXPECT_THAT(PlanStored(Stored(source), with([](auto& w) { w.dtype = "float16"; })),
              Refused("tensor descriptor mismatch: w"));
}

TEST(PlannerRefusals, StoredSourceWithAHole) {
  // No maker lets this pass; a manifest that came about otherwise must still not plan.
  const PlacementPtr target = Cut({6}, 0, {2, 2, 2});
  auto torn = std::make_shared<StoredManifest>(*Stored(Cut({6}, 0, {3, 3})));
  torn->fragments.pop_back();
  const auto plan = PlanStored(torn, target);
  EXPECT_THAT(plan, Refused("target fragment is not fully covered: sha256:"));
  // Doubled bytes are no cover either, whatever the sum says.
  auto doubled = std::make_shared<StoredManifest>(*Stored(Cut({6}, 0, {3, 3})));
  doubled->fragments[1].global_offset = {1};
  EXPECT_THAT(PlanStored(doubled, target),
              Refused("target fragment is not fully covered: sha256:"));
}

TEST(PlannerRefusals, Limits) {
  const PlacementPtr source = Cut({8, 6}, 0, {4, 4});
  const PlacementPtr target = Cut({8, 6}, 1, {3, 3});  // 4 regions of 4 segments
  EXPECT_TRUE(PlanPlacement(source, target, {4, 4, 16}).ok());
  EXPECT_THAT(PlanPlacement(source, target, {3, 4, 16}),
              Refused("logical transfer plan exceeds max_transfer_regions: 3, it needs 4"));
  EXPECT_THAT(PlanPlacement(source, target, {4, 3, 16}),
              Refused("logical transfer region exceeds max_segments_per_region: 4 > 3"));
  EXPECT_THAT(PlanPlacement(source, target, {4, 4, 15}),
              Refused("logical transfer plan exceeds max_total_lowered_segments: 16 > 15"));
  EXPECT_THAT(
      PlanPlacement(source, target, {4, 4, 7}),
      Refused("logical transfer plan exceeds max_total_lowered_segments: 8 > 7, it needs 16"));
  // Every entry counts, a local plan only what it fills.
  EXPECT_THAT(PlanPlacementToLocalTarget(source, target, "p0", {1, 4, 16}),
              Refused("logical transfer plan exceeds max_transfer_regions: 1, it needs 2"));
  EXPECT_THAT(PlanStored(Stored(source), target, {3, 4, 16}),
              Refused("logical transfer plan exceeds max_transfer_regions: 3, it needs 4"));
  EXPECT_THAT(
      PlanStoredToLocalTarget(Stored(source), target, "p1", {2, 4, 7}),
      Refused("logical transfer plan exceeds max_total_lowered_segments: 8 > 7, it needs 8"));
  // As they are reached: the second region breaks two limits, the first none.
  EXPECT_THAT(PlanPlacement(source, target, {1, 4, 4}),
              Refused("logical transfer plan exceeds max_transfer_regions: 1"));
  EXPECT_THAT(PlanPlacement(source, target, {1, 3, 16}),
              Refused("logical transfer region exceeds max_segments_per_region: 4 > 3"));
  EXPECT_THAT(PlanPlacement(source, target, {0, 1, 1}),
              Refused("planning limit max_transfer_regions must be a positive integer"));
  EXPECT_THAT(PlanPlacement(source, target, {1, 0, 1}),
              Refused("planning limit max_segments_per_region must be a positive integer"));
  EXPECT_THAT(PlanPlacement(source, target, {1, 1, 0}),
              Refused("planning limit max_total_lowered_segments must be a positive integer"));
  EXPECT_TRUE(PlanPlacement(source, target, PlanningLimits::Unexpanded()).ok());
}

TEST(PlannerRefusals, TooManyDimensions) {
  const Extents shape(9, 1);
  const PlacementPtr nine = Placement(
      Inventory(Topology({{}}), {Tensor("w", shape)}, {Fragment("w", Extents(9, 0), shape)}));
  EXPECT_THAT(PlanPlacement(nine, nine), Refused("tensor w has 9 dimensions"));
  EXPECT_THAT(PlanUpload(nine, "g"), Refused("tensor w has 9 dimensions"));
}

}  // namespace
}  // namespace mooncake::reshard
