#include "geometry/strided_region.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace mooncake::geometry {
namespace {

uint64_t SaturatingMultiply(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

// One past the last byte of one side; UINT64_MAX when it leaves 64 bits.
uint64_t EndOf(const StridedRegion& region, uint64_t base,
               const std::array<uint64_t, kMaxRank>& strides) {
  Volume end = base;
  end += region.inner_bytes;
  for (int l = 0; l < region.loops; ++l) {
    if (region.counts[l] == 0) continue;
    end = SaturatingAdd(end, static_cast<Volume>(region.counts[l] - 1) * strides[l]);
  }
  return end > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(end);
}

}  // namespace

uint64_t StridedRegion::segment_count() const {
  uint64_t count = 1;
  for (int l = 0; l < loops; ++l) count = SaturatingMultiply(count, counts[l]);
  return count;
}

uint64_t StridedRegion::source_end() const {
  return EndOf(*this, source_base_offset, source_strides);
}

uint64_t StridedRegion::target_end() const {
  return EndOf(*this, target_base_offset, target_strides);
}

bool operator==(const StridedRegion& a, const StridedRegion& b) {
  const auto same = [n = a.loops](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.begin() + n, y.begin());
  };
  return a.source_base_offset == b.source_base_offset &&
         a.target_base_offset == b.target_base_offset && a.inner_bytes == b.inner_bytes &&
         a.loops == b.loops && same(a.counts, b.counts) &&
         same(a.source_strides, b.source_strides) && same(a.target_strides, b.target_strides);
}

StridedRegion CanonicalRegion(const Box& source, const Box& target, const Box& overlap,
                              uint64_t itemsize) {
  StridedRegion region;
  const int rank = overlap.rank();
  uint64_t source_stride = itemsize;
  uint64_t target_stride = itemsize;
  region.inner_bytes =
      rank == 0 ? itemsize : static_cast<uint64_t>(overlap.extent(rank - 1)) * itemsize;
  bool folding = true;
  for (int d = rank - 1; d >= 0; --d) {
    region.source_base_offset +=
        static_cast<uint64_t>(overlap.begin(d) - source.begin(d)) * source_stride;
    region.target_base_offset +=
        static_cast<uint64_t>(overlap.begin(d) - target.begin(d)) * target_stride;
    if (d < rank - 1) {
      folding =
          folding && source_stride == region.inner_bytes && target_stride == region.inner_bytes;
      if (folding) {
        region.inner_bytes *= static_cast<uint64_t>(overlap.extent(d));
      } else {
        region.loops = std::max(region.loops, d + 1);
        region.counts[d] = static_cast<uint64_t>(overlap.extent(d));
        region.source_strides[d] = source_stride;
        region.target_strides[d] = target_stride;
      }
    }
    source_stride *= static_cast<uint64_t>(source.extent(d));
    target_stride *= static_cast<uint64_t>(target.extent(d));
  }
  return region;
}

StridedRegion RegionToView(const Box& source, const Box& target, const Box& overlap,
                           uint64_t itemsize, std::span<const int64_t> target_strides) {
  StridedRegion region;
  const int rank = overlap.rank();
  uint64_t source_stride = itemsize;
  region.inner_bytes = itemsize;
  bool folding = true;
  for (int d = rank - 1; d >= 0; --d) {
    const auto target_stride = static_cast<uint64_t>(target_strides[d]);
    const auto extent = static_cast<uint64_t>(overlap.extent(d));
    region.source_base_offset +=
        static_cast<uint64_t>(overlap.begin(d) - source.begin(d)) * source_stride;
    region.target_base_offset +=
        static_cast<uint64_t>(overlap.begin(d) - target.begin(d)) * target_stride;
    // The last dimension always folds where the view is dense in it, whatever its extent.
    folding = folding && ((extent == 1 && d == rank - 1) || (source_stride == region.inner_bytes &&
                                                             target_stride == region.inner_bytes));
    if (folding) {
      region.inner_bytes *= extent;
    } else {
      region.loops = std::max(region.loops, d + 1);
      region.counts[d] = extent;
      region.source_strides[d] = source_stride;
      region.target_strides[d] = target_stride;
    }
    source_stride *= static_cast<uint64_t>(source.extent(d));
  }
  return region;
}

