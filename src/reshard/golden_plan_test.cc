// Plans against the published vectors (tests/golden/reshard_vectors.json): operations, order,
// executors, routes and totals, field by field.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "manifest/json.h"
#include "manifest/validate.h"
#include "reshard/element_oracle.h"
#include "reshard/plan_check.h"
#include "reshard/planner.h"

namespace mooncake::reshard {
namespace {

using manifest::Extents;
using nlohmann::json;

const json& Vectors() {
  static const json vectors = [] {
    std::ifstream file(MOONCAKE_SOURCE_DIR "/tests/golden/reshard_vectors.json");
    return json::parse(file);
  }();
  return vectors;
}

manifest::PlacementPtr GoldenPlacement(const char* name) {
  return manifest::PlacementFromJson(Vectors()[name]["json"].get<std::string>()).value();
}

json OptionalNumber(const std::optional<int64_t>& value) {
  return value ? json(*value) : json(nullptr);
}

json RankJson(const manifest::ParallelRank& rank) {
  return {{"dp", rank.dp}, {"tp", rank.tp}, {"pp", rank.pp}, {"ep", rank.ep}};
}

json ExecutorsJson(const LogicalPlan& plan, PlanSide side) {
  json executors = json::array();
  for (const PlacementExecutor& executor : ExecutorsOf(plan, side)) {
    executors.push_back({{"ids", executor.placement_fragment_ids},
                         {"participant_id", executor.participant_id},
                         {"rank", RankJson(executor.rank)}});
  }
  return executors;
}

json IndicesJson(const LogicalPlan& plan, PlanSide side) {
  const ExecutorOperations operations = OperationsByExecutor(plan, side);
  json lists = json::array();
  for (size_t e = 0; e + 1 < operations.begins.size(); ++e) {
    const auto of = operations.of(e);
    lists.push_back(std::vector<uint32_t>(of.begin(), of.end()));
  }
  return lists;
}

// The plan in the vectors' own notation.
json PlanJson(const LogicalPlan& plan) {
  json operations = json::array();
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    const TransferRegion region = TransferRegionOf(plan, i);
    operations.push_back({{"tensor_id", region.tensor_id},
                          {"source", plan.source_fragment_id(i)},
                          {"target", region.target.placement_fragment_id},
                          {"overlap_offset", region.overlap_offset},
                          {"overlap_shape", region.overlap_shape},
                          {"source_base_offset", region.source_base_offset},
                          {"target_base_offset", region.target_base_offset},
                          {"inner_bytes", region.inner_bytes},
                          {"outer_loop_counts", region.outer_loop_counts},
                          {"source_strides", region.source_strides},
                          {"target_strides", region.target_strides}});
  }
  json routes = json::array();
  for (const PipelineRouteGroup& route : PipelineRoutes(plan)) {
    routes.push_back({{"source_pp", OptionalNumber(route.source_pp)},
                      {"source_pipeline_stage_id", OptionalNumber(route.source_pipeline_stage_id)},
                      {"target_pp", route.target_pp},
                      {"target_pipeline_stage_id", OptionalNumber(route.target_pipeline_stage_id)},
                      {"operation_indices", route.operation_indices}});
  }
  return {{"operations", operations},
          {"pipeline_routes", routes},
          {"source_executors", ExecutorsJson(plan, PlanSide::kSource)},
          {"target_executors", ExecutorsJson(plan, PlanSide::kTarget)},
          {"source_operation_indices", IndicesJson(plan, PlanSide::kSource)},
          {"target_operation_indices", IndicesJson(plan, PlanSide::kTarget)},
          {"total_bytes", plan.total_bytes()}};
}

TEST(GoldenPlan, PlacementToPlacement) {
  const auto plan = PlanPlacement(GoldenPlacement("source"), GoldenPlacement("target"));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(PlanJson(**plan), Vectors()["plan"]);
  EXPECT_EQ(WhatIsWrong(**plan), "");
}

// The vectors name the stored source's fragments, not its manifest: each is the source placement's
// box of that tensor that holds what is read of it.
manifest::StoredManifestPtr GoldenStored() {
  const manifest::PlacementPtr source = GoldenPlacement("source");
  manifest::StoredManifest stored;
  stored.namespace_name = "d";
  stored.resource_id = source->resource_id;
  stored.revision = source->revision;
  stored.weight_generation = source->weight_generation;
  stored.group_id = "g";
  stored.manifest_key = "g/manifest";
  stored.created_at = "2026-01-01T00:00:00Z";
  stored.tensors = source->tensors;
  std::map<std::string, manifest::StoredFragment> fragments;
  for (const json& operation : Vectors()["plan_stored"]["operations"]) {
    const geometry::Box overlap = *geometry::MakeBox(operation["overlap_offset"].get<Extents>(),
                                                     operation["overlap_shape"].get<Extents>());
    for (const auto& from : source->fragments) {
      if (from.tensor_id != operation["tensor_id"].get<std::string>() ||
          !geometry::UncheckedBox(from.global_offset, from.local_shape).Contains(overlap)) {
        continue;
      }
      manifest::StoredFragment& fragment = fragments[operation["source"]];
      fragment.fragment_id = operation["source"];
      fragment.tensor_id = from.tensor_id;
      fragment.global_offset = from.global_offset;
      fragment.local_shape = from.local_shape;
      fragment.object_key = "g/payload/" + fragment.fragment_id;
      fragment.nbytes = from.nbytes;
    }
  }
  for (const auto& [id, fragment] : fragments) stored.fragments.push_back(fragment);
  return manifest::MakeStoredManifest(std::move(stored)).value();
}

TEST(GoldenPlan, StoredToPlacement) {
  const auto plan = PlanStored(GoldenStored(), GoldenPlacement("target"));
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(PlanJson(**plan), Vectors()["plan_stored"]);
  EXPECT_EQ(WhatIsWrong(**plan), "");
}

TEST(GoldenPlan, LocalPlansAreTheGlobalPlanByParticipant) {
  const manifest::PlacementPtr source = GoldenPlacement("source");
  const manifest::PlacementPtr target = GoldenPlacement("target");
  const auto whole = PlanPlacement(source, target);
  const auto whole_stored = PlanStored(GoldenStored(), target);
  ASSERT_TRUE(whole.ok() && whole_stored.ok());
  const ExecutorOperations operations = OperationsByExecutor(**whole, PlanSide::kTarget);
  for (size_t e = 0; e < (*whole)->target_executors().size(); ++e) {
    const std::string& participant = target->parts[(*whole)->target_executors()[e]].participant_id;
    const auto local = PlanPlacementToLocalTarget(source, target, participant);
    const auto local_stored = PlanStoredToLocalTarget(GoldenStored(), target, participant);
    ASSERT_TRUE(local.ok() && local_stored.ok());
    ASSERT_EQ((*local)->operations().size(), operations.of(e).size());
    for (size_t i = 0; i < operations.of(e).size(); ++i) {
      EXPECT_EQ(TransferRegionOf(**local, i), TransferRegionOf(**whole, operations.of(e)[i]));
      EXPECT_EQ(TransferRegionOf(**local_stored, i),
                TransferRegionOf(**whole_stored, operations.of(e)[i]));
    }
    EXPECT_EQ((*local)->target_executors().size(), 1u);
    EXPECT_EQ((*local)->source_tensors().size(), source->tensors.size());
    EXPECT_EQ((*local)->target_tensors().size(),
              manifest::FindPart(*target, participant)->tensors.size());
  }
}

}  // namespace
}  // namespace mooncake::reshard
