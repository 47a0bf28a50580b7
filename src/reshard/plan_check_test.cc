// The constructor checks of plans and regions that were put together by hand: one wrong field each.
#include "reshard/plan_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"
#include "reshard/planner.h"

namespace mooncake::reshard {
namespace {

using manifest::Accepted;
using manifest::AxisKind;
using manifest::Fragment;
using manifest::Inventory;
using manifest::ParallelRank;
using manifest::PlacementFragment;
using manifest::PlacementFromFragments;
using manifest::PlacementPtr;
using manifest::Refused;
using manifest::Split;
using manifest::StoredFragment;
using manifest::Tensor;
using manifest::Topology;

PlacementPtr Halves(size_t dim, uint64_t weight_generation = 1) {
  std::vector<ParallelRank> ranks{{.tp = 0}, {.tp = 1}};
  std::vector<PlacementFragment> fragments;
  for (const ParallelRank& rank : ranks) {
    manifest::Extents offset{0, 0};
    manifest::Extents shape{4, 6};
    shape[dim] /= 2;
    offset[dim] = rank.tp * shape[dim];
    fragments.push_back(Fragment("w", offset, shape, rank));
  }
  manifest::FragmentInventory inventory = Inventory(
      Topology(ranks), {Tensor("w", {4, 6}, {Split(AxisKind::kTp, static_cast<int64_t>(dim))})},
      fragments);
  inventory.weight_generation = weight_generation;
  return PlacementFromFragments(std::move(inventory)).value();
}

manifest::StoredManifestPtr StoredHalves() {
  return BuildStoredManifest(PlanUpload(Halves(0), "g").value(), "d", "2026-01-01T00:00:00Z")
      .value();
}

// ---- regions ----

// Rows 0..1 of six, columns 0..2 of six, into the left half.
TransferRegion Region() {
  return TransferRegionOf(**PlanPlacementToLocalTarget(Halves(0), Halves(1), "p0"), 0);
}

Status With(const std::function<void(TransferRegion&)>& change) {
  TransferRegion region = Region();
  change(region);
  return ValidateTransferRegion(region);
}

TEST(TransferRegionTest, FieldsAreCheckedOneByOne) {
  EXPECT_THAT(With([](auto&) {}), Accepted());
  EXPECT_THAT(With([](auto& r) { r.tensor_id = ""; }), Refused("tensor_id must be a non-empty"));
  EXPECT_THAT(With([](auto& r) { r.tensor_id = "v"; }), Refused("transfer region tensor mismatch"));
  EXPECT_THAT(With([](auto& r) { r.target.tensor_id = "v"; }),
              Refused("transfer region tensor mismatch"));
  EXPECT_THAT(With([](auto& r) { r.overlap_shape = {2}; }),
              Refused("transfer region logical rank mismatch"));
  EXPECT_THAT(With([](auto& r) { r.target.global_offset = {0}; }),
              Refused("transfer region logical rank mismatch"));
  EXPECT_THAT(With([](auto& r) { r.overlap_offset[0] = -1; }),
              Refused("transfer region logical box is invalid"));
  EXPECT_THAT(With([](auto& r) { r.overlap_shape[1] = 0; }),
              Refused("transfer region logical box is invalid"));
  EXPECT_THAT(With([](auto& r) {
                r.overlap_shape[0] = INT64_MAX;
                r.overlap_offset[0] = 1;
              }),
              Refused("transfer region logical box is invalid"));
  EXPECT_THAT(With([](auto& r) { r.overlap_shape[0] = 3; }),
              Refused("transfer region exceeds source logical fragment"));
  EXPECT_THAT(With([](auto& r) { r.overlap_shape[1] = 4; }),
              Refused("transfer region exceeds target logical fragment"));
  EXPECT_THAT(With([](auto& r) { r.source_base_offset = -1; }),
              Refused("source_base_offset must be at least 0, got -1"));
  EXPECT_THAT(With([](auto& r) { r.inner_bytes = 0; }), Refused("inner_bytes must be at least 1"));
  EXPECT_THAT(With([](auto& r) { r.source_strides.clear(); }), Refused("loop ranks differ"));
  EXPECT_THAT(With([](auto& r) { r.outer_loop_counts[0] = 0; }),
              Refused("outer_loop_counts must be at least 1"));
  EXPECT_THAT(With([](auto& r) { r.target_strides[0] = -6; }),
              Refused("strides must be at least 0"));
  EXPECT_THAT(With([](auto& r) { r.target.nbytes *= 2; }), Refused("transfer region itemsize"));
  EXPECT_THAT(With([](auto& r) { r.target.nbytes += 1; }), Refused("transfer region itemsize"));
  EXPECT_THAT(With([](auto& r) { r.inner_bytes = 12; }),
              Refused("transfer region loop geometry does not match overlap"));
  EXPECT_THAT(With([](auto& r) {
                r.outer_loop_counts[0] = INT64_MAX;
                r.inner_bytes = INT64_MAX;
              }),
              Refused("transfer region loop geometry does not match overlap"));
  EXPECT_THAT(With([](auto& r) { r.source_base_offset = 2; }),
              Refused("transfer region source base offset is inconsistent: expected 0, got 2"));
  EXPECT_THAT(With([](auto& r) { r.target_base_offset = 6; }),
              Refused("transfer region target base offset is inconsistent"));
  EXPECT_THAT(With([](auto& r) { r.source_strides[0] = 6; }),
              Refused("transfer region loop geometry is not canonical"));
  EXPECT_THAT(With([](auto& r) {
                r.outer_loop_counts = {2, 3};
                r.source_strides = {12, 2};
                r.target_strides = {6, 2};
                r.inner_bytes = 2;
              }),
              Refused("transfer region loop geometry is not canonical"));
}

TEST(TransferRegionTest, SegmentLimit) {
  EXPECT_THAT(ValidateSegmentLimit(3, 3), Accepted());
  EXPECT_THAT(ValidateSegmentLimit(4, 3), Refused("transfer region exceeds max_segments: 4 > 3"));
  EXPECT_THAT(ValidateSegmentLimit(1, 0), Refused("max_segments must be a positive integer"));
}

TEST(RouteAndExecutorTest, FieldsAreChecked) {
  EXPECT_THAT(ValidatePipelineRouteGroup({0, std::nullopt, 1, 2, {0, 5}}), Accepted());
  EXPECT_THAT(ValidatePipelineRouteGroup({-1, std::nullopt, 0, 0, {}}), Refused("source_pp"));
  EXPECT_THAT(ValidatePipelineRouteGroup({0, std::nullopt, 0, -2, {}}),
              Refused("target_pipeline_stage_id must be at least 0, got -2"));
  EXPECT_THAT(ValidatePipelineRouteGroup({0, 0, 0, 0, {1, 2, 1}}), Refused("duplicates: 1"));
  EXPECT_THAT(ValidatePlacementExecutor({"s", "p", {}, {"f"}}), Accepted());
  EXPECT_THAT(ValidatePlacementExecutor({"", "p", {}, {"f"}}), Refused("placement_id"));
  EXPECT_THAT(ValidatePlacementExecutor({"s", "", {}, {"f"}}), Refused("participant_id"));
  EXPECT_THAT(ValidatePlacementExecutor({"s", "p", {}, {}}), Refused("must not be empty"));
  EXPECT_THAT(ValidatePlacementExecutor({"s", "p", {}, {"f", "f"}}), Refused("duplicates: f"));
}

// ---- plans ----

LogicalPlanFields FieldsOf(const LogicalPlan& plan) {
  LogicalPlanFields fields;
  fields.resource_id = plan.resource_id();
  fields.revision = plan.revision();
  fields.source_placement = plan.source_placement();
  fields.source_manifest = plan.source_manifest();
  fields.target_placement = plan.target_placement();
  for (const auto* tensor : plan.source_tensors()) fields.source_tensors.push_back(*tensor);
  for (const auto* tensor : plan.target_tensors()) fields.target_tensors.push_back(*tensor);
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    fields.operations.push_back(TransferRegionOf(plan, i));
  }
  fields.source_executors = ExecutorsOf(plan, PlanSide::kSource);
  fields.target_executors = ExecutorsOf(plan, PlanSide::kTarget);
  return fields;
}

Result<LogicalPlanPtr> Changed(LogicalPlanFields fields,
                               const std::function<void(LogicalPlanFields&)>& change) {
  change(fields);
  return MakeLogicalPlan(fields);
}

LogicalPlanFields PlacementFields() { return FieldsOf(**PlanPlacement(Halves(0), Halves(1))); }

TEST(LogicalPlanTest, IdentityAndLimits) {
  const LogicalPlanFields good = PlacementFields();
  EXPECT_THAT(Changed(good, [](auto&) {}), Accepted());
  EXPECT_THAT(Changed(good, [](auto& f) { f.resource_id = ""; }), Refused("resource_id"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.resource_id = "n"; }),
              Refused("resource_id differ: n and m"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.revision = "q"; }),
              Refused("revision differ: q and r"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_placement = nullptr; }),
              Refused("target placement"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_placement = nullptr; }),
              Refused("logical transfer plan requires exactly one source provenance"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_manifest = StoredHalves(); }),
              Refused("logical transfer plan requires exactly one source provenance"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.planning_limits.max_transfer_regions = 3; }),
              Refused("logical transfer plan exceeds max_transfer_regions: 3, it needs 4"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.planning_limits.max_segments_per_region = 1; }),
              Refused("logical transfer region exceeds max_segments_per_region: 2 > 1"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.planning_limits.max_total_lowered_segments = 7; }),
              Refused("logical transfer plan exceeds max_total_lowered_segments: 8 > 7"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.operations[1].inner_bytes = 3; }),
              Refused("loop geometry does not match overlap"));
  EXPECT_THAT(Changed(good, [&](auto& f) { f.target_placement = Halves(1, 2); }),
              Refused("weight_generation differ: 1 and 2"));
}

