// Who uploads what: choice of replica and owner, balance, packing, units, manifest, digests.
#include "reshard/upload_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"

namespace mooncake::reshard {
namespace {

using manifest::AxisKind;
using manifest::Fragment;
using manifest::Inventory;
using manifest::Owned;
using manifest::ParallelRank;
using manifest::PlacementFragment;
using manifest::PlacementFromFragments;
using manifest::PlacementPtr;
using manifest::Refused;
using manifest::Replicated;
using manifest::Split;
using manifest::StoredFragment;
using manifest::StoredManifestPtr;
using manifest::Tensor;
using manifest::TensorDescriptor;
using manifest::Topology;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr char kWhen[] = "2026-01-01T00:00:00Z";

PlacementPtr Placement(std::vector<ParallelRank> ranks, std::vector<TensorDescriptor> tensors,
                       std::vector<PlacementFragment> fragments) {
  return PlacementFromFragments(
             Inventory(Topology(ranks), std::move(tensors), std::move(fragments)))
      .value();
}

PlacementFragment Named(PlacementFragment fragment, std::string id) {
  fragment.placement_fragment_id = std::move(id);
  return fragment;
}

std::vector<std::string> NamesOf(const UploadPlan& plan, size_t participant) {
  std::vector<std::string> names;
  for (uint32_t o : plan.participants[participant].objects) names.push_back(plan.objects[o].name);
  return names;
}

TEST(UploadPlanTest, OneCompleteReplicaAndOthersListedEmpty) {
  std::vector<PlacementFragment> fragments;
  std::vector<ParallelRank> ranks;
  for (int64_t dp = 0; dp < 2; ++dp) {
    for (int64_t tp = 0; tp < 2; ++tp) {
      ranks.push_back({.dp = dp, .tp = tp});
      fragments.push_back(Named(Fragment("w", {2 * tp, 0}, {2, 4}, ranks.back()),
                                "d" + std::to_string(dp) + "t" + std::to_string(tp)));
    }
  }
  const auto plan = PlanUpload(
      Placement(ranks, {Tensor("w", {4, 4}, {Replicated(AxisKind::kDp), Split(AxisKind::kTp, 0)})},
                fragments),
      "g", 1);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->participants.size(), 4u);
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("d0t0"));
  EXPECT_THAT(NamesOf(*plan, 1), ElementsAre("d0t1"));
  EXPECT_THAT(NamesOf(*plan, 2), IsEmpty());
  EXPECT_EQ(plan->participants[2].participant_id, "p2");
  EXPECT_EQ(plan->participants[2].nbytes, 0u);
  EXPECT_EQ(plan->nbytes, 32u);
  EXPECT_EQ(plan->unit_count, 1u);
  EXPECT_EQ(plan->ObjectKey(plan->objects[0]), "g/payload/d0t0");
}

TEST(UploadPlanTest, ReplicatedBoxesAreSharedOutByBytes) {
  // p0 alone owns "big"; both hold all the others.
  std::vector<TensorDescriptor> tensors;
  std::vector<PlacementFragment> fragments;
  const auto add = [&](const std::string& id, int64_t extent, std::vector<int64_t> tps) {
    const bool shared = tps.size() > 1;
    tensors.push_back(
        Tensor(id, {extent}, {shared ? Replicated(AxisKind::kTp) : Owned(AxisKind::kTp)}));
    for (int64_t tp : tps) {
      fragments.push_back(Named(Fragment(id, {0}, {extent}, {.tp = tp}), id + std::to_string(tp)));
    }
  };
  add("big", 40, {0});
  add("a", 30, {0, 1});
  add("b", 20, {0, 1});
  add("c", 20, {0, 1});
  const auto plan = PlanUpload(Placement({{.tp = 0}, {.tp = 1}}, tensors, fragments), "g", 1);
  ASSERT_TRUE(plan.ok());
  // 40 | 0 -> a to p1 (40 | 30) -> b to p1 (40 | 50) -> c to p0 (60 | 50)
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("big0", "c0"));
  EXPECT_THAT(NamesOf(*plan, 1), ElementsAre("a1", "b1"));
  EXPECT_EQ(plan->participants[0].nbytes, 120u);
  EXPECT_EQ(plan->participants[1].nbytes, 100u);
}

