// What a plan takes, added up: for people who look at one (`mooncake plan explain`).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/plan.h"

namespace mooncake::reshard {

struct PlanTotals {
  uint64_t regions = 0;
  uint64_t runs = 0;  // contiguous ones; saturates
  uint64_t bytes = 0;
};

// Between two parts (indices into the placements' parts); a stored source has no part.
struct PairTotals {
  std::optional<uint32_t> source;
  uint32_t target = 0;
  PlanTotals totals;
};

struct TensorTotals {
  uint32_t tensor = 0;  // index into the plan's target tensors
  PlanTotals totals;
};

struct PlanSummary {
  PlanTotals totals;
  std::vector<PairTotals> pairs;      // by (source, target)
  std::vector<TensorTotals> tensors;  // those that move anything, by tensor
  // The operation of most runs (of those, of the smallest; of those, the first), and the one with
  // the smallest runs. None: the plan has no operations.
  std::optional<uint32_t> most_runs;
  std::optional<uint32_t> smallest_runs;
};
PlanSummary Summarize(const LogicalPlan& plan);

}  // namespace mooncake::reshard