TEST(LogicalPlanTest, TargetSide) {
  const LogicalPlanFields good = PlacementFields();
  EXPECT_THAT(
      Changed(good, [](auto& f) { f.operations[0].target.placement_fragment_id = "other"; }),
      Refused("logical plan and target placement fragment snapshots differ: other"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.operations[0].target.pipeline_stage_id = 4; }),
              Refused("logical plan and target placement fragment snapshots differ"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors.clear(); }),
              Refused("logical plan has no target executor metadata"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors.pop_back(); }),
              Refused("logical target executor participants differ from operations: missing p1"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors[1] = f.target_executors[0]; }),
              Refused("duplicate logical target executor participant: p0"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors[0].placement_id = "x"; }),
              Refused("logical target executor placement_id differs: x"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors[0].rank.tp = 7; }),
              Refused("logical target executor rank differs"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors[0].participant_id = "p9"; }),
              Refused("logical target executor participant differs"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_executors[0].placement_fragment_ids = {"x"}; }),
              Refused("logical target executor fragment ids differ"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.target_tensors[0].dtype = "int16"; }),
              Refused("logical target tensor catalog differs from placement"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.operations.erase(f.operations.begin()); }),
              Refused("logical target fragment is not fully covered: sha256:"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.operations.push_back(f.operations[0]); }),
              Refused("logical target fragment is not fully covered: sha256:"));
}

