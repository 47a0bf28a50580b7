// The extended forms under the planner, the upload plan and the binding: bytes against the element
// oracle, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "manifest/canonical.h"
#include "manifest/contract_samples.h"
#include "manifest/json.h"
#include "reshard/element_oracle.h"
#include "reshard/planner.h"
#include "reshard/random_extended.h"
#include "reshard/random_layouts.h"

namespace mooncake::reshard {
namespace {

using manifest::Extents;
using manifest::FragmentForm;
using manifest::OwnedBox;
using manifest::OwnedTiling;
using manifest::PlacementFragment;
using manifest::PlacementPtr;
using manifest::Refused;
using manifest::TensorDescriptor;
using manifest::TensorExtension;

TensorDescriptor Extended(std::string id, Extents shape, TensorExtension extension) {
  TensorDescriptor tensor = manifest::Tensor(std::move(id), std::move(shape));
  tensor.extension = std::make_shared<const TensorExtension>(std::move(extension));
  return tensor;
}

PlacementFragment Held(const std::string& tensor_id, Extents offset, Extents shape, int64_t tp,
                       std::optional<int64_t> slot = std::nullopt) {
  PlacementFragment fragment;
  fragment.tensor_id = tensor_id;
  fragment.nbytes = 2 * static_cast<uint64_t>(geometry::VolumeOf(shape));
  fragment.global_offset = std::move(offset);
  fragment.local_shape = std::move(shape);
  fragment.rank.tp = tp;
  fragment.slot = slot;
  return manifest::MakePlacementFragment(std::move(fragment), std::nullopt, FragmentForm::kExtended)
      .value();
}

// `ranks` participants "p0", "p1", ... along tp.
Result<PlacementPtr> Placed(int64_t ranks, std::vector<TensorDescriptor> tensors,
                            std::vector<PlacementFragment> fragments,
                            std::vector<std::string> omitted = {}) {
  std::vector<manifest::ParallelRank> all;
  for (int64_t t = 0; t < ranks; ++t) all.push_back({.tp = t});
  manifest::FragmentInventory inventory =
      manifest::Inventory(manifest::Topology(all), std::move(tensors), std::move(fragments));
  inventory.omitted_tensors = std::move(omitted);
  return manifest::PlacementFromFragments(std::move(inventory));
}

std::string Rank(int64_t tp) { return "p" + std::to_string(tp); }

// Direct, through the store, for the whole and for every part; empty when all bytes are right.
std::string WhatIsWrongBetween(const PlacementPtr& source, const PlacementPtr& target,
                               const LoweringLimits& limits = {}) {
  const auto direct = PlanPlacement(source, target);
  if (!direct.ok()) return direct.status().ToString();
  if (std::string wrong = WhatIsWrong(**direct); !wrong.empty()) return "direct: " + wrong;
  const auto upload = PlanUpload(source, "g", 16);
  if (!upload.ok()) return upload.status().ToString();
  const auto stored = BuildStoredManifest(*upload, "d", "2026-01-01T00:00:00Z");
  if (!stored.ok()) return stored.status().ToString();
  const auto again = manifest::StoredManifestFromJson(manifest::StoredManifestToJson(**stored));
  if (!again.ok() || !(**again == **stored))
    return "the stored manifest's JSON: " + again.status().ToString();
  const auto from_store = PlanStored(*stored, target);
  if (!from_store.ok()) return from_store.status().ToString();
  if (std::string wrong = WhatIsWrong(**from_store); !wrong.empty()) return "stored: " + wrong;
  const std::map<std::string, Bytes> objects = UploadedObjects(*upload);
  for (size_t part = 0; part < target->parts.size(); ++part) {
    if (!manifest::HoldsElements(target->parts[part])) continue;
    const std::string wrong =
        WhatIsWrongAfterLoading(*upload, objects, *stored, target, part, limits);
    if (!wrong.empty()) return target->parts[part].participant_id + ": " + wrong;
    const auto local =
        PlanPlacementToLocalTarget(source, target, target->parts[part].participant_id);
    if (!local.ok()) return local.status().ToString();
    if (std::string fault = WhatIsWrong(**local); !fault.empty()) return "local: " + fault;
  }
  return "";
}

// --- ownership -----------------------------------------------------------------------------------

// "w" of four elements over three ranks, each element with any non-empty set of owners: a bit a
// rank.
PlacementPtr Assigned(const std::array<int, 4>& owners) {
  OwnedTiling tiling;
  std::vector<PlacementFragment> fragments;
  for (int64_t e = 0; e < 4; ++e) {
    OwnedBox box{{e}, {1}, {}};
    for (int64_t r = 0; r < 3; ++r) {
      if ((owners[static_cast<size_t>(e)] >> r & 1) == 0) continue;
      box.owners.push_back(Rank(r));
      fragments.push_back(Held("w", {e}, {1}, r));
    }
    tiling.push_back(std::move(box));
  }
  return Placed(3, {Extended("w", {4}, {.ownership = {tiling}})}, std::move(fragments)).value();
}

TEST(Ownership, EveryAssignmentOfFourElementsToThreeRanks) {
  const PlacementPtr split =
      Placed(2, {manifest::Tensor("w", {4}, {manifest::Split(manifest::AxisKind::kTp, 0)})},
             {Held("w", {0}, {2}, 0), Held("w", {2}, {2}, 1)})
          .value();
  const std::vector<PlacementPtr> others = {split, Assigned({1, 3, 7, 4}), Assigned({2, 2, 2, 2})};
  std::array<int, 4> owners{1, 1, 1, 1};
  while (true) {
    const PlacementPtr placement = Assigned(owners);
    for (const PlacementPtr& other : others) {
      const auto there = PlanPlacement(placement, other);
      ASSERT_TRUE(there.ok()) << there.status().ToString();
      ASSERT_EQ(WhatIsWrong(**there), "");
      const auto back = PlanPlacement(other, placement);
      ASSERT_TRUE(back.ok()) << back.status().ToString();
      ASSERT_EQ(WhatIsWrong(**back), "");
    }
    const auto upload = PlanUpload(placement, "g");
    ASSERT_TRUE(upload.ok());
    ASSERT_EQ(upload->nbytes, 8u);  // each element once, whatever its replicas
    size_t digit = 0;
    while (digit < 4 && ++owners[digit] == 8) owners[digit++] = 1;
    if (digit == 4) break;
  }
}

RC_GTEST_PROP(Ownership, RandomPlacementsDirectAndThroughTheStore, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<TensorDescriptor> tensors = RandomTensors(random);
  const auto source = manifest::PlacementFromFragments(RandomExtended(random, tensors));
  const auto target = manifest::PlacementFromFragments(RandomExtended(random, tensors));
  RC_ASSERT(source.status() == OkStatus());
  RC_ASSERT(target.status() == OkStatus());
  RC_ASSERT(WhatIsWrongBetween(*source, *target, {1 + random() % 20, 1 + random() % 200}) == "");
  const auto again = manifest::PlacementFromJson(manifest::PlacementToJson(**source));
  RC_ASSERT(again.status() == OkStatus());
  RC_ASSERT(**again == **source);
}

RC_GTEST_PROP(Ownership, InputOrderNeverChangesIdsOrPlans, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<TensorDescriptor> tensors = RandomTensors(random);
  manifest::FragmentInventory from = RandomExtended(random, tensors);
  const PlacementPtr target =
      manifest::PlacementFromFragments(RandomExtended(random, tensors)).value();
  const auto made = [&] {
    const PlacementPtr source = manifest::PlacementFromFragments(from).value();
    const auto plan = PlanPlacement(source, target).value();
    return std::tuple(source->placement_id, source->digest, source->geometry_digest,
                      std::vector(plan->operations().begin(), plan->operations().end()),
                      PlanUpload(source, "g", 64, ReplicaScope::kSelected)->plan_sha256);
  };
  const auto first = made();
  std::shuffle(from.fragments.begin(), from.fragments.end(), random);
  std::shuffle(from.tensors.begin(), from.tensors.end(), random);
  for (TensorDescriptor& tensor : from.tensors) {
    if (tensor.extension == nullptr) continue;
    TensorExtension extension = *tensor.extension;
    std::shuffle(extension.ownership.begin(), extension.ownership.end(), random);
    for (OwnedTiling& tiling : extension.ownership) {
      std::shuffle(tiling.begin(), tiling.end(), random);
      for (OwnedBox& box : tiling) std::shuffle(box.owners.begin(), box.owners.end(), random);
    }
    tensor.extension = std::make_shared<const TensorExtension>(std::move(extension));
  }
  RC_ASSERT(made() == first);
}

// 2 KV heads of 3 rows over `ranks` ranks: rank r holds head r / (ranks / 2).
PlacementPtr KvHeads(int64_t ranks) {
  OwnedTiling tiling{{{0, 0}, {3, 4}, {}}, {{3, 0}, {3, 4}, {}}};
  std::vector<PlacementFragment> fragments;
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t head = ranks == 1 ? -1 : r / (ranks / 2);
    for (int64_t h = 0; h < 2; ++h) {
      if (head >= 0 && head != h) continue;
      tiling[static_cast<size_t>(h)].owners.push_back(Rank(r));
      fragments.push_back(Held("kv", {3 * h, 0}, {3, 4}, r));
    }
  }
  return Placed(ranks, {Extended("kv", {6, 4}, {.ownership = {tiling}})}, fragments).value();
}

TEST(Ownership, ReplicatedKvHeadsBetweenEveryPairOfTpSizes) {
  for (const int64_t from : {1, 2, 4, 8, 16}) {
    for (const int64_t to : {1, 2, 4, 8, 16}) {
      EXPECT_EQ(WhatIsWrongBetween(KvHeads(from), KvHeads(to)), "") << from << " to " << to;
    }
  }
  const auto upload = PlanUpload(KvHeads(8), "g", 0);
  EXPECT_EQ(upload->nbytes, 48u);
  EXPECT_EQ(upload->objects.size(), 2u);
}

// The reader's own dp rank is preferred, as for base tensors.
TEST(Ownership, TargetsReadTheirOwnReplica) {
  std::vector<PlacementFragment> fragments;
  std::vector<manifest::ParallelRank> ranks;
  OwnedTiling tiling{{{0}, {2}, {}}, {{2}, {2}, {}}};
  for (int64_t i = 0; i < 4; ++i) {  // p0, p1: dp 0; p2, p3: dp 1
    ranks.push_back({.dp = i / 2, .tp = i % 2});
    tiling[static_cast<size_t>(i % 2)].owners.push_back(Rank(i));
    PlacementFragment fragment = Held("w", {2 * (i % 2)}, {2}, i % 2);
    fragment.rank = ranks.back();
    fragments.push_back(manifest::MakePlacementFragment(fragment).value());
  }
  const PlacementPtr placement =
      manifest::PlacementFromFragments(
          manifest::Inventory(manifest::Topology(ranks),
                              {Extended("w", {4}, {.ownership = {tiling}})}, fragments))
          .value();
  const auto plan = PlanPlacement(placement, placement).value();
  EXPECT_EQ(WhatIsWrong(*plan), "");
  for (const PlannedOperation& operation : plan->operations()) {
    EXPECT_EQ(placement->fragments[operation.source].rank.dp,
              placement->fragments[operation.target].rank.dp);
  }
}

// Redundant experts: 4 logical ones in 6 physical slots of 2 ranks, another map on each side.
TEST(Ownership, RedundantExpertsMoveByLogicalId) {
  const auto placed = [](const std::vector<std::vector<int64_t>>& slots) {
    OwnedTiling tiling;
    for (int64_t e = 0; e < 4; ++e) tiling.push_back({{e, 0}, {1, 3}, {}});
    std::vector<PlacementFragment> fragments;
    for (int64_t r = 0; r < std::ssize(slots); ++r) {
      for (int64_t s = 0; s < std::ssize(slots[static_cast<size_t>(r)]); ++s) {
        const int64_t expert = slots[static_cast<size_t>(r)][static_cast<size_t>(s)];
        tiling[static_cast<size_t>(expert)].owners.push_back(Rank(r));
        fragments.push_back(Held("experts", {expert, 0}, {1, 3}, r, s));
      }
    }
    return Placed(std::ssize(slots), {Extended("experts", {4, 3}, {.ownership = {tiling}})},
                  fragments)
        .value();
  };
  const PlacementPtr source = placed({{0, 2, 2}, {1, 3, 0}});
  const PlacementPtr target = placed({{3, 1, 0}, {2, 3, 1}});
  EXPECT_EQ(WhatIsWrongBetween(source, target), "");
  EXPECT_EQ(WhatIsWrongBetween(target, source), "");
  // The map is in the digest: two slots of one rank swapped make another placement.
  EXPECT_NE(placed({{2, 0, 2}, {1, 3, 0}})->digest, source->digest);
  EXPECT_EQ(PlanUpload(source, "g")->nbytes, 24u);
}

// --- scalars, empty tensors, empty shards --------------------------------------------------------

PlacementPtr Oddities(int64_t ranks) {
  OwnedTiling rows;  // five rows in chunks of ceil(5 / ranks): the last ranks may hold nothing
  std::vector<PlacementFragment> fragments;
  std::vector<TensorDescriptor> tensors;
  const int64_t chunk = (5 + ranks - 1) / ranks;
  OwnedBox whole{{}, {}, {}};
  for (int64_t r = 0; r < ranks; ++r) {
    const int64_t begin = std::min<int64_t>(5, r * chunk);
    const int64_t count = std::min<int64_t>(5, begin + chunk) - begin;
    fragments.push_back(Held("rows", {begin, 0}, {count, 3}, r));  // also where there are none
    if (count > 0) rows.push_back({{begin, 0}, {count, 3}, {Rank(r)}});
    fragments.push_back(Held("scalar", {}, {}, r));
    whole.owners.push_back(Rank(r));
    fragments.push_back(Held("empty", {0, 0}, {0, 4}, r));
  }
  tensors.push_back(Extended("rows", {5, 3}, {.ownership = {rows}}));
  tensors.push_back(Extended("scalar", {}, {.ownership = {{whole}}}));
  tensors.push_back(Extended("empty", {0, 4}, {}));
  return Placed(ranks, tensors, fragments).value();
}

TEST(ExtendedShapes, ScalarsEmptyTensorsAndEmptyShards) {
  for (int64_t from = 1; from <= 9; ++from) {
    for (int64_t to = 1; to <= 9; ++to) {
      EXPECT_EQ(WhatIsWrongBetween(Oddities(from), Oddities(to)), "") << from << " to " << to;
    }
  }
  const auto upload = PlanUpload(Oddities(8), "g").value();
  EXPECT_EQ(upload.nbytes, 32u);
  const auto stored = BuildStoredManifest(upload, "d", "now").value();
  EXPECT_EQ(stored->tensors.size(), 3u);
  EXPECT_EQ(stored->fragments.size(), 6u);  // five rows, one scalar
}

TEST(ExtendedShapes, NothingAtAllIsNotPublished) {
  const PlacementPtr nothing =
      Placed(1, {Extended("none", {0, 4}, {})}, {Held("none", {0, 0}, {0, 4}, 0)}).value();
  EXPECT_THAT(PlanUpload(nothing, "g"),
              Refused("a placement without elements has nothing to store"));
}

TEST(ExtendedShapes, APartOfEmptyFragmentsHasNothingToFill) {
  const PlacementPtr placement =
      Placed(2, {Extended("w", {2}, {.ownership = {{{{0}, {2}, {"p0"}}}}})},
             {Held("w", {0}, {2}, 0), Held("w", {2}, {0}, 1)})
          .value();
  EXPECT_THAT(PlanPlacementToLocalTarget(placement, placement, "p1"),
              Refused("local target manifest has no fragments: p1"));
  const auto plan = PlanPlacement(placement, placement).value();
  EXPECT_EQ(plan->target_executors().size(), 1u);
  EXPECT_EQ(WhatIsWrong(*plan), "");
}

// --- block scales, sections, padding, packing ----------------------------------------------------

// "w" of 6 x 4 in blocks of 4 x 4 with scales of 2 x 1; rows cut at `cut` over two ranks.
Result<PlacementPtr> Quantised(int64_t cut, bool shareable, bool with_shared_scale = true) {
  TensorExtension weight{.block_scales = manifest::BlockScales{"s", {4, 4}, shareable}};
  weight.ownership = {{{{0, 0}, {cut, 4}, {"p0"}}, {{cut, 0}, {6 - cut, 4}, {"p1"}}}};
  std::vector<PlacementFragment> fragments{Held("w", {0, 0}, {cut, 4}, 0),
                                           Held("w", {cut, 0}, {6 - cut, 4}, 1)};
  OwnedTiling scales{{{0, 0}, {1, 1}, {"p0"}}, {{1, 0}, {1, 1}, {"p1"}}};
  fragments.push_back(Held("s", {0, 0}, {1, 1}, 0));
  fragments.push_back(Held("s", {1, 0}, {1, 1}, 1));
  if (cut < 4 && with_shared_scale) {
    scales[0].owners.push_back("p1");
    fragments.push_back(Held("s", {0, 0}, {1, 1}, 1));
  }
  if (cut > 4) {
    scales[1].owners.push_back("p0");
    fragments.push_back(Held("s", {1, 0}, {1, 1}, 0));
  }
  return Placed(2, {Extended("w", {6, 4}, weight), Extended("s", {2, 1}, {.ownership = {scales}})},
                fragments);
}

TEST(BlockScales, ShardsThatBeginInsideABlockShareItsScale) {
  for (int64_t from = 1; from < 6; ++from) {
    for (int64_t to = 1; to < 6; ++to) {
      EXPECT_EQ(WhatIsWrongBetween(Quantised(from, true).value(), Quantised(to, true).value()), "")
          << from << " to " << to;
    }
  }
  const auto upload = PlanUpload(Quantised(2, true).value(), "g", 0).value();
  EXPECT_EQ(upload.nbytes, 48u + 4u);
  EXPECT_EQ(upload.unit_count, 1u);  // a weight and its scales stay together
}

TEST(BlockScales, Refusals) {
  EXPECT_TRUE(Quantised(4, false).ok());
  EXPECT_THAT(Quantised(2, false), Refused("dimension 0 is cut at 2, blocks are of 4"));
  EXPECT_THAT(Quantised(2, true, false), Refused("fragment lacks its block scales"));
  EXPECT_THAT(PlanPlacement(Quantised(4, true).value(), Quantised(4, false).value()),
              Refused("tensor descriptor mismatch: w: block_scales of source and target differ"));
}

// Fused rows q 8, k 2, v 2, each section cut over `ranks` ranks.
PlacementPtr FusedQkv(int64_t ranks, bool sections = true) {
  TensorExtension extension;
  if (sections) {
    extension.sections = manifest::Sections{0, {{"q", 0, 8}, {"k", 8, 10}, {"v", 10, 12}}};
  }
  TensorDescriptor tensor =
      manifest::Tensor("qkv", {12, 3}, {manifest::Split(manifest::AxisKind::kTp, 0)});
  tensor.extension = std::make_shared<const TensorExtension>(extension);
  std::vector<PlacementFragment> fragments;
  for (int64_t r = 0; r < ranks; ++r) {
    for (const auto& [begin, extent] : {std::pair<int64_t, int64_t>(0, 8), {8, 2}, {10, 2}}) {
      const int64_t share = extent / ranks;
      fragments.push_back(Held("qkv", {begin + r * share, 0}, {share, 3}, r));
    }
  }
  return Placed(ranks, {tensor}, fragments).value();
}

TEST(FusedSections, CutsFollowEachSection) {
  EXPECT_EQ(WhatIsWrongBetween(FusedQkv(1), FusedQkv(2)), "");
  EXPECT_EQ(WhatIsWrongBetween(FusedQkv(2), FusedQkv(1)), "");
  EXPECT_THAT(PlanPlacement(FusedQkv(2), FusedQkv(2, false)),
              Refused("tensor descriptor mismatch: qkv: sections of source and target differ"));
}

TEST(PaddedShapes, DifferentPaddingIsCompatibleAndNeverMoves) {
  const auto vocabulary = [](int64_t ranks, int64_t padded) {
    const int64_t share = padded / ranks;
    OwnedTiling tiling;
    std::vector<PlacementFragment> fragments;
    for (int64_t r = 0; r < ranks && r * share < 10; ++r) {
      const int64_t rows = std::min<int64_t>(10, (r + 1) * share) - r * share;
      tiling.push_back({{r * share, 0}, {rows, 2}, {Rank(r)}});
      fragments.push_back(Held("embed", {r * share, 0}, {rows, 2}, r));
    }
    return Placed(ranks,
                  {Extended("embed", {10, 2},
                            {.ownership = {tiling}, .padded_shape = Extents{padded, 2}})},
                  fragments)
        .value();
  };
  for (const auto& [ranks, padded] :
       {std::pair<int64_t, int64_t>(1, 10), {4, 16}, {8, 16}, {2, 12}}) {
    EXPECT_EQ(WhatIsWrongBetween(vocabulary(4, 16), vocabulary(ranks, padded)), "");
    EXPECT_EQ(WhatIsWrongBetween(vocabulary(ranks, padded), vocabulary(8, 16)), "");
  }
  EXPECT_EQ(PlanUpload(vocabulary(8, 16), "g")->nbytes, 40u);
}

TEST(Packing, ItemsMoveAsAWhole) {
  const auto placed = [](int64_t ranks, int64_t factor) {
    TensorDescriptor tensor =
        manifest::Tensor("q", {4, 4}, {manifest::Split(manifest::AxisKind::kTp, 1)});
    tensor.extension = std::make_shared<const TensorExtension>(
        TensorExtension{.packing = manifest::Packing{1, 4 * factor - 1, factor}});
    std::vector<PlacementFragment> fragments;
    for (int64_t r = 0; r < ranks; ++r) {
      fragments.push_back(Held("q", {0, r * 4 / ranks}, {4, 4 / ranks}, r));
    }
    return Placed(ranks, {tensor}, fragments).value();
  };
  EXPECT_EQ(WhatIsWrongBetween(placed(4, 2), placed(2, 2)), "");
  EXPECT_EQ(WhatIsWrongBetween(placed(1, 2), placed(4, 2)), "");
  EXPECT_THAT(PlanPlacement(placed(2, 2), placed(2, 8)),
              Refused("tensor descriptor mismatch: q: packing of source and target differ"));
}

// --- omitted tensors -----------------------------------------------------------------------------

TEST(OmittedTensors, ATargetAsksForASubsetByName) {
  const auto placed = [](const std::vector<std::string>& names, std::vector<std::string> omitted) {
    std::vector<TensorDescriptor> tensors;
    std::vector<PlacementFragment> fragments;
    for (const std::string& name : names) {
      tensors.push_back(manifest::Tensor(name, {2}));
      fragments.push_back(Held(name, {0}, {2}, 0));
    }
    return Placed(1, tensors, fragments, std::move(omitted));
  };
  const PlacementPtr source = placed({"a", "b", "mtp"}, {}).value();
  EXPECT_FALSE(source->extended);
  EXPECT_EQ(WhatIsWrongBetween(source, placed({"a", "b"}, {"mtp"}).value()), "");
  EXPECT_THAT(PlanPlacement(source, placed({"a"}, {"mtp"}).value()),
              Refused("target manifests are missing tensors: b"));
  EXPECT_THAT(PlanPlacement(source, placed({"a", "b"}, {}).value()),
              Refused("target manifests are missing tensors: mtp"));
  const PlacementPtr mistyped = placed({"a", "b"}, {"mpt"}).value();
  EXPECT_THAT(PlanPlacement(source, mistyped),
              Refused("target manifests are missing tensors: mtp"));
  EXPECT_THAT(placed({"a", "b"}, {"b"}), Refused("omitted tensor is in the placement: b"));
}

// What is left out may stand before what is kept, and the source may lack it as well.
TEST(OmittedTensors, AnywhereInTheOrderAndOnBothSides) {
  const auto placed = [](const std::vector<std::string>& names, std::vector<std::string> omitted) {
    std::vector<TensorDescriptor> tensors;
    std::vector<PlacementFragment> fragments;
    for (const std::string& name : names) {
      const auto extent = static_cast<int64_t>(name.size());
      tensors.push_back(manifest::Tensor(name, {extent}));
      fragments.push_back(Held(name, {0}, {extent}, 0));
    }
    return Placed(1, tensors, fragments, std::move(omitted)).value();
  };
  const PlacementPtr source = placed({"a", "bb", "ccc", "dddd"}, {});
  for (const auto& [kept, omitted] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
           {{"ccc", "dddd"}, {"a", "bb"}},
           {{"a", "dddd"}, {"bb", "ccc"}},
           {{"bb"}, {"a", "ccc", "dddd"}}}) {
    EXPECT_EQ(WhatIsWrongBetween(source, placed(kept, omitted)), "");
  }
  const PlacementPtr without = placed({"bb", "dddd"}, {"a", "ccc"});
  const auto plan = PlanPlacement(without, placed({"bb", "dddd"}, {"a", "ccc"}));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(WhatIsWrong(**plan), "");
  EXPECT_TRUE(PlanPlacement(without, placed({"dddd"}, {"a", "bb", "ccc"})).ok());
  EXPECT_EQ(WhatIsWrongBetween(without, placed({"bb", "dddd"}, {"a", "eeeee"})), "");
}

