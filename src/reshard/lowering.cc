#include "reshard/lowering.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace mooncake::reshard {

Result<Lowering> Lowering::Begin(BoundPlanPtr plan, const LoweringLimits& limits) {
  if (limits.max_batch_operations == 0) {
    return InvalidArgument("max_batch_operations must be at least 1, got 0");
  }
  if (limits.max_batch_bytes == 0) {
    return InvalidArgument("max_batch_bytes must be at least 1, got 0");
  }
  if (limits.max_operations == 0) {
    return InvalidArgument("max_operations must be at least 1, got 0");
  }
  Lowering lowering(std::move(plan), limits);
  if (limits.max_operations == UINT64_MAX) return lowering;
  const uint64_t needed = lowering.CountOperations();
  if (needed <= limits.max_operations) return lowering;
  return InvalidArgument("lowering exceeds max_operations: " + std::to_string(needed) + " > " +
                         std::to_string(limits.max_operations));
}

uint64_t Lowering::CountOperations() const {
  uint64_t operations = 0;
  for (uint32_t i = 0; i < plan_->size(); ++i) {
    const geometry::RegionSplitter pieces(geometry::Coalesced(plan_->operation(i).region),
                                          limits_.max_batch_bytes);
    if (__builtin_add_overflow(operations, pieces.piece_count(), &operations)) return UINT64_MAX;
  }
  return operations;
}

Lowering::Lowering(BoundPlanPtr plan, const LoweringLimits& limits)
    : plan_(std::move(plan)), limits_(limits) {
  std::vector<std::tuple<uint32_t, uint64_t, uint32_t>> keys;  // (object, source offset, operation)
  keys.reserve(plan_->size());
  for (uint32_t i = 0; i < plan_->size(); ++i) {
    keys.emplace_back(plan_->object_of(i), plan_->object_begin(i), i);
  }
  std::sort(keys.begin(), keys.end());
  order_.reserve(keys.size());
  for (const auto& key : keys) order_.push_back(std::get<2>(key));
}

bool Lowering::Next(CopyBatch* batch) {
  batch->copies.clear();
  batch->nbytes = 0;
  while (next_ < order_.size()) {
    const uint32_t operation = order_[next_];
    if (!batch->copies.empty() && plan_->object_of(operation) != batch->object) break;
    const uint64_t room = limits_.max_batch_bytes - batch->nbytes;
    if (room == 0 || batch->copies.size() == limits_.max_batch_operations) break;
    if (!cutting_) {
      const BoundOperation bound = plan_->operation(operation);
      geometry::StridedRegion region = geometry::Coalesced(bound.region);
      region.source_base_offset += bound.object_offset;
      region.target_base_offset += bound.target_address;
      // What does not fit here begins a batch of its own, rather than being cut to fill this one.
      if (region.total_bytes() > room && !batch->copies.empty()) break;
      cutting_.emplace(region, limits_.max_batch_bytes);
    } else if (!batch->copies.empty()) {
      break;  // the next piece of a cut region begins a batch
    }
    batch->object = plan_->object_of(operation);
    batch->copies.push_back({operation, cutting_->Next()});
    batch->nbytes += batch->copies.back().region.total_bytes();
    if (cutting_->done()) {
      cutting_.reset();
      ++next_;
    }
  }
  return !batch->copies.empty();
}

}  // namespace mooncake::reshard
