// Placements of published model shapes under common parallel layouts, for plan_bench.
//
// Sizes come from the models' published configurations (Qwen3-235B-A22B, DeepSeek-V3). No weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manifest/types.h"

namespace mooncake::reshard {

struct Parallelism {
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t ep = 1;
  int64_t dp = 1;
  // tp and ep coordinates are those of the same workers (tp == ep); otherwise every combination of
  // (dp, pp, ep, tp) is a worker of its own.
  bool shared_workers = false;
};

// Qwen3-235B-A22B: 94 layers of 128 experts, each expert's three matrices a tensor of its own, or
// one tensor for all gates and ups and one for all downs of a layer.
manifest::PlacementPtr Qwen3MoePlacement(const Parallelism& parallelism, bool grouped_experts);

// DeepSeek-V3: 61 layers, 58 of them of 256 experts, with fp8 block scales; every matrix a tensor.
manifest::PlacementPtr DeepSeekV3Placement(const Parallelism& parallelism);

// One tensor (32, 8192, 8192), two bytes an element, cut evenly along `dim` over `ranks` ranks.
manifest::PlacementPtr CutCubePlacement(int64_t dim, int64_t ranks);

// `rows` x `columns` blocks of one matrix, one fragment each, in one participant.
manifest::PlacementPtr BlockedMatrixPlacement(int64_t rows, int64_t columns);

}  // namespace mooncake::reshard
