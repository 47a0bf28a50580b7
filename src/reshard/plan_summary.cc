#include "reshard/plan_summary.h"

#include <map>
#include <utility>

#include "base/check.h"
#include "reshard/source_index.h"
#include "reshard/tensor_table.h"

namespace mooncake::reshard {
namespace {

void Add(const geometry::StridedRegion& region, PlanTotals* totals) {
  ++totals->regions;
  if (__builtin_add_overflow(totals->runs, region.segment_count(), &totals->runs)) {
    totals->runs = UINT64_MAX;
  }
  totals->bytes += region.total_bytes();  // a plan's bytes fit
}

}  // namespace

PlanSummary Summarize(const LogicalPlan& plan) {
  PlanSummary summary;
  const std::vector<uint32_t> source_part = plan.has_stored_source()
                                                ? std::vector<uint32_t>()
                                                : PartsOfFragments(*plan.source_placement());
  const std::optional<uint32_t> only_part = plan.local_target_part();
  const std::vector<uint32_t> target_part =
      only_part ? std::vector<uint32_t>() : PartsOfFragments(*plan.target_placement());
  const TensorTable tensors(plan.target_tensors());
  std::map<std::pair<int64_t, uint32_t>, PlanTotals> pairs;  // source -1: stored
  std::vector<PlanTotals> of_tensor(plan.target_tensors().size());
  uint64_t most = 0, most_inner = 0, smallest = 0, smallest_runs = 0;
  for (uint32_t i = 0; i < plan.operations().size(); ++i) {
    const PlannedOperation& operation = plan.operations()[i];
    const geometry::StridedRegion region = plan.region(i);
    Add(region, &summary.totals);
    const int64_t source =
        plan.has_stored_source() ? -1 : static_cast<int64_t>(source_part[operation.source]);
    Add(region, &pairs[{source, only_part ? *only_part : target_part[operation.target]}]);
    Add(region, &of_tensor[tensors.FindKnown(plan.tensor_id(i))]);
    const uint64_t runs = region.segment_count();
    const uint64_t inner = region.inner_bytes;
    if (!summary.most_runs || runs > most || (runs == most && inner < most_inner)) {
      summary.most_runs = i;
      most = runs;
      most_inner = inner;
    }
    if (!summary.smallest_runs || inner < smallest || (inner == smallest && runs > smallest_runs)) {
      summary.smallest_runs = i;
      smallest = inner;
      smallest_runs = runs;
    }
  }
  for (const auto& [key, totals] : pairs) {
    const auto source =
        key.first < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(key.first));
    summary.pairs.push_back({source, key.second, totals});
  }
  for (uint32_t t = 0; t < of_tensor.size(); ++t) {
    if (of_tensor[t].regions > 0) summary.tensors.push_back({t, of_tensor[t]});
  }
  return summary;
}

}  // namespace mooncake::reshard