TEST(UploadPlanTest, SmallFragmentsArePackedTightlyByFragmentId) {
  const auto plan =
      PlanUpload(Placement({{}}, {Tensor("u", {3}), Tensor("v", {50}), Tensor("w", {5})},
                           {Named(Fragment("u", {0}, {3}), "z small/one"),
                            Named(Fragment("v", {0}, {50}), "large"),
                            Named(Fragment("w", {0}, {5}), "a small")}),
                 "g", 100);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->objects.size(), 2u);
  EXPECT_EQ(plan->objects[0].name, "large");
  const PayloadObject& pack = plan->objects[1];
  EXPECT_EQ(pack.name, "pack-p0");
  EXPECT_EQ(pack.nbytes, 16u);
  ASSERT_EQ(pack.fragments.size(), 2u);
  EXPECT_EQ(plan->placement->fragments[pack.fragments[0].fragment].placement_fragment_id,
            "a small");
  EXPECT_EQ(pack.fragments[0].object_offset, 0u);
  EXPECT_EQ(pack.fragments[1].object_offset, 10u);
  EXPECT_EQ(plan->unit_count, 2u);
  const auto stored = BuildStoredManifest(*plan, "d", kWhen);
  ASSERT_TRUE(stored.ok()) << stored.status().ToString();
  ASSERT_EQ((*stored)->fragments.size(), 3u);
  const StoredFragment& u = (*stored)->fragments[0];
  EXPECT_EQ(u.tensor_id, "u");
  EXPECT_EQ(u.fragment_id, "z small/one");
  EXPECT_EQ(u.object_key, "g/payload/pack-p0");
  EXPECT_EQ(u.object_offset, 10u);
  EXPECT_EQ((*stored)->manifest_key, "g/manifest");
  EXPECT_EQ((*stored)->namespace_name, "d");
  EXPECT_EQ((*stored)->created_at, kWhen);
}

TEST(UploadPlanTest, NamesNeverMeet) {
  // A fragment called as a pack would be, and ids that need encoding.
  const auto plan = PlanUpload(
      Placement({{}}, {Tensor("u", {3}), Tensor("v", {50}), Tensor("w", {50})},
                {Named(Fragment("u", {0}, {3}), "tiny"), Named(Fragment("v", {0}, {50}), "pack-p0"),
                 Named(Fragment("w", {0}, {50}), "a/b c")}),
      "g", 100);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(NamesOf(*plan, 0), ElementsAre("%70ack-p0", "a%2Fb%20c", "pack-p0"));
  EXPECT_TRUE(BuildStoredManifest(*plan, "d", kWhen).ok());
}

TEST(UploadPlanTest, UnitsAreClosures) {
  // "w" spans both ranks; the norms are packed; "e" stands alone; "x" and "y" are one alias group.
  std::vector<PlacementFragment> fragments{
      Named(Fragment("w", {0}, {100}, {.tp = 0}), "w0"),
      Named(Fragment("w", {100}, {100}, {.tp = 1}), "w1"),
      Named(Fragment("n", {0}, {2}, {.tp = 0}), "n0"),
      Named(Fragment("n", {2}, {100}, {.tp = 1}), "n1"),
      Named(Fragment("m", {0}, {1}, {.tp = 0}), "m0"),
      Named(Fragment("e", {0}, {100}, {.tp = 1}), "e1"),
      Named(Fragment("x", {0}, {100}, {.tp = 0}, {"x", "y"}), "x0"),
      Named(Fragment("y", {0}, {100}, {.tp = 0}, {"x", "y"}), "y0")};
  const auto split = Split(AxisKind::kTp, 0);
  const auto owned = Owned(AxisKind::kTp);
  TensorDescriptor y = Tensor("y", {100}, {owned});
  y.dtype = "float16";  // so that "y" is not stored in the bytes of "x"
  const auto plan = PlanUpload(Placement({{.tp = 0}, {.tp = 1}},
                                         {Tensor("w", {200}, {split}), Tensor("n", {102}, {split}),
                                          Tensor("m", {1}, {owned}), Tensor("e", {100}, {owned}),
                                          Tensor("x", {100}, {owned}), y},
                                         fragments),
                               "g", 100);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  std::map<std::string, uint32_t> unit;
  for (const PayloadObject& object : plan->objects) unit[object.name] = object.unit;
  EXPECT_EQ(plan->unit_count, 4u);
  // By smallest member: e1, n1 (with the pack: n's small half and m), w0 and w1, x0 and y0.
  EXPECT_EQ(unit,
            (std::map<std::string, uint32_t>{
                {"e1", 0}, {"n1", 1}, {"pack-p0", 1}, {"w0", 2}, {"w1", 2}, {"x0", 3}, {"y0", 3}}));
  const model::AffinitySummary summary = BuildAffinitySummary(*plan);
  EXPECT_EQ(summary.unit_count, 4u);
  EXPECT_EQ(summary.sha256, ToHex(Sha256Of(summary.json)));
  const auto digest = [](std::string_view text) { return ToHex(Sha256Of(text)); };
  EXPECT_EQ(summary.json, "{\"units\":[{\"bytes\":200,\"digest\":\"" + digest("e1") +
                              "\",\"members\":[\"e1\"]}," + "{\"bytes\":206,\"digest\":\"" +
                              digest("n1\npack-p0") + "\",\"members\":[\"n1\",\"pack-p0\"]}," +
                              "{\"bytes\":400,\"digest\":\"" + digest("w0\nw1") +
                              "\",\"members\":[\"w0\",\"w1\"]}," + "{\"bytes\":400,\"digest\":\"" +
                              digest("x0\ny0") + "\",\"members\":[\"x0\",\"y0\"]}],\"version\":1}");
  EXPECT_EQ(BuildPayloadKeyDigest(*plan),
            digest("g/payload/e1\ng/payload/n1\ng/payload/pack-p0\ng/payload/w0\ng/payload/w1\n"
                   "g/payload/x0\ng/payload/y0"));
}

