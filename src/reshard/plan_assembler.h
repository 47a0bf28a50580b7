// PlanAssembler: the one door through which the folder's makers fill a LogicalPlan.
//
// Internal to the folder. Build() is called once, after every check.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "reshard/plan.h"
#include "reshard/tensor_table.h"

namespace mooncake::reshard {

class PlanAssembler {
 public:
  PlanAssembler() : plan_(new LogicalPlan) {}

  PlanAssembler& Source(manifest::PlacementPtr placement, manifest::StoredManifestPtr stored,
                        std::shared_ptr<const TensorList> tensors) {
    plan_->source_placement_ = std::move(placement);
    plan_->source_manifest_ = std::move(stored);
    plan_->source_tensors_ = std::move(tensors);
    return *this;
  }
  PlanAssembler& Target(manifest::PlacementPtr placement, std::optional<uint32_t> local_part,
                        std::shared_ptr<const TensorList> tensors) {
    plan_->target_placement_ = std::move(placement);
    plan_->local_target_part_ = local_part;
    plan_->target_tensors_ = std::move(tensors);
    return *this;
  }
  PlanAssembler& Limits(const PlanningLimits& limits) {
    plan_->limits_ = limits;
    return *this;
  }
  PlanAssembler& BalanceDigest(std::string digest) {
    plan_->balance_digest_ = std::move(digest);
    return *this;
  }
  // `overlaps` is empty or has one box an operation.
  PlanAssembler& Operations(std::vector<PlannedOperation> operations,
                            std::vector<geometry::Box> overlaps, uint64_t total_bytes,
                            uint64_t total_segments) {
    plan_->operations_ = std::move(operations);
    plan_->overlaps_ = std::move(overlaps);
    plan_->total_bytes_ = total_bytes;
    plan_->total_segments_ = total_segments;
    return *this;
  }
  // Operations, executors, balance and limits of a plan whose fragments have the same positions.
  PlanAssembler& LikeThat(const LogicalPlan& plan) {
    plan_->operations_ = plan.operations_;
    plan_->overlaps_ = plan.overlaps_;
    plan_->total_bytes_ = plan.total_bytes_;
    plan_->total_segments_ = plan.total_segments_;
    plan_->source_executors_ = plan.source_executors_;
    plan_->target_executors_ = plan.target_executors_;
    plan_->balance_digest_ = plan.balance_digest_;
    return Limits(plan.limits_);
  }
  PlanAssembler& Executors(std::vector<uint32_t> source, std::vector<uint32_t> target) {
    plan_->source_executors_ = std::move(source);
    plan_->target_executors_ = std::move(target);
    return *this;
  }
  LogicalPlanPtr Build() { return std::move(plan_); }

 private:
  std::unique_ptr<LogicalPlan> plan_;
};

}  // namespace mooncake::reshard
