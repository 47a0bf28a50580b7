// Plans found again: the same pair, the next generation, and nothing else.
#include "client/plan_cache.h"

#include <gtest/gtest.h>

#include "manifest/contract_samples.h"
#include "reshard/upload_plan.h"

namespace mooncake::client {
namespace {

manifest::PlacementPtr Halves(uint64_t generation) {
  manifest::FragmentInventory inventory = manifest::MiniInventory();
  inventory.weight_generation = generation;
  return manifest::PlacementFromFragments(inventory).value();
}

// The same tensor, whole on one rank, in `pieces` fragments.
manifest::PlacementPtr Whole(uint64_t generation, int64_t pieces = 1) {
  std::vector<manifest::PlacementFragment> fragments;
  for (int64_t p = 0; p < pieces; ++p) {
    fragments.push_back(manifest::Fragment("w", {4 / pieces * p, 0}, {4 / pieces, 2}));
  }
  manifest::FragmentInventory inventory = manifest::Inventory(
      manifest::Topology({{}}), {manifest::Tensor("w", {4, 2})}, std::move(fragments));
  inventory.weight_generation = generation;
  return manifest::PlacementFromFragments(inventory).value();
}

manifest::StoredManifestPtr Stored(uint64_t generation) {
  const std::string group = "weights/d/m/r/" + std::to_string(generation);
  return reshard::BuildStoredManifest(*reshard::PlanUpload(Halves(generation), group), "d", "now")
      .value();
}

TEST(PlanCacheTest, TheNextGenerationIsNotPlannedAgain) {
  PlanCache cache;
  const auto first = cache.Plan(Stored(1), Whole(1), "p0").value();
  EXPECT_FALSE(first.reused);
  EXPECT_EQ(cache.Plan(Stored(1), Whole(1), "p0").value().plan, first.plan);
  const manifest::StoredManifestPtr next_source = Stored(2);
  const manifest::PlacementPtr next_target = Whole(2);
  const auto next = cache.Plan(next_source, next_target, "p0").value();
  EXPECT_TRUE(next.reused);
  EXPECT_EQ(next.plan->source_manifest(), next_source);
  EXPECT_EQ(next.plan->target_placement(), next_target);
  EXPECT_EQ(next.plan->operations().size(), 2u);
  // Another cut of the target is another plan.
  EXPECT_FALSE(cache.Plan(next_source, Whole(2, 2), "p0").value().reused);
  // What planning would refuse is refused with planning's words.
  EXPECT_THAT(cache.Plan(next_source, Whole(1), "p0").status(),
              manifest::Refused("source and target weight_generation differ: 2 and 1"));
}

}  // namespace
}  // namespace mooncake::client
