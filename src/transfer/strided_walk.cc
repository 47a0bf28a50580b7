#include "transfer/strided_walk.h"

#include <algorithm>
#include <numeric>

namespace mooncake::transfer {
namespace {

uint64_t Magnitude(int64_t value) {
  return value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
}

constexpr uint64_t kBytesMax = (uint64_t{1} << 63) - 1;

// Whether inner_bytes + sum(count - 1) * |stride| stays below 2^63.
bool ExtentFits(const StridedCopy& copy, const std::array<int64_t, kLoopsMax>& strides) {
  uint64_t extent = copy.inner_bytes;
  for (int loop = 0; loop < copy.loops; ++loop) {
    uint64_t reach = 0;
    if (__builtin_mul_overflow(copy.counts[loop] - 1, Magnitude(strides[loop]), &reach) ||
        __builtin_add_overflow(extent, reach, &extent) || extent > kBytesMax) {
      return false;
    }
  }
  return true;
}

bool TotalFits(const StridedCopy& copy) {
  uint64_t total = copy.inner_bytes;
  if (total > kBytesMax) return false;
  for (int loop = 0; loop < copy.loops; ++loop) {
    if (__builtin_mul_overflow(total, copy.counts[loop], &total) || total > kBytesMax) return false;
  }
  return true;
}

bool IsEmpty(const StridedCopy& copy) {
  const auto counts_end = copy.counts.begin() + copy.loops;
  return copy.inner_bytes == 0 || std::find(copy.counts.begin(), counts_end, 0) != counts_end;
}

// Drops the loop; the ones inside move out.
void EraseLoop(StridedWalk* walk, int loop) {
  for (int l = loop; l + 1 < walk->loops; ++l) {
    walk->counts[l] = walk->counts[l + 1];
    walk->source_strides[l] = walk->source_strides[l + 1];
    walk->target_strides[l] = walk->target_strides[l + 1];
  }
  --walk->loops;
}

// Joins each loop with the one inside it, and the last one with the run, where both sides go on
// evenly. Loops of one round go.
void Coalesce(StridedWalk* walk) {
  for (int loop = walk->loops - 1; loop >= 0; --loop) {
    if (walk->counts[loop] == 1) EraseLoop(walk, loop);
  }
  while (walk->loops > 0) {
    const int last = walk->loops - 1;
    const auto inner = static_cast<int64_t>(walk->inner_bytes);
    if (walk->source_strides[last] != inner || walk->target_strides[last] != inner) break;
    walk->inner_bytes *= walk->counts[last];
    EraseLoop(walk, last);
  }
  for (int loop = walk->loops - 2; loop >= 0; --loop) {
    const auto count = static_cast<int64_t>(walk->counts[loop + 1]);
    if (walk->source_strides[loop] != count * walk->source_strides[loop + 1] ||
        walk->target_strides[loop] != count * walk->target_strides[loop + 1]) {
      continue;
    }
    walk->counts[loop + 1] *= walk->counts[loop];
    EraseLoop(walk, loop);
  }
}

StridedWalk Sorted(const StridedWalk& walk, const std::array<int64_t, kLoopsMax>& strides) {
  std::array<int, kLoopsMax> order{};
  const auto order_end = order.begin() + walk.loops;
  std::iota(order.begin(), order_end, 0);
  std::stable_sort(order.begin(), order_end,
                   [&](int a, int b) { return Magnitude(strides[a]) > Magnitude(strides[b]); });
  StridedWalk sorted = walk;
  for (int loop = 0; loop < walk.loops; ++loop) {
    sorted.counts[loop] = walk.counts[order[loop]];
    sorted.source_strides[loop] = walk.source_strides[order[loop]];
    sorted.target_strides[loop] = walk.target_strides[order[loop]];
  }
  Coalesce(&sorted);
  return sorted;
}

}  // namespace

uint64_t StridedWalk::total_bytes() const {
  uint64_t total = inner_bytes;
  for (int loop = 0; loop < loops; ++loop) total *= counts[loop];
  return total;
}

Result<StridedWalk> MakeWalk(const StridedCopy& copy, const std::function<std::string()>& name) {
  if (copy.loops < 0 || copy.loops > kLoopsMax) {
    return InvalidArgument(name() + ": loops must be 0 to " + std::to_string(kLoopsMax) + ", got " +
                           std::to_string(copy.loops));
  }
  if (IsEmpty(copy)) return StridedWalk{};
  if (!TotalFits(copy) || !ExtentFits(copy, copy.source_strides) ||
      !ExtentFits(copy, copy.target_strides)) {
    return InvalidArgument(name() + ": its bytes or strides reach beyond 2^63 (inner_bytes " +
                           std::to_string(copy.inner_bytes) + ", " + std::to_string(copy.loops) +
                           " loops)");
  }
  if (copy.source == nullptr || copy.target == nullptr) {
    return InvalidArgument(name() + ": " + (copy.source == nullptr ? "source" : "target") +
                           " is null, but there are bytes to copy");
  }
  StridedWalk walk{.source = copy.source,
                   .target = copy.target,
                   .inner_bytes = copy.inner_bytes,
                   .loops = copy.loops,
                   .counts = copy.counts,
                   .source_strides = copy.source_strides,
                   .target_strides = copy.target_strides};
  Coalesce(&walk);
  return walk;
}

StridedWalk BySource(const StridedWalk& walk) { return Sorted(walk, walk.source_strides); }
StridedWalk ByTarget(const StridedWalk& walk) { return Sorted(walk, walk.target_strides); }

void Execute(const StridedWalk& walk, void (*kernel)(const RunGrid&)) {
  if (walk.inner_bytes == 0) return;
  RunGrid grid{.source = walk.source, .target = walk.target, .inner_bytes = walk.inner_bytes};
  int outer = walk.loops;
  if (outer > 0) {
    --outer;
    grid.columns = walk.counts[outer];
    grid.source_column_stride = walk.source_strides[outer];
    grid.target_column_stride = walk.target_strides[outer];
  }
  if (outer > 0) {
    --outer;
    grid.rows = walk.counts[outer];
    grid.source_row_stride = walk.source_strides[outer];
    grid.target_row_stride = walk.target_strides[outer];
  }
  std::array<uint64_t, kLoopsMax> round{};
  while (true) {
    kernel(grid);
    int loop = outer - 1;
    for (; loop >= 0; --loop) {
      grid.source += walk.source_strides[loop];
      grid.target += walk.target_strides[loop];
      if (++round[loop] < walk.counts[loop]) break;
      const auto count = static_cast<int64_t>(walk.counts[loop]);
      grid.source -= count * walk.source_strides[loop];
      grid.target -= count * walk.target_strides[loop];
      round[loop] = 0;
    }
    if (loop < 0) return;
  }
}

WalkAxis WalkAxis::Stream(const StridedWalk& walk) {
  WalkAxis axis;
  uint64_t bytes = walk.inner_bytes;
  for (int loop = walk.loops - 1; loop >= 0; --loop) {
    axis.steps[loop] = bytes;
    axis.spans[loop] = bytes;
    bytes *= walk.counts[loop];
  }
  return axis;
}

bool WalkAxis::Source(const StridedWalk& walk, WalkAxis* axis) {
  uint64_t span = walk.inner_bytes;
  for (int loop = walk.loops - 1; loop >= 0; --loop) {
    const int64_t stride = walk.source_strides[loop];
    if (stride < 0 || static_cast<uint64_t>(stride) < span) return false;
    axis->steps[loop] = static_cast<uint64_t>(stride);
    axis->spans[loop] = span;
    span += (walk.counts[loop] - 1) * static_cast<uint64_t>(stride);
  }
  return true;
}

}  // namespace mooncake::transfer
