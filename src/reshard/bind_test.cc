// Binding stored plans to memory, and lowering them into batches.
#include "reshard/bind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"
#include "reshard/lowering.h"

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
using manifest::RuntimeBinding;
using manifest::Split;
using manifest::StoredManifestPtr;
using manifest::Tensor;
using manifest::Topology;

// "a" (8, 6) and "b" (4) in two ranks, cut along `dim`.
PlacementPtr Halves(size_t dim) {
  std::vector<ParallelRank> ranks{{.tp = 0}, {.tp = 1}};
  std::vector<PlacementFragment> fragments;
  for (const ParallelRank& rank : ranks) {
    manifest::Extents offset{0, 0};
    manifest::Extents shape{8, 6};
    shape[dim] /= 2;
    offset[dim] = rank.tp * shape[dim];
    fragments.push_back(Fragment("a", offset, shape, rank));
    fragments.push_back(Fragment("b", {2 * rank.tp}, {2}, rank));
  }
  return PlacementFromFragments(
             Inventory(Topology(ranks),
                       {Tensor("a", {8, 6}, {Split(AxisKind::kTp, static_cast<int64_t>(dim))}),
                        Tensor("b", {4}, {Split(AxisKind::kTp, 0)})},
                       fragments))
      .value();
}

struct Stored {
  UploadPlan upload;
  StoredManifestPtr manifest;
};
Stored Store(const PlacementPtr& placement, uint64_t pack_threshold) {
  UploadPlan upload = PlanUpload(placement, "g", pack_threshold).value();
  StoredManifestPtr manifest = BuildStoredManifest(upload, "d", "2026-01-01T00:00:00Z").value();
  return {std::move(upload), std::move(manifest)};
}

TEST(BindTest, OperationsCarryObjectsOffsetsAndAddresses) {
  const Stored stored = Store(Halves(0), 10);  // b packed, a as objects
  const PlacementPtr target = Halves(1);
  const LogicalPlanPtr plan = PlanStoredToLocalTarget(stored.manifest, target, "p1").value();
  const BoundMemory memory = BindMemory(*target, target->parts[1]);
  const BoundPlanPtr bound = BindStoredToLocalTarget(plan, *memory.binding).value();
  ASSERT_EQ(bound->size(), 3u);  // two halves of a, one b
  uint64_t needed = 0;
  for (const SourceObject& object : bound->objects()) {
    EXPECT_EQ(std::string(object.key), "g/payload/" + std::string(object.name));
    EXPECT_LE(object.end_byte - object.first_byte, object.name.starts_with("pack-") ? 4u : 48u);
    needed += object.bytes_needed;
  }
  EXPECT_EQ(needed, plan->total_bytes());
  EXPECT_EQ(bound->objects().size(), 3u);
  for (size_t i = 0; i < bound->size(); ++i) {
    const BoundOperation operation = bound->operation(i);
    EXPECT_EQ(operation.region, plan->region(i));
    EXPECT_EQ(bound->object_begin(i),
              operation.object_offset + operation.region.source_base_offset);
    EXPECT_EQ(operation.target_address, bound->target_address(i));
    const auto& fragments = target->parts[1].fragments;
    const auto f = plan->operations()[i].target;
    EXPECT_EQ(operation.target_address, reinterpret_cast<uint64_t>(memory.buffers[f].data()));
    EXPECT_EQ(fragments[f].tensor_id, plan->tensor_id(i));
  }
}

