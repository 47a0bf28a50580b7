// LogicalPlan: which bytes of which source fragment fill which bytes of which target fragment.
//
// A plan is a pure value: it names fragments, never addresses, and is shared immutably between
// threads. It holds its source and target by pointer and costs 8 bytes an operation; boxes, strided
// regions, executors' lists and pipeline routes are derived from the fragments when asked for. Its
// operations are in the contract's order: (target fragment id, target base offset, source fragment
// id, source base offset). planner.h and plan_check.h are the only makers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "geometry/box.h"
#include "geometry/strided_region.h"
#include "manifest/types.h"

namespace mooncake::reshard {

struct PlanningLimits {
  uint64_t max_transfer_regions = 1'000'000;
  uint64_t max_segments_per_region = 1'000'000;
  uint64_t max_total_lowered_segments = 10'000'000;

  // For callers that execute strided regions as they are: nothing expands, so segments cost
  // nothing.
  static constexpr PlanningLimits Unexpanded(uint64_t max_transfer_regions = UINT32_MAX) {
    return {max_transfer_regions, UINT64_MAX, UINT64_MAX};
  }
  friend bool operator==(const PlanningLimits&, const PlanningLimits&) = default;
};
Status ValidatePlanningLimits(const PlanningLimits& limits);
// INVALID_ARGUMENT that names the limit and the need. `needed` is that of the whole plan.
Status CheckRegionCount(uint64_t needed, const PlanningLimits& limits);
Status CheckRegionSegments(uint64_t segments, const PlanningLimits& limits);
// `reached`: how far the contract had counted when it went over the limit.
Status CheckTotalSegments(uint64_t reached, uint64_t needed, const PlanningLimits& limits);

// Indices into the plan's source and target fragments.
struct PlannedOperation {
  uint32_t source = 0;
  uint32_t target = 0;
  friend bool operator==(const PlannedOperation&, const PlannedOperation&) = default;
};

enum class PlanSide : uint8_t { kSource, kTarget };

class LogicalPlan {
 public:
  const std::string& resource_id() const { return target_placement_->resource_id; }
  const std::string& revision() const { return target_placement_->revision; }
  uint64_t weight_generation() const { return target_placement_->weight_generation; }

  // Exactly one of the two sources is set.
  bool has_stored_source() const { return source_manifest_ != nullptr; }
  const manifest::PlacementPtr& source_placement() const { return source_placement_; }
  const manifest::StoredManifestPtr& source_manifest() const { return source_manifest_; }
  const manifest::PlacementPtr& target_placement() const { return target_placement_; }
  // The one part of the target placement that a local plan fills.
  std::optional<uint32_t> local_target_part() const { return local_target_part_; }
  const PlanningLimits& limits() const { return limits_; }
  // Of the balance (balance.h) that chose among equal sources; empty: the contract's choice.
  const std::string& balance_digest() const { return balance_digest_; }

  // Sorted by tensor id. The source's are its whole catalog, the target's those of what is filled.
  std::span<const manifest::TensorDescriptor* const> source_tensors() const {
    return *source_tensors_;
  }
  std::span<const manifest::TensorDescriptor* const> target_tensors() const {
    return *target_tensors_;
  }

  // What PlannedOperation indexes: the placement's fragments, or the local part's.
  manifest::FragmentSpan target_fragments() const;
  // One of the two, as has_stored_source() says.
  manifest::FragmentSpan source_placement_fragments() const;
  std::span<const manifest::StoredFragment> source_stored_fragments() const;

  std::span<const PlannedOperation> operations() const { return operations_; }
  const manifest::PlacementFragment& target_fragment(size_t operation) const {
    return target_fragments()[operations_[operation].target];
  }
  const std::string& tensor_id(size_t operation) const {
    return target_fragment(operation).tensor_id;
  }
  // The source fragment's id, whichever kind it is.
  const std::string& source_fragment_id(size_t operation) const;
  geometry::Box source_box(size_t operation) const;
  geometry::Box target_box(size_t operation) const;
  geometry::Box overlap(size_t operation) const;
  // Bytes of one element (one item of a packed tensor).
  uint64_t itemsize(size_t operation) const;
  // Canonical form, relative to the starts of the two fragments.
  geometry::StridedRegion region(size_t operation) const;

  // Every operation copies all that its two fragments share (as the planner's do).
  bool copies_whole_overlaps() const { return overlaps_.empty(); }

  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t total_segments() const { return total_segments_; }  // saturates

  // Parts (indices into the placement's parts) that take part, ordered by (dp, pp, ep, tp). A
  // stored source has no executors.
  std::span<const uint32_t> source_executors() const { return source_executors_; }
  std::span<const uint32_t> target_executors() const { return target_executors_; }

  // Bytes of memory this plan holds beside its source and target.
  size_t memory_bytes() const;

 private:
  friend class PlanAssembler;
  LogicalPlan() = default;

  manifest::PlacementPtr source_placement_;
  manifest::StoredManifestPtr source_manifest_;
  manifest::PlacementPtr target_placement_;
  std::optional<uint32_t> local_target_part_;
  PlanningLimits limits_;
  std::string balance_digest_;
  // Shared: every local plan from one source index has the same source catalog.
  std::shared_ptr<const std::vector<const manifest::TensorDescriptor*>> source_tensors_;
  std::shared_ptr<const std::vector<const manifest::TensorDescriptor*>> target_tensors_;
  std::vector<PlannedOperation> operations_;
  // Empty when every operation copies the whole intersection of its two fragments (all that the
  // planner makes); else one box an operation.
  std::vector<geometry::Box> overlaps_;
  std::vector<uint32_t> source_executors_;
  std::vector<uint32_t> target_executors_;
  uint64_t total_bytes_ = 0;
  uint64_t total_segments_ = 0;
};
using LogicalPlanPtr = std::shared_ptr<const LogicalPlan>;

// Operations by the pipeline stages they connect; a stored source has no stage.
struct PipelineRouteGroup {
  std::optional<int64_t> source_pp;
  std::optional<int64_t> source_pipeline_stage_id;
  int64_t target_pp = 0;
  std::optional<int64_t> target_pipeline_stage_id;
  std::vector<uint32_t> operation_indices;  // ascending
  friend bool operator==(const PipelineRouteGroup&, const PipelineRouteGroup&) = default;
};
std::vector<PipelineRouteGroup> PipelineRoutes(const LogicalPlan& plan);

// The operations of every executor of one side: those of executor e (its position in
// source_executors() or target_executors()) are indices[begins[e]] ... indices[begins[e + 1] - 1].
struct ExecutorOperations {
  std::vector<uint32_t> begins;
  std::vector<uint32_t> indices;

  std::span<const uint32_t> of(size_t executor) const {
    return std::span(indices).subspan(begins[executor], begins[executor + 1] - begins[executor]);
  }
};
ExecutorOperations OperationsByExecutor(const LogicalPlan& plan, PlanSide side);

}  // namespace mooncake::reshard