RegionSummary SummarizeRegion(const Box& source, const Box& target, const Box& overlap,
                              uint64_t itemsize) {
  RegionSummary summary;
  const int rank = overlap.rank();
  uint64_t source_stride = itemsize;
  uint64_t target_stride = itemsize;
  uint64_t inner_bytes =
      rank == 0 ? itemsize : static_cast<uint64_t>(overlap.extent(rank - 1)) * itemsize;
  bool folding = true;
  for (int d = rank - 1; d >= 0; --d) {
    summary.target_base_offset +=
        static_cast<uint64_t>(overlap.begin(d) - target.begin(d)) * target_stride;
    if (d < rank - 1) {
      const auto extent = static_cast<uint64_t>(overlap.extent(d));
      folding = folding && source_stride == inner_bytes && target_stride == inner_bytes;
      if (folding) {
        inner_bytes *= extent;
      } else {
        summary.segment_count = SaturatingMultiply(summary.segment_count, extent);
      }
    }
    source_stride *= static_cast<uint64_t>(source.extent(d));
    target_stride *= static_cast<uint64_t>(target.extent(d));
  }
  return summary;
}

StridedRegion Coalesced(const StridedRegion& region) {
  StridedRegion result;
  result.source_base_offset = region.source_base_offset;
  result.target_base_offset = region.target_base_offset;
  result.inner_bytes = region.inner_bytes;
  // Innermost first: each loop joins the one inside it when both sides run on without a gap.
  std::array<uint64_t, kMaxRank> counts{};
  std::array<uint64_t, kMaxRank> source_strides{};
  std::array<uint64_t, kMaxRank> target_strides{};
  int loops = 0;
  for (int l = region.loops - 1; l >= 0; --l) {
    const uint64_t count = region.counts[l];
    if (count == 1) continue;
    const uint64_t source_stride = region.source_strides[l];
    const uint64_t target_stride = region.target_strides[l];
    if (loops == 0 && source_stride == result.inner_bytes && target_stride == result.inner_bytes) {
      result.inner_bytes *= count;
    } else if (loops > 0 && source_stride == source_strides[loops - 1] * counts[loops - 1] &&
               target_stride == target_strides[loops - 1] * counts[loops - 1]) {
      counts[loops - 1] *= count;
    } else {
      counts[loops] = count;
      source_strides[loops] = source_stride;
      target_strides[loops] = target_stride;
      ++loops;
    }
  }
  result.loops = loops;
  for (int l = 0; l < loops; ++l) {
    result.counts[l] = counts[loops - 1 - l];
    result.source_strides[l] = source_strides[loops - 1 - l];
    result.target_strides[l] = target_strides[loops - 1 - l];
  }
  return result;
}

