// The N-D planner: complete placements or a stored manifest on one side, a placement or one of its
// participants on the other.
//
// Pure and deterministic: the order in which fragments were handed in never changes a plan. Steps,
// choices, orders and messages are the contract's (docs/contracts.md, "Planner"):
//   1. the target participant; 2. resource, revision, generation; 3. tensor sets; 4. the target
//   covers its tensors; 5. one complete source DP replica per target dp, one owner per tensor;
//   6. per target fragment: descriptors agree, the overlapping source boxes tile it exactly;
//   7. limits, checked as they are reached.
// `balance`, where one is given, replaces the choice among equal sources of step 5 (balance.h).
// Every failure is INVALID_ARGUMENT. Tensors of more than geometry::kMaxRank dimensions are
// refused.
//
// What depends on the source alone (steps 5 and the box index) is a SourceIndex, made once and
// shared by any number of plans from that source, from any thread. Cost: n log n in the fragments,
// plus the regions.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "manifest/types.h"
#include "reshard/balance.h"
#include "reshard/plan.h"

namespace mooncake::reshard {

// Distinct boxes of every source tensor, with the fragment chosen for each. A source that cannot be
// planned from still has an index; planning reports why at the contract's step.
class SourceIndex;
using SourceIndexPtr = std::shared_ptr<const SourceIndex>;

SourceIndexPtr IndexPlacement(manifest::PlacementPtr source);
SourceIndexPtr IndexStored(manifest::StoredManifestPtr source);

Result<LogicalPlanPtr> PlanFromIndex(const SourceIndexPtr& source,
                                     const manifest::PlacementPtr& target,
                                     const PlanningLimits& limits = {},
                                     const Balance* balance = nullptr);

// `participant_id` may be absent when the target has one participant.
Result<LogicalPlanPtr> PlanFromIndexToLocalTarget(const SourceIndexPtr& source,
                                                  const manifest::PlacementPtr& target,
                                                  std::optional<std::string_view> participant_id,
                                                  const PlanningLimits& limits = {},
                                                  const Balance* balance = nullptr);

// The contract's plan_placement_transfer, plan_placement_transfer_to_local_target and
// plan_stored_transfer_to_target_placement; and the same for one rank that loads from the store
// with nothing but its own part of the target in memory.
Result<LogicalPlanPtr> PlanPlacement(const manifest::PlacementPtr& source,
                                     const manifest::PlacementPtr& target,
                                     const PlanningLimits& limits = {},
                                     const Balance* balance = nullptr);
Result<LogicalPlanPtr> PlanPlacementToLocalTarget(const manifest::PlacementPtr& source,
                                                  const manifest::PlacementPtr& target,
                                                  std::optional<std::string_view> participant_id,
                                                  const PlanningLimits& limits = {},
                                                  const Balance* balance = nullptr);
Result<LogicalPlanPtr> PlanStored(const manifest::StoredManifestPtr& source,
                                  const manifest::PlacementPtr& target,
                                  const PlanningLimits& limits = {});
Result<LogicalPlanPtr> PlanStoredToLocalTarget(const manifest::StoredManifestPtr& source,
                                               const manifest::PlacementPtr& target,
                                               std::optional<std::string_view> participant_id,
                                               const PlanningLimits& limits = {});

}  // namespace mooncake::reshard