TEST(BindTest, RefusesWhatDoesNotBelongTogether) {
  const Stored stored = Store(Halves(0), 1);
  const PlacementPtr target = Halves(1);
  const LogicalPlanPtr plan = PlanStoredToLocalTarget(stored.manifest, target, "p1").value();
  const BoundMemory other = BindMemory(*target, target->parts[0]);
  EXPECT_THAT(BindStoredToLocalTarget(plan, *other.binding),
              Refused("the plan fills participant p1, the binding is of participant p0"));
  const BoundMemory mine = BindMemory(*target, target->parts[1]);
  EXPECT_THAT(BindStoredToLocalTarget(PlanStored(stored.manifest, target).value(), *mine.binding),
              Refused("the plan fills the whole placement"));
  EXPECT_THAT(BindStoredToLocalTarget(PlanPlacementToLocalTarget(Halves(0), target, "p1").value(),
                                      *mine.binding),
              Refused("not a stored manifest"));
  RuntimeBinding stale = *mine.binding;
  stale.placement_digest = std::string(64, '0');
  EXPECT_THAT(BindStoredToLocalTarget(plan, stale),
              Refused("placement digest and runtime binding placement digest differ"));
  RuntimeBinding torn = *mine.binding;
  torn.fragments.pop_back();
  EXPECT_THAT(BindStoredToLocalTarget(plan, torn),
              Refused("missing placement fragment in runtime binding"));
  EXPECT_TRUE(BindStoredToLocalTarget(plan, *mine.binding).ok());
}

TEST(LoweringTest, BatchesFollowObjectsAndStayInTheirLimits) {
  const Stored stored = Store(Halves(0), 10);
  const PlacementPtr target = Halves(1);
  const LogicalPlanPtr plan = PlanStoredToLocalTarget(stored.manifest, target, "p0").value();
  const BoundMemory memory = BindMemory(*target, target->parts[0]);
  const BoundPlanPtr bound = BindStoredToLocalTarget(plan, *memory.binding).value();
  const auto batches_of = [&](const LoweringLimits& limits) {
    std::vector<CopyBatch> batches;
    Lowering lowering = Lowering::Begin(bound, limits).value();
    for (CopyBatch batch; lowering.Next(&batch);) batches.push_back(batch);
    return batches;
  };
  // Three objects, one copy each: four rows of three columns stay one strided copy.
  const std::vector<CopyBatch> whole = batches_of({});
  ASSERT_EQ(whole.size(), 3u);
  for (uint32_t b = 0; b < 3; ++b) {
    EXPECT_EQ(whole[b].object, b);
    EXPECT_EQ(whole[b].copies.size(), 1u);
  }
  // Bytes: a region is cut only where it does not fit, between rows while rows fit.
  const std::vector<CopyBatch> cut = batches_of({1024, 12});
  size_t copies = 0;
  for (const CopyBatch& batch : cut) {
    EXPECT_LE(batch.nbytes, 12u);
    for (const LoweredCopy& copy : batch.copies) {
      EXPECT_TRUE(copy.region.inner_bytes == 6 || copy.region.inner_bytes == 4);
    }
    copies += batch.copies.size();
  }
  EXPECT_EQ(copies, 5u);
  EXPECT_EQ(batches_of({1, 5}).size(), 17u);  // 2 bytes of each 6-byte row are left over
  EXPECT_THAT(Lowering::Begin(bound, {0, 1}), Refused("max_batch_operations must be at least 1"));
  EXPECT_THAT(Lowering::Begin(bound, {1, 0}), Refused("max_batch_bytes must be at least 1"));
  EXPECT_THAT(Lowering::Begin(bound, {1, 5, 0}), Refused("max_operations must be at least 1"));
  EXPECT_TRUE(Lowering::Begin(bound, {1, 5, 17}).ok());
  EXPECT_THAT(Lowering::Begin(bound, {1, 5, 16}),
              Refused("lowering exceeds max_operations: 17 > 16"));
  EXPECT_THAT(Lowering::Begin(bound, {1024, 1024, 2}),
              Refused("lowering exceeds max_operations: 3 > 2"));
}

TEST(LoweringTest, EveryLimitGivesTheSameBytes) {
  const Stored stored = Store(Halves(0), 10);
  const std::map<std::string, Bytes> objects = UploadedObjects(stored.upload);
  const PlacementPtr target = Halves(1);
  for (uint64_t operations : {1, 2, 100}) {
    for (uint64_t bytes = 1; bytes < 60; ++bytes) {
      for (size_t part : {0, 1}) {
        EXPECT_EQ(WhatIsWrongAfterLoading(stored.upload, objects, stored.manifest, target, part,
                                          {operations, bytes}),
                  "");
      }
    }
  }
}

}  // namespace
}  // namespace mooncake::reshard
