// Plans beyond the pair they were made for: the next generation, and files.
//
// A plan depends on how its two sides are cut, not on which revision they are: its *geometry
// digest* covers exactly that. Two generations with equal digests have the same fragments at the
// same positions, so a plan moves from one to the other without planning. A saved plan
// (docs/formats/plan.md) is good for every pair of its geometry; what is read back is proved again
// (tensors agree, every target fragment is tiled exactly), so a file can be refused but never fill
// a buffer wrongly. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "manifest/types.h"
#include "reshard/plan.h"

namespace mooncake::reshard {

// One of the two is set.
struct PlanSource {
  manifest::PlacementPtr placement;
  manifest::StoredManifestPtr stored;
};

// 64 hex characters: SHA-256 of these lines, each ended by "\n":
//   mooncake-plan-geometry 1
//   source placement <geometry digest>           or: source stored <geometry digest>
//   target <geometry digest>
//   participant <UrlEncode(participant id)>      for a plan that fills one participant alone
//   balance <balance digest>                     for a plan made with a balance
std::string GeometryDigestOf(const PlanSource& source, const manifest::Placement& target,
                             std::optional<std::string_view> participant_id,
                             std::string_view balance_digest = {});
std::string GeometryDigestOf(const LogicalPlan& plan);

// The plan, with its balance, for another source and target of the same geometry. INVALID_ARGUMENT
// when the geometry differs or the two are not of one revision.
Result<LogicalPlanPtr> ReusePlan(const LogicalPlan& plan, const PlanSource& source,
                                 const manifest::PlacementPtr& target);

// INVALID_ARGUMENT for a hand-made plan whose operations copy parts of what fragments share.
Result<std::string> SavePlan(const LogicalPlan& plan);

// INVALID_ARGUMENT for a damaged file, one of another geometry, and one that does not fill its
// target.
Result<LogicalPlanPtr> LoadPlan(std::string_view saved, const PlanSource& source,
                                const manifest::PlacementPtr& target);

}  // namespace mooncake::reshard
