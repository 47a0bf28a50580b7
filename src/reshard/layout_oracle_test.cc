// Every pair of layouts of small shapes, and random ones beyond: plans are executed on real bytes
// and compared with what each element's global index says.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/all_layouts.h"
#include "reshard/element_oracle.h"
#include "reshard/plan_check.h"
#include "reshard/planner.h"
#include "reshard/random_layouts.h"

namespace mooncake::reshard {
namespace {

using geometry::Box;
using manifest::AxisKind;
using manifest::Extents;
using manifest::ParallelRank;
using manifest::PlacementFragment;
using manifest::PlacementPtr;

// The contract's order of operations.
bool InOrder(const LogicalPlan& plan) {
  const auto key = [&](size_t i) {
    const geometry::StridedRegion region = plan.region(i);
    return std::tuple(plan.target_fragment(i).placement_fragment_id, region.target_base_offset,
                      plan.source_fragment_id(i), region.source_base_offset);
  };
  for (size_t i = 1; i < plan.operations().size(); ++i) {
    if (!(key(i - 1) < key(i))) return false;
  }
  return true;
}

// One participant that holds "w" in these boxes.
PlacementPtr InBoxes(const Extents& shape, const std::vector<Box>& boxes) {
  std::vector<PlacementFragment> fragments;
  for (const Box& box : boxes) {
    Extents offset, extents;
    for (int d = 0; d < box.rank(); ++d) {
      offset.push_back(box.begin(d));
      extents.push_back(box.extent(d));
    }
    fragments.push_back(manifest::Fragment("w", offset, extents));
  }
  return manifest::PlacementFromFragments(manifest::Inventory(manifest::Topology({{}}),
                                                              {manifest::Tensor("w", shape)},
                                                              fragments))
      .value();
}

TEST(LayoutOracle, EveryPairOfTilingsOfSmallShapes) {
  for (const Extents& shape : {Extents{5}, Extents{2, 3}, Extents{3, 3}, Extents{1, 6},
                               Extents{2, 2, 2}, Extents{3, 1, 2}, Extents{2, 1, 2, 2}}) {
    const AllTilings all(shape);
    std::vector<PlacementPtr> placements;
    std::vector<SourceIndexPtr> indexes;
    for (const std::vector<Box>& boxes : all.tilings()) {
      placements.push_back(InBoxes(shape, boxes));
      indexes.push_back(IndexPlacement(placements.back()));
    }
    size_t regions = 0;
    for (const SourceIndexPtr& source : indexes) {
      for (const PlacementPtr& target : placements) {
        const auto plan = PlanFromIndex(source, target);
        ASSERT_TRUE(plan.ok()) << plan.status().ToString();
        ASSERT_EQ(WhatIsWrong(**plan), "");
        ASSERT_TRUE(InOrder(**plan));
        regions += (*plan)->operations().size();
      }
    }
    RecordProperty("pairs_rank" + std::to_string(shape.size()),
                   std::to_string(indexes.size() * placements.size()));
    EXPECT_GE(regions, placements.size() * placements.size());
  }
}

// Rows over ep, dimension `dim` over tp, in these extents.
PlacementPtr Grid(const Extents& shape, const Extents& rows, int64_t dim, const Extents& columns) {
  std::vector<ParallelRank> ranks;
  std::vector<PlacementFragment> fragments;
  int64_t row = 0;
  for (size_t ep = 0; ep < rows.size(); ++ep) {
    int64_t column = 0;
    for (size_t tp = 0; tp < columns.size(); ++tp) {
      ranks.push_back({.tp = static_cast<int64_t>(tp), .ep = static_cast<int64_t>(ep)});
      Extents offset(shape.size(), 0);
      Extents local = shape;
      offset[0] = row;
      local[0] = rows[ep];
      offset[static_cast<size_t>(dim)] = column;
      local[static_cast<size_t>(dim)] = columns[tp];
      fragments.push_back(manifest::Fragment("w", offset, local, ranks.back()));
      column += columns[tp];
    }
    row += rows[ep];
  }
  return manifest::PlacementFromFragments(
             manifest::Inventory(manifest::Topology(ranks),
                                 {manifest::Tensor("w", shape,
                                                   {manifest::Split(AxisKind::kEp, 0),
                                                    manifest::Split(AxisKind::kTp, dim)})},
                                 fragments))
      .value();
}

std::vector<PlacementPtr> AllGrids(const Extents& shape) {
  std::vector<PlacementPtr> grids;
  for (int64_t dim = 1; dim < static_cast<int64_t>(shape.size()); ++dim) {
    const int64_t extent = shape[static_cast<size_t>(dim)];
    for (int64_t eps = 1; eps <= shape[0]; ++eps) {
      for (int64_t tps = 1; tps <= extent; ++tps) {
        for (const Extents& rows : Compositions(shape[0], eps)) {
          for (const Extents& columns : Compositions(extent, tps)) {
            grids.push_back(Grid(shape, rows, dim, columns));
          }
        }
      }
    }
  }
  return grids;
}

TEST(LayoutOracle, EveryPairOfParallelGridsDirectAndThroughTheStore) {
  for (const Extents& shape : {Extents{3, 4}, Extents{2, 3, 2}, Extents{2, 2, 1, 3}}) {
    const std::vector<PlacementPtr> grids = AllGrids(shape);
    for (const PlacementPtr& from : grids) {
      const SourceIndexPtr source = IndexPlacement(from);
      const auto upload = PlanUpload(from, "g");
      ASSERT_TRUE(upload.ok());
      const auto manifest = BuildStoredManifest(*upload, "d", "2026-01-01T00:00:00Z");
      ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
      const SourceIndexPtr stored = IndexStored(*manifest);
      for (const PlacementPtr& target : grids) {
        const auto direct = PlanFromIndex(source, target);
        const auto from_store = PlanFromIndex(stored, target);
        ASSERT_TRUE(direct.ok() && from_store.ok());
        ASSERT_EQ(WhatIsWrong(**direct), "");
        ASSERT_EQ(WhatIsWrong(**from_store), "");
        ASSERT_EQ((*direct)->total_segments(), (*from_store)->total_segments());
      }
    }
  }
}

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
  fields.planning_limits = plan.limits();
  if (!plan.has_stored_source()) fields.source_executors = ExecutorsOf(plan, PlanSide::kSource);
  fields.target_executors = ExecutorsOf(plan, PlanSide::kTarget);
  return fields;
}

// What the planner makes passes the constructor's checks and comes back the same.
std::string WhatIsWrongWithFields(const LogicalPlan& plan) {
  const LogicalPlanFields fields = FieldsOf(plan);
  const auto again = MakeLogicalPlan(fields);
  if (!again.ok()) return again.status().ToString();
  if (FieldsOf(**again).operations != fields.operations) return "operations differ";
  if (PipelineRoutes(**again) != PipelineRoutes(plan)) return "routes differ";
  if ((*again)->total_bytes() != plan.total_bytes()) return "bytes differ";
  if ((*again)->total_segments() != plan.total_segments()) return "segments differ";
  return "";
}

RC_GTEST_PROP(LayoutProperty, RandomPlacementsDirectAndThroughTheStore, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<manifest::TensorDescriptor> tensors = RandomTensors(random);
  const PlacementPtr source = RandomPlacement(random, tensors).Make();
  const PlacementPtr target = RandomPlacement(random, tensors).Make();

  const auto direct = PlanPlacement(source, target);
  RC_ASSERT(direct.status() == OkStatus());
  RC_ASSERT(WhatIsWrong(**direct) == "");
  RC_ASSERT(InOrder(**direct));
  RC_ASSERT(WhatIsWrongWithFields(**direct) == "");

  const auto upload = PlanUpload(source, "g", uint64_t{1} << Below(random, 10));
  RC_ASSERT(upload.status() == OkStatus());
  const auto stored = BuildStoredManifest(*upload, "d", "2026-01-01T00:00:00Z");
  RC_ASSERT(stored.status() == OkStatus());
  const auto from_store = PlanStored(*stored, target);
  RC_ASSERT(from_store.status() == OkStatus());
  RC_ASSERT(WhatIsWrong(**from_store) == "");
  RC_ASSERT(InOrder(**from_store));
  RC_ASSERT(WhatIsWrongWithFields(**from_store) == "");

  const std::map<std::string, Bytes> objects = UploadedObjects(*upload);
  LoweringLimits limits{1 + random() % 20, 1 + random() % 200};
  for (size_t part = 0; part < target->parts.size(); ++part) {
    if (target->parts[part].fragments.empty()) continue;
    RC_ASSERT(WhatIsWrongAfterLoading(*upload, objects, *stored, target, part, limits) == "");
    const auto local =
        PlanPlacementToLocalTarget(source, target, target->parts[part].participant_id);
    RC_ASSERT(local.status() == OkStatus());
    RC_ASSERT(WhatIsWrong(**local) == "");
    RC_ASSERT(WhatIsWrongWithFields(**local) == "");
  }
}

RC_GTEST_PROP(LayoutProperty, InputOrderNeverChangesPlans, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<manifest::TensorDescriptor> tensors = RandomTensors(random);
  manifest::FragmentInventory from = RandomPlacement(random, tensors).inventory();
  manifest::FragmentInventory to = RandomPlacement(random, tensors).inventory();
  const auto plan = [&] {
    const PlacementPtr source = manifest::PlacementFromFragments(from).value();
    const PlacementPtr target = manifest::PlacementFromFragments(to).value();
    const auto upload = PlanUpload(source, "g", 64);
    return std::tuple(FieldsOf(**PlanPlacement(source, target)).operations, upload->plan_sha256,
                      BuildAffinitySummary(*upload).json);
  };
  const auto first = plan();
  for (manifest::FragmentInventory* inventory : {&from, &to}) {
    std::shuffle(inventory->fragments.begin(), inventory->fragments.end(), random);
    std::shuffle(inventory->tensors.begin(), inventory->tensors.end(), random);
  }
  RC_ASSERT(plan() == first);
}

}  // namespace
}  // namespace mooncake::reshard