// --- strided views -------------------------------------------------------------------------------

TEST(StridedViews, InterleavedTransposedAndPaddedBuffersAreFilledInPlace) {
  // Gate and up of 4 x 3 stacked in the logical tensor, rows interleaved in memory with one element
  // of padding a row; "t" of 3 x 4 held transposed.
  TensorExtension fused{.sections = manifest::Sections{0, {{"gate", 0, 4}, {"up", 4, 8}}}};
  const std::vector<TensorDescriptor> tensors{Extended("fused", {8, 3}, fused),
                                              manifest::Tensor("t", {3, 4})};
  const std::vector<PlacementFragment> fragments{Held("fused", {0, 0}, {4, 3}, 0),
                                                 Held("fused", {4, 0}, {4, 3}, 0),
                                                 Held("t", {0, 0}, {3, 4}, 0)};
  const PlacementPtr placement = Placed(1, tensors, fragments).value();
  const auto upload = PlanUpload(placement, "g", 16).value();
  const auto objects = UploadedObjects(upload);
  const auto stored = BuildStoredManifest(upload, "d", "now").value();
  const auto plan = PlanStoredToLocalTarget(stored, placement, "p0").value();

  constexpr size_t kFusedBytes = 64;  // 8 rows of 4 elements, the last of each is padding
  Bytes buffer(kFusedBytes + 24, uint8_t{0xee});
  manifest::RuntimeBinding binding = manifest::Bind(*placement, 0, 1000);
  const auto address = reinterpret_cast<uint64_t>(buffer.data());
  for (manifest::RuntimeBindingFragment& view : binding.fragments) {
    const auto* fragment = manifest::FindFragment(placement->fragments, view.placement_fragment_id);
    const bool is_t = fragment->tensor_id == "t";
    view.strided = true;
    view.storage_address = address;
    view.storage_nbytes = buffer.size();
    view.storage_offset_bytes = is_t ? kFusedBytes : fragment->global_offset[0] == 0 ? 0 : 8;
    view.address = address + view.storage_offset_bytes;
    view.strides_bytes = is_t ? Extents{2, 6} : Extents{16, 2};
  }
  const auto bound =
      BindStoredToLocalTarget(plan, *manifest::MakeRuntimeBinding(binding).value()).value();
  auto lowering = Lowering::Begin(bound, {3, 20}).value();
  for (CopyBatch batch; lowering.Next(&batch);) {
    const Bytes& source = objects.at(std::string(bound->objects()[batch.object].name));
    for (const LoweredCopy& copy : batch.copies) {
      geometry::ForEachSegment(copy.region, [&](uint64_t s, uint64_t t, uint64_t n) {
        std::memcpy(reinterpret_cast<uint8_t*>(t), source.data() + s, n);
      });
    }
  }
  Bytes expected(buffer.size(), uint8_t{0xee});
  const Bytes fused_bytes = CutBox(tensors[0], {0, 0}, {8, 3});
  for (size_t row = 0; row < 8; ++row) {
    const size_t memory_row = row < 4 ? 2 * row : 2 * (row - 4) + 1;
    std::memcpy(expected.data() + 8 * memory_row, fused_bytes.data() + 6 * row, 6);
  }
  const Bytes t_bytes = CutBox(tensors[1], {0, 0}, {3, 4});
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      std::memcpy(expected.data() + kFusedBytes + 2 * (3 * j + i), t_bytes.data() + 2 * (4 * i + j),
                  2);
    }
  }
  EXPECT_EQ(buffer, expected);
}

