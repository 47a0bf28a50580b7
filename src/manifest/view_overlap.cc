#include "manifest/view_overlap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "geometry/box.h"
#include "geometry/box_index.h"
#include "geometry/cover.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

constexpr size_t kOriginsMax = 8;  // views whose address is tried as where rows begin

// An address, written as digits: how many of the largest pitch, how many of the next one in what is
// left, ..., and bytes. Each pitch divides the one above it, so an address has one such form, and
// views whose boxes of digits are disjoint share no byte.
class Digits {
 public:
  // The pitches are the strides of `widest`, largest first, as far as they divide one another.
  explicit Digits(const RuntimeBindingFragment& widest) {
    for (const auto& [stride, extent] : LoopsOf(widest)) {
      const bool fits =
          pitches_.empty() || (stride < pitches_.back() && pitches_.back() % stride == 0);
      if (fits && stride > 1 && pitches_.size() + 1 < geometry::kMaxRank)
        pitches_.push_back(stride);
    }
    pitches_.push_back(1);
  }

  uint64_t top() const { return pitches_[0]; }

  // A box that holds every byte of the view; addresses count from `origin`.
  geometry::Box BoxOf(const RuntimeBindingFragment& view, uint64_t origin) const {
    const size_t count = pitches_.size();
    Extents low(count);
    Extents high(count);
    uint64_t rest = view.address - origin;
    for (size_t k = 0; k < count; ++k) {
      low[k] = high[k] = static_cast<int64_t>(rest / pitches_[k]);
      rest %= pitches_[k];
    }
    Add(low, high, count - 1, static_cast<uint64_t>(view.itemsize) - 1);
    // Innermost first, so that a carry out of one digit meets the next as it is.
    auto loops = LoopsOf(view);
    std::reverse(loops.begin(), loops.end());
    for (const auto& [stride, extent] : loops) {
      size_t k = 0;
      while (pitches_[k] > stride) ++k;  // the last pitch is 1
      if (stride % pitches_[k] == 0) {
        Add(low, high, k, (extent - 1) * (stride / pitches_[k]));
      } else {
        Add(low, high, count - 1, (extent - 1) * stride);
      }
    }
    for (size_t k = 0; k < count; ++k) high[k] += 1 - low[k];
    return geometry::UncheckedBox(low, high);
  }

 private:
  using Loop = std::pair<uint64_t, uint64_t>;  // stride, extent

  // The dimensions of more than one element, largest stride first.
  static std::vector<Loop> LoopsOf(const RuntimeBindingFragment& view) {
    std::vector<Loop> loops;
    for (size_t i = 0; i < view.local_shape.size(); ++i) {
      if (view.local_shape[i] == 1) continue;
      loops.emplace_back(static_cast<uint64_t>(view.strides_bytes[i]),
                         static_cast<uint64_t>(view.local_shape[i]));
    }
    std::sort(loops.rbegin(), loops.rend());
    return loops;
  }

  // Digit k takes up to `amount` more. One that overflows may have any value, and carries.
  void Add(Extents& low, Extents& high, size_t k, uint64_t amount) const {
    high[k] += static_cast<int64_t>(amount);
    for (; k > 0; --k) {
      const auto radix = static_cast<int64_t>(pitches_[k - 1] / pitches_[k]);
      if (high[k] < radix) return;
      high[k - 1] += high[k] / radix;
      low[k] = 0;
      high[k] = radix - 1;
    }
  }

  std::vector<uint64_t> pitches_;
};

}  // namespace

std::optional<ViewPair> FindOverlappingViews(std::span<const RuntimeBindingFragment* const> views) {
  if (views.size() < 2) return std::nullopt;
  const RuntimeBindingFragment* widest = views[0];
  uint64_t low = UINT64_MAX;
  uint64_t high = 0;
  for (const RuntimeBindingFragment* view : views) {
    if (SpanBytes(*view) > SpanBytes(*widest)) widest = view;
    low = std::min(low, view->address);
    high = std::max(high, view->address + SpanBytes(*view));
  }
  const Digits digits(*widest);
  // Digits are signed; no real buffer is that far from the others.
  if (high - low > INT64_MAX - digits.top()) return ViewPair{views[0], views[1]};
  // Where rows begin is not known: often with the allocation, or with one of the views. Any origin
  // that proves the views apart will do.
  std::vector<geometry::Box> boxes;
  for (size_t i = 0; i <= std::min(views.size(), kOriginsMax); ++i) {
    const uint64_t row = i == 0 ? views[0]->storage_address : views[i - 1]->address;
    const uint64_t origin =
        low - (low >= row ? (low - row) % digits.top()
                          : (digits.top() - (row - low) % digits.top()) % digits.top());
    boxes.clear();
    for (const RuntimeBindingFragment* view : views) boxes.push_back(digits.BoxOf(*view, origin));
    if (!geometry::BoxesOverlap(boxes)) return std::nullopt;
  }
  const geometry::BoxIndex index(boxes);
  std::vector<uint32_t> found;
  for (uint32_t i = 0; i < boxes.size(); ++i) {
    found.clear();
    index.FindOverlaps(boxes[i], &found);
    for (const uint32_t other : found) {
      if (other != i) return ViewPair{views[std::min(i, other)], views[std::max(i, other)]};
    }
  }
  return std::nullopt;
}

}  // namespace mooncake::manifest
