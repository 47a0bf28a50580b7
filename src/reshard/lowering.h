// Lowering: a bound plan as a stream of bounded batches of strided copies.
//
// Lazy: one batch exists at a time and memory does not grow with the plan. A region is never
// expanded to one copy a row; it is coalesced, and cut only where it exceeds a batch's bytes.
// Batches follow the source: all of one object, by ascending source offset, then the next object. A
// Lowering belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "geometry/strided_region.h"
#include "reshard/bind.h"

namespace mooncake::reshard {

struct LoweringLimits {
  uint64_t max_batch_operations = 1024;
  uint64_t max_batch_bytes = uint64_t{64} << 20;
  // Of all batches together. Batches are cut to their limits; this one fails before the first.
  uint64_t max_operations = UINT64_MAX;
};

// source = the object's first byte + region.source..., target = memory address 0 + region.target...
struct LoweredCopy {
  uint32_t operation = 0;  // index into the plan's operations
  geometry::StridedRegion region;
};

struct CopyBatch {
  uint32_t object = 0;  // index into BoundPlan::objects()
  uint64_t nbytes = 0;
  std::vector<LoweredCopy> copies;  // never empty
};

class Lowering {
 public:
  // INVALID_ARGUMENT for a limit of 0, and for a plan that needs more than max_operations.
  static Result<Lowering> Begin(BoundPlanPtr plan, const LoweringLimits& limits = {});

  // Fills `batch` (reusing its memory) with the next batch; false when there is none.
  bool Next(CopyBatch* batch);

 private:
  Lowering(BoundPlanPtr plan, const LoweringLimits& limits);
  // Copies that all batches have together.
  uint64_t CountOperations() const;

  BoundPlanPtr plan_;
  LoweringLimits limits_;
  std::vector<uint32_t> order_;  // operations by (object, source offset, operation)
  size_t next_ = 0;
  std::optional<geometry::RegionSplitter> cutting_;  // of order_[next_]
};

}  // namespace mooncake::reshard
