#include "reshard/plan_summary.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "manifest/lookup.h"
#include "reshard/planner.h"
#include "reshard/random_extended.h"
#include "reshard/upload_plan.h"

namespace mooncake::reshard {
namespace {

template <class Rows>
PlanTotals Sum(const Rows& rows) {
  PlanTotals sum;
  for (const auto& row : rows) {
    sum.regions += row.totals.regions;
    sum.runs += row.totals.runs;
    sum.bytes += row.totals.bytes;
  }
  return sum;
}

// Every table adds up to the plan's own totals, and no region has more or smaller runs.
void Check(const LogicalPlan& plan) {
  const PlanSummary summary = Summarize(plan);
  for (const PlanTotals& totals : {summary.totals, Sum(summary.pairs), Sum(summary.tensors)}) {
    RC_ASSERT(totals.regions == plan.operations().size());
    RC_ASSERT(totals.runs == plan.total_segments());
    RC_ASSERT(totals.bytes == plan.total_bytes());
  }
  RC_ASSERT(summary.most_runs.has_value() == !plan.operations().empty());
  for (const PairTotals& pair : summary.pairs) {
    RC_ASSERT(pair.source.has_value() == !plan.has_stored_source());
  }
  for (const TensorTotals& tensor : summary.tensors) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan.operations().size(); ++i) {
      if (plan.tensor_id(i) == plan.target_tensors()[tensor.tensor]->tensor_id.str()) {
        bytes += plan.region(i).total_bytes();
      }
    }
    RC_ASSERT(bytes == tensor.totals.bytes);
  }
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    RC_ASSERT(plan.region(i).segment_count() <= plan.region(*summary.most_runs).segment_count());
    RC_ASSERT(plan.region(i).inner_bytes >= plan.region(*summary.smallest_runs).inner_bytes);
  }
}

RC_GTEST_PROP(PlanSummary, TablesAddUp, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<manifest::TensorDescriptor> tensors = RandomTensors(random);
  const auto source = manifest::PlacementFromFragments(RandomExtended(random, tensors)).value();
  const auto target = manifest::PlacementFromFragments(RandomExtended(random, tensors)).value();
  Check(*PlanPlacement(source, target).value());
  const auto stored = BuildStoredManifest(*PlanUpload(source, "g", 64), "d", "now").value();
  Check(*PlanStored(stored, target).value());
  for (const manifest::PlacementPart& part : target->parts) {
    if (!manifest::HoldsElements(part)) continue;
    Check(*PlanPlacementToLocalTarget(source, target, part.participant_id).value());
  }
}

}  // namespace
}  // namespace mooncake::reshard
