// StridedRegion: one N-D copy between two dense row-major buffers, however many runs it has.
//
// All numbers are bytes relative to the start of each buffer, except the loop counts. A region is
// `inner_bytes` contiguous bytes, repeated by `loops` nested loops, outermost first:
//
//   for i0 < counts[0], i1 < counts[1], ...:
//     copy inner_bytes from source_base_offset + sum(i * source_strides)
//                        to target_base_offset + sum(i * target_strides)
//
// The canonical form (CanonicalRegion) is the contract's: trailing dimensions are folded into the
// inner run while both sides are dense, loops of one round are kept, outer loops are never joined.
// Execution uses Coalesced(region), which copies the same bytes with the fewest loops. Nothing here
// ever expands a region to its runs, except ForEachSegment at the caller's wish.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "geometry/box.h"

namespace mooncake::geometry {

struct StridedRegion {
  uint64_t source_base_offset = 0;
  uint64_t target_base_offset = 0;
  uint64_t inner_bytes = 0;
  int loops = 0;
  std::array<uint64_t, kMaxRank> counts{};
  std::array<uint64_t, kMaxRank> source_strides{};
  std::array<uint64_t, kMaxRank> target_strides{};

  // Number of contiguous runs; 1 without loops. Saturates at 2^64 - 1.
  uint64_t segment_count() const;
  uint64_t total_bytes() const { return inner_bytes * segment_count(); }
  // One past the last byte touched on each side.
  uint64_t source_end() const;
  uint64_t target_end() const;

  friend bool operator==(const StridedRegion& a, const StridedRegion& b);
};

// The region that copies `overlap` from the dense row-major buffer of `source` to that of `target`.
// `overlap` lies in both boxes, all have the same rank (0 too: one element), and the byte sizes of
// both boxes fit in 64 bits (a fragment's nbytes proves it).
StridedRegion CanonicalRegion(const Box& source, const Box& target, const Box& overlap,
                              uint64_t itemsize);

// The region that copies `overlap` from the dense row-major buffer of `source` to a view of
// `target` whose elements lie `target_strides` bytes apart, one a dimension. Canonical where the
// view is dense.
StridedRegion RegionToView(const Box& source, const Box& target, const Box& overlap,
                           uint64_t itemsize, std::span<const int64_t> target_strides);

// The number of runs of CanonicalRegion(source, target, overlap, ...), and where it begins in the
// target: what planning needs of each region.
struct RegionSummary {
  uint64_t segment_count = 1;
  uint64_t target_base_offset = 0;
};
RegionSummary SummarizeRegion(const Box& source, const Box& target, const Box& overlap,
                              uint64_t itemsize);

// The same bytes in the same order with the fewest loops.
StridedRegion Coalesced(const StridedRegion& region);

// Makes `region` copy what `next` copies too, where one region can: runs that follow each other,
// more rounds of the same loop, wider runs of the same loops, or the same region again further on.
// False, and nothing changed, where none can. Both are coalesced, copy between the same two buffers
// and share no target byte; `next` begins behind `region` on the source side. Rounds of an outer
// loop never reach into each other, as in a cut of a dense box.
bool Fuse(StridedRegion* region, const StridedRegion& next);

// INVALID_ARGUMENT "transfer region exceeds source fragment: ..." / "... target fragment: ...".
Status ValidateBounds(const StridedRegion& region, uint64_t source_bytes, uint64_t target_bytes);

// Calls visit(source_offset, target_offset, bytes) for every run, last loop fastest.
template <class Visitor>
void ForEachSegment(const StridedRegion& region, Visitor&& visit) {
  std::array<uint64_t, kMaxRank> index{};
  uint64_t source = region.source_base_offset;
  uint64_t target = region.target_base_offset;
  while (true) {
    visit(source, target, region.inner_bytes);
    int loop = region.loops - 1;
    for (; loop >= 0; --loop) {
      source += region.source_strides[loop];
      target += region.target_strides[loop];
      if (++index[loop] < region.counts[loop]) break;
      source -= region.source_strides[loop] * region.counts[loop];
      target -= region.target_strides[loop] * region.counts[loop];
      index[loop] = 0;
    }
    if (loop < 0) return;
  }
}

// Cuts a region into pieces of at most `max_bytes` bytes, lazily and in order: whole rounds of the
// outermost loop that fits, or parts of the inner run where even one run is too long. The pieces
// together copy exactly the region's bytes. max_bytes >= 1.
class RegionSplitter {
 public:
  RegionSplitter(const StridedRegion& region, uint64_t max_bytes);

  bool done() const { return done_; }
  // Of all pieces, from the first; saturates.
  uint64_t piece_count() const;
  // The next piece; call only while !done().
  StridedRegion Next();

 private:
  StridedRegion region_;
  int level_ = 0;            // the loop that is cut; == loops: the inner run
  uint64_t rounds_max_ = 0;  // rounds of `level_` (or bytes of the inner run) a piece
  bool done_ = false;
  std::array<uint64_t, kMaxRank + 1> index_{};
};

}  // namespace mooncake::geometry
