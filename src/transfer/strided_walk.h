// A strided copy in the form that the engine executes: checked, without empty or single rounds,
// with the fewest loops, and cut at any position without ever listing its runs.
//
// Two orders cut a walk: its *stream* (the runs one after the other, as a payload object packs
// them) and its *source* (offsets from the first source byte, as digest blocks cover them). A cut
// gives a few smaller walks for each loop, however many runs lie between. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "transfer/copy_engine.h"
#include "transfer/copy_kernels.h"

namespace mooncake::transfer {

struct StridedWalk {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t inner_bytes = 0;
  int loops = 0;
  std::array<uint64_t, kLoopsMax> counts{};
  std::array<int64_t, kLoopsMax> source_strides{};
  std::array<int64_t, kLoopsMax> target_strides{};

  // inner_bytes times all counts.
  uint64_t total_bytes() const;
};

// Checks (loops in 0..kLoopsMax, total and each side's extent below 2^63, pointers present unless
// nothing is copied) and normalises. Loop order is kept; nothing to copy gives inner_bytes 0.
// `name()` begins the message.
Result<StridedWalk> MakeWalk(const StridedCopy& copy, const std::function<std::string()>& name);

// Loops by falling source stride, then coalesced. Order of the bytes changes, the set does not.
StridedWalk BySource(const StridedWalk& walk);
// Loops by falling target stride, so that writes go forward.
StridedWalk ByTarget(const StridedWalk& walk);

// Executes all of a walk.
void Execute(const StridedWalk& walk, void (*kernel)(const RunGrid&));

// Position and length of each loop's round along one order: round i of loop l, inside its round of
// the loops outside, covers [i * steps[l], i * steps[l] + spans[l]).
struct WalkAxis {
  std::array<uint64_t, kLoopsMax> steps{};
  std::array<uint64_t, kLoopsMax> spans{};

  static WalkAxis Stream(const StridedWalk& walk);
  // For a walk made by BySource; false if source rounds overlap one another (or run backward).
  static bool Source(const StridedWalk& walk, WalkAxis* axis);
};

namespace detail {

template <class Visit>
void CutLoop(const StridedWalk& walk, const WalkAxis& axis, int loop, const std::byte* source,
             std::byte* target, uint64_t position, uint64_t begin, uint64_t end, Visit& visit) {
  if (loop == walk.loops) {
    const uint64_t from = begin > position ? begin - position : 0;
    const uint64_t to = end - position < walk.inner_bytes ? end - position : walk.inner_bytes;
    if (from < to) {
      visit(
          StridedWalk{.source = source + from, .target = target + from, .inner_bytes = to - from});
    }
    return;
  }
  const uint64_t step = axis.steps[loop];
  const uint64_t span = axis.spans[loop];
  const uint64_t count = walk.counts[loop];
  // Rounds [first, stop) touch [begin, end); of these, [whole, whole_stop) lie inside it.
  const uint64_t first = begin >= position + span ? (begin - position - span) / step + 1 : 0;
  const uint64_t touched = (end - position - 1) / step + 1;
  const uint64_t stop = touched < count ? touched : count;
  if (first >= stop) return;
  const auto go = [&](uint64_t round) {
    const auto i = static_cast<int64_t>(round);
    CutLoop(walk, axis, loop + 1, source + i * walk.source_strides[loop],
            target + i * walk.target_strides[loop], position + round * step, begin, end, visit);
  };
  const bool first_is_cut = position + first * step < begin;
  const uint64_t whole = first_is_cut ? first + 1 : first;
  const bool last_is_cut = position + (stop - 1) * step + span > end;
  const uint64_t whole_stop = last_is_cut ? stop - 1 : stop;
  if (first_is_cut) go(first);
  if (whole < whole_stop) {
    const auto i = static_cast<int64_t>(whole);
    StridedWalk part{.source = source + i * walk.source_strides[loop],
                     .target = target + i * walk.target_strides[loop],
                     .inner_bytes = walk.inner_bytes};
    for (int l = loop; l < walk.loops; ++l) {
      part.counts[part.loops] = l == loop ? whole_stop - whole : walk.counts[l];
      part.source_strides[part.loops] = walk.source_strides[l];
      part.target_strides[part.loops] = walk.target_strides[l];
      ++part.loops;
    }
    visit(part);
  }
  if (last_is_cut && stop - 1 >= whole) go(stop - 1);
}

}  // namespace detail

// Calls visit(const StridedWalk&) for walks that together copy exactly the bytes of `walk` whose
// position along `axis` lies in [begin, end), in increasing position.
template <class Visit>
void ForEachCut(const StridedWalk& walk, const WalkAxis& axis, uint64_t begin, uint64_t end,
                Visit visit) {
  if (begin >= end || walk.inner_bytes == 0) return;
  detail::CutLoop(walk, axis, 0, walk.source, walk.target, 0, begin, end, visit);
}

}  // namespace mooncake::transfer
