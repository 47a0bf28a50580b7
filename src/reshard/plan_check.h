// The checks behind the contract's constructors of TransferRegion and LogicalTransferPlan, for
// plans that were put together by hand (dataclasses.replace, unpickling).
//
// The planner's own plans hold by construction and never come through here. Types of Python values
// are the binding's business; here are numbers, ids and geometry. Every violation is
// INVALID_ARGUMENT with the contract's text. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "geometry/strided_region.h"
#include "manifest/types.h"
#include "reshard/plan.h"

namespace mooncake::reshard {

// The contract's TransferRegion, fields as given.
struct TransferRegion {
  std::string tensor_id;
  std::variant<manifest::PlacementFragment, manifest::StoredFragment> source;
  manifest::PlacementFragment target;
  manifest::Extents overlap_offset;
  manifest::Extents overlap_shape;
  int64_t source_base_offset = 0;
  int64_t target_base_offset = 0;
  int64_t inner_bytes = 0;
  manifest::Extents outer_loop_counts;
  manifest::Extents source_strides;
  manifest::Extents target_strides;

  friend bool operator==(const TransferRegion&, const TransferRegion&) = default;
};
Status ValidateTransferRegion(const TransferRegion& region);
// The region as the contract's value, fragments copied.
TransferRegion TransferRegionOf(const LogicalPlan& plan, size_t operation);
// Its loops, for iter_segments and validate_bounds. The region has been validated.
geometry::StridedRegion StridedRegionOf(const TransferRegion& region);
// iter_segments' lazy check.
Status ValidateSegmentLimit(uint64_t segment_count, uint64_t max_segments);

// The contract's PipelineRouteGroup and PlacementExecutorPlan.
Status ValidatePipelineRouteGroup(const PipelineRouteGroup& group);

struct PlacementExecutor {
  std::string placement_id;
  std::string participant_id;
  manifest::ParallelRank rank;
  std::vector<std::string> placement_fragment_ids;

  friend bool operator==(const PlacementExecutor&, const PlacementExecutor&) = default;
};
Status ValidatePlacementExecutor(const PlacementExecutor& executor);
// The executors of one side as the contract's values.
std::vector<PlacementExecutor> ExecutorsOf(const LogicalPlan& plan, PlanSide side);

// The contract's LogicalTransferPlan, fields as given.
struct LogicalPlanFields {
  std::string resource_id;
  std::string revision;
  manifest::PlacementPtr source_placement;  // null for a stored source
  manifest::PlacementPtr target_placement;
  std::vector<manifest::TensorDescriptor> source_tensors;
  std::vector<manifest::TensorDescriptor> target_tensors;
  std::vector<TransferRegion> operations;
  manifest::StoredManifestPtr source_manifest;  // null for a placement source
  PlanningLimits planning_limits;
  std::string balance_digest = {};  // as the plan it was taken from says, unchecked
  std::vector<PlacementExecutor> source_executors;
  std::vector<PlacementExecutor> target_executors;
};
// Keeps the given order of operations and executors.
Result<LogicalPlanPtr> MakeLogicalPlan(const LogicalPlanFields& fields);

}  // namespace mooncake::reshard