// --- aliases -------------------------------------------------------------------------------------

TEST(SharedRanges, TiedWeightsAreStoredOnceAndLoadableByEachName) {
  // A name of the same content: tied names have one.
  std::string head = "head";
  while (SaltOf(head) != SaltOf("embed")) head += "'";
  const std::vector<std::string> group{"embed", head};
  std::vector<TensorDescriptor> tensors;
  std::vector<PlacementFragment> fragments;
  for (const std::string& name : group) {
    tensors.push_back(manifest::Tensor(name, {4, 2}));
    PlacementFragment fragment = Held(name, {0, 0}, {4, 2}, 0);
    fragment.aliases = group;
    fragments.push_back(manifest::MakePlacementFragment(fragment).value());
  }
  const PlacementPtr tied = Placed(1, tensors, fragments).value();
  const auto upload = PlanUpload(tied, "g", 0).value();
  EXPECT_EQ(upload.nbytes, 16u);
  EXPECT_EQ(upload.objects.size(), 1u);
  const auto stored = BuildStoredManifest(upload, "d", "now").value();
  ASSERT_EQ(stored->fragments.size(), 2u);
  EXPECT_TRUE(stored->extended);
  for (const manifest::StoredFragment& fragment : stored->fragments) {
    EXPECT_TRUE(fragment.shares_range);
    EXPECT_EQ(fragment.aliases, group);
    EXPECT_EQ(fragment.object_key, stored->fragments[0].object_key);
    EXPECT_EQ(fragment.object_offset, 0u);
  }
  EXPECT_EQ(WhatIsWrongBetween(tied, tied), "");
  const auto again = manifest::StoredManifestFromJson(manifest::StoredManifestToJson(*stored));
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(**again, *stored);
}

}  // namespace
}  // namespace mooncake::reshard