TEST(LogicalPlanTest, PlacementSourceSide) {
  const LogicalPlanFields good = PlacementFields();
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_tensors.clear(); }),
              Refused("logical plan source tensor catalog differs from placement"));
  EXPECT_THAT(Changed(good,
                      [](auto& f) {
                        std::get<PlacementFragment>(f.operations[0].source).placement_fragment_id =
                            "x";
                      }),
              Refused("logical plan and source placement fragment snapshots differ: x"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_executors.clear(); }),
              Refused("logical plan has no source executor metadata"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_executors[0].rank.dp = 1; }),
              Refused("logical source executor rank differs"));
  // Two operations suffice for the left target, yet read both sources.
  EXPECT_THAT(Changed(FieldsOf(**PlanPlacementToLocalTarget(Halves(0), Halves(1), "p0")),
                      [](auto& f) { f.source_executors.pop_back(); }),
              Refused("logical source executor participants differ from operations: missing p1"));
}

TEST(LogicalPlanTest, StoredSourceSide) {
  const LogicalPlanFields good = FieldsOf(**PlanStored(StoredHalves(), Halves(1)));
  EXPECT_THAT(Changed(good, [](auto&) {}), Accepted());
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_tensors[0].itemsize = 4; }),
              Refused("logical plan source tensor catalog differs"));
  EXPECT_THAT(
      Changed(good,
              [](auto& f) { std::get<StoredFragment>(f.operations[0].source).object_offset = 1; }),
      Refused("logical plan and source manifest fragment snapshots differ"));
  EXPECT_THAT(Changed(good, [](auto& f) { f.source_executors = f.target_executors; }),
              Refused("stored source has source executor metadata"));
  EXPECT_THAT(
      Changed(good,
              [](auto& f) { f.operations[0].source = PlacementFields().operations[0].source; }),
      Refused("does not match the plan's source kind"));
}

TEST(LogicalPlanTest, OperationsMayCopyPartsAndStandInAnyOrder) {
  // The same bytes in two regions instead of one, last target first.
  LogicalPlanFields fields = PlacementFields();
  TransferRegion lower = fields.operations[0];
  lower.overlap_offset[0] += 1;
  lower.overlap_shape[0] = 1;
  lower.source_base_offset += 12;
  lower.target_base_offset += 6;
  lower.outer_loop_counts = {1};  // loops of one round are kept
  TransferRegion upper = lower;
  upper.overlap_offset[0] -= 1;
  upper.source_base_offset -= 12;
  upper.target_base_offset -= 6;
  fields.operations[0] = lower;
  fields.operations.push_back(upper);
  std::reverse(fields.operations.begin(), fields.operations.end());
  const auto plan = MakeLogicalPlan(fields);
  ASSERT_THAT(plan, Accepted());
  EXPECT_EQ(WhatIsWrong(**plan), "");
  EXPECT_EQ(FieldsOf(**plan).operations, fields.operations);
  EXPECT_EQ((*plan)->operations().size(), 5u);
}

}  // namespace
}  // namespace mooncake::reshard