TEST(UploadPlanTest, SummaryEscapesNamesAndIgnoresUnitNumbers) {
  const auto a = model::SummarizeAffinity({{"q\"\\\n", 1, 7}, {"b", 2, 9}});
  const auto b = model::SummarizeAffinity({{"b", 2, 0}, {"q\"\\\n", 1, 3}});
  EXPECT_EQ(a.json, b.json);
  EXPECT_THAT(a.json, testing::HasSubstr("[\"q\\\"\\\\\\u000a\"]"));
  EXPECT_EQ(model::SummarizeAffinity({}).json, "{\"units\":[],\"version\":1}");
}

TEST(UploadPlanTest, AliasesAreKeptWhereTheStoredContractCanSayThem) {
  const auto tied = [](const std::vector<PlacementFragment>& fragments, const char* dtype_of_y) {
    TensorDescriptor x = Tensor("x", {4});
    TensorDescriptor y = Tensor("y", {4});
    y.dtype = dtype_of_y;
    return PlanUpload(Placement({{}}, {x, y}, fragments), "g", 1).value();
  };
  const std::vector<std::string> group{"x", "y"};
  const std::vector<PlacementFragment> alike{Fragment("x", {0}, {4}, {}, group),
                                             Fragment("y", {0}, {4}, {}, group)};
  const auto kept = BuildStoredManifest(tied(alike, "bfloat16"), "d", kWhen);
  ASSERT_TRUE(kept.ok()) << kept.status().ToString();
  for (const StoredFragment& fragment : (*kept)->fragments) {
    EXPECT_EQ(fragment.aliases, group);
    EXPECT_TRUE(fragment.shares_range);
  }

  const std::vector<PlacementFragment> cut_differently{Fragment("x", {0}, {4}, {}, group),
                                                       Fragment("y", {0}, {2}, {}, group),
                                                       Fragment("y", {2}, {2}, {}, group)};
  for (const UploadPlan& plan : {tied(cut_differently, "bfloat16"), tied(alike, "float16")}) {
    const auto left_out = BuildStoredManifest(plan, "d", kWhen);
    ASSERT_TRUE(left_out.ok()) << left_out.status().ToString();
    for (const StoredFragment& fragment : (*left_out)->fragments) {
      EXPECT_THAT(fragment.aliases, IsEmpty());
      EXPECT_FALSE(fragment.shares_range);
    }
  }
}

TEST(UploadPlanTest, PlanDigestIsOfItsText) {
  const PlacementPtr placement =
      Placement({{}}, {Tensor("u", {3}), Tensor("v", {50})},
                {Named(Fragment("u", {0}, {3}), "t u"), Named(Fragment("v", {0}, {50}), "large")});
  const UploadPlan plan = PlanUpload(placement, "g", 100).value();
  std::string id = placement->placement_id;
  id.replace(id.find(':'), 1, "%3A");
  EXPECT_EQ(UploadPlanText(plan),
            "mooncake-upload-plan 1\nplacement " + id +
                "\nparticipant p0 2 106\nobject large 100 0\nfragment large 0 100\n"
                "object pack-p0 6 1\nfragment t%20u 0 6\n");
  EXPECT_EQ(plan.plan_sha256, ToHex(Sha256Of(UploadPlanText(plan))));
  EXPECT_EQ(PlanUpload(placement, "another group", 100)->plan_sha256, plan.plan_sha256);
  EXPECT_NE(PlanUpload(placement, "g", 101)->plan_sha256, plan.plan_sha256);
}

}  // namespace
}  // namespace mooncake::reshard