namespace {

// Loops from `first` on are the same.
bool SameLoops(const StridedRegion& a, const StridedRegion& b, int first) {
  for (int l = first; l < a.loops; ++l) {
    if (a.counts[l] != b.counts[l] || a.source_strides[l] != b.source_strides[l] ||
        a.target_strides[l] != b.target_strides[l]) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool Fuse(StridedRegion* region, const StridedRegion& next) {
  StridedRegion& a = *region;
  if (next.source_base_offset <= a.source_base_offset ||
      next.target_base_offset <= a.target_base_offset) {
    return false;
  }
  const uint64_t source_step = next.source_base_offset - a.source_base_offset;
  const uint64_t target_step = next.target_base_offset - a.target_base_offset;
  if (a.loops == next.loops && SameLoops(a, next, 0) && source_step == a.inner_bytes &&
      target_step == a.inner_bytes) {
    // The runs become longer; between loops they must not reach the next round.
    const uint64_t wider = a.inner_bytes + next.inner_bytes;
    if (a.loops == 0 ||
        (wider <= a.source_strides[a.loops - 1] && wider <= a.target_strides[a.loops - 1])) {
      a.inner_bytes = wider;
      a = Coalesced(a);
      return true;
    }
  }
  if (a.inner_bytes != next.inner_bytes) return false;
  // More rounds of the outermost loop, where `next` is one round or several.
  if (a.loops > 0 && source_step == a.counts[0] * a.source_strides[0] &&
      target_step == a.counts[0] * a.target_strides[0]) {
    const bool several = next.loops == a.loops && SameLoops(a, next, 1) &&
                         a.source_strides[0] == next.source_strides[0] &&
                         a.target_strides[0] == next.target_strides[0];
    StridedRegion round = a;  // one round of `a`
    round.loops = a.loops - 1;
    for (int l = 0; l < round.loops; ++l) {
      round.counts[l] = a.counts[l + 1];
      round.source_strides[l] = a.source_strides[l + 1];
      round.target_strides[l] = a.target_strides[l + 1];
    }
    const bool one = next.loops == round.loops && SameLoops(round, next, 0);
    if (several || one) {
      a.counts[0] += several ? next.counts[0] : 1;
      a = Coalesced(a);
      return true;
    }
  }
  // The same again: one more loop around.
  if (a.loops != next.loops || a.loops == kMaxRank || !SameLoops(a, next, 0) ||
      source_step < a.source_end() - a.source_base_offset ||
      target_step < a.target_end() - a.target_base_offset) {
    return false;
  }
  for (int l = a.loops; l > 0; --l) {
    a.counts[l] = a.counts[l - 1];
    a.source_strides[l] = a.source_strides[l - 1];
    a.target_strides[l] = a.target_strides[l - 1];
  }
  a.counts[0] = 2;
  a.source_strides[0] = source_step;
  a.target_strides[0] = target_step;
  ++a.loops;
  a = Coalesced(a);
  return true;
}

Status ValidateBounds(const StridedRegion& region, uint64_t source_bytes, uint64_t target_bytes) {
  if (region.source_end() > source_bytes) {
    return InvalidArgument("transfer region exceeds source fragment: ends at byte " +
                           std::to_string(region.source_end()) + " of " +
                           std::to_string(source_bytes));
  }
  if (region.target_end() > target_bytes) {
    return InvalidArgument("transfer region exceeds target fragment: ends at byte " +
                           std::to_string(region.target_end()) + " of " +
                           std::to_string(target_bytes));
  }
  return OkStatus();
}

RegionSplitter::RegionSplitter(const StridedRegion& region, uint64_t max_bytes) : region_(region) {
  MC_CHECK(max_bytes >= 1);
  // Bytes of one round of `level_`.
  uint64_t round_bytes = region.inner_bytes;
  level_ = region.loops;
  if (region.loops == 0 || round_bytes > max_bytes) {
    rounds_max_ = max_bytes;  // parts of the inner run, a byte each
    return;
  }
  while (level_ > 0) {
    const uint64_t whole_loop = SaturatingMultiply(round_bytes, region.counts[level_ - 1]);
    --level_;
    if (whole_loop > max_bytes || level_ == 0) break;
    round_bytes = whole_loop;
  }
  rounds_max_ = max_bytes / round_bytes;
}

uint64_t RegionSplitter::piece_count() const {
  const bool cuts_run = level_ == region_.loops;
  const uint64_t all_rounds = cuts_run ? region_.inner_bytes : region_.counts[level_];
  uint64_t pieces = all_rounds / rounds_max_ + (all_rounds % rounds_max_ == 0 ? 0 : 1);
  for (int l = 0; l < level_; ++l) pieces = SaturatingMultiply(pieces, region_.counts[l]);
  return pieces;
}

StridedRegion RegionSplitter::Next() {
  MC_CHECK(!done_);
  StridedRegion piece = region_;
  // Loops outside the cut one stand still; the cut one runs some rounds; the rest run whole.
  for (int l = 0; l < level_; ++l) {
    piece.source_base_offset += index_[l] * region_.source_strides[l];
    piece.target_base_offset += index_[l] * region_.target_strides[l];
  }
  const bool cuts_run = level_ == region_.loops;
  const uint64_t all_rounds = cuts_run ? region_.inner_bytes : region_.counts[level_];
  const uint64_t rounds = std::min(rounds_max_, all_rounds - index_[level_]);
  piece.source_base_offset +=
      index_[level_] * (cuts_run ? uint64_t{1} : region_.source_strides[level_]);
  piece.target_base_offset +=
      index_[level_] * (cuts_run ? uint64_t{1} : region_.target_strides[level_]);
  piece.loops = region_.loops - level_;
  for (int l = 0; l < piece.loops; ++l) {
    piece.counts[l] = region_.counts[level_ + l];
    piece.source_strides[l] = region_.source_strides[level_ + l];
    piece.target_strides[l] = region_.target_strides[level_ + l];
  }
  if (cuts_run) {
    piece.inner_bytes = rounds;
  } else {
    piece.counts[0] = rounds;
  }
  index_[level_] += rounds;
  if (index_[level_] == all_rounds) {
    index_[level_] = 0;
    int l = level_ - 1;
    for (; l >= 0; --l) {
      if (++index_[l] < region_.counts[l]) break;
      index_[l] = 0;
    }
    done_ = l < 0;
  }
  return piece;
}

}  // namespace mooncake::geometry
