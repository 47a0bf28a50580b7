// All layouts of a small shape, of two stated families, without repetition.
//
// Tests only.
//
// Owned layouts: every tiling of the shape by boxes, and for each box every non-empty set of ranks
// that hold it (the extended form's ownership, one tiling).
//
// Axis layouts: two ranks along each of dp, pp, ep and tp; each axis replicates, is owned by any
// non-empty set of its coordinates, or splits a dimension at any place: tp any, ep the first, not
// both the same (the base form). What dp owns has one owner along every axis: more are refused.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "geometry/box.h"
#include "manifest/contract_samples.h"
#include "manifest/validate.h"

namespace mooncake::reshard {

// All ways to tile a shape with boxes: the first free cell is the corner of some box that fits.
class AllTilings {
 public:
  explicit AllTilings(manifest::Extents shape) : shape_(std::move(shape)) {
    used_.assign(static_cast<size_t>(geometry::VolumeOf(shape_)), false);
    Extend();
  }
  const std::vector<std::vector<geometry::Box>>& tilings() const { return tilings_; }

 private:
  manifest::Extents At(size_t cell) const {
    manifest::Extents at(shape_.size());
    for (size_t d = shape_.size(); d-- > 0;) {
      at[d] = static_cast<int64_t>(cell) % shape_[d];
      cell /= static_cast<size_t>(shape_[d]);
    }
    return at;
  }
  // Marks the box's cells, unless one of them is taken.
  bool Mark(const geometry::Box& box, bool value) {
    std::vector<size_t> cells;
    for (size_t cell = 0; cell < used_.size(); ++cell) {
      if (!box.Contains(*geometry::MakeBox(At(cell), manifest::Extents(shape_.size(), 1))))
        continue;
      if (used_[cell] == value) return false;
      cells.push_back(cell);
    }
    for (size_t cell : cells) used_[cell] = value;
    return true;
  }
  void Extend() {
    const auto free = std::find(used_.begin(), used_.end(), false);
    if (free == used_.end()) {
      tilings_.push_back(boxes_);
      return;
    }
    const manifest::Extents corner = At(static_cast<size_t>(free - used_.begin()));
    manifest::Extents extents(shape_.size(), 1);
    while (true) {
      const geometry::Box box = *geometry::MakeBox(corner, extents);
      if (Mark(box, true)) {
        boxes_.push_back(box);
        Extend();
        boxes_.pop_back();
        Mark(box, false);
      }
      size_t d = 0;
      while (d < extents.size() && ++extents[d] > shape_[d] - corner[d]) extents[d++] = 1;
      if (d == extents.size()) return;
    }
  }

  manifest::Extents shape_;
  std::vector<bool> used_;
  std::vector<geometry::Box> boxes_;
  std::vector<std::vector<geometry::Box>> tilings_;
};

// All ways to write `extent` as a sum of `parts` positive numbers.
inline std::vector<manifest::Extents> Compositions(int64_t extent, int64_t parts) {
  if (parts == 1) return {{extent}};
  std::vector<manifest::Extents> all;
  for (int64_t first = 1; first <= extent - parts + 1; ++first) {
    for (manifest::Extents rest : Compositions(extent - first, parts - 1)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  }
  return all;
}

// A placement of one tensor "w"; int16 elements.
inline manifest::PlacementPtr OneTensor(const std::vector<manifest::ParallelRank>& ranks,
                                        manifest::TensorDescriptor tensor,
                                        std::vector<manifest::PlacementFragment> fragments) {
  return manifest::PlacementFromFragments(manifest::Inventory(manifest::Topology(ranks),
                                                              {std::move(tensor)},
                                                              std::move(fragments)))
      .value();
}

inline std::pair<manifest::Extents, manifest::Extents> OffsetAndShape(const geometry::Box& box) {
  std::pair<manifest::Extents, manifest::Extents> made;
  for (int d = 0; d < box.rank(); ++d) {
    made.first.push_back(box.begin(d));
    made.second.push_back(box.extent(d));
  }
  return made;
}

// Owners as bits of rank numbers, one number a box.
inline manifest::PlacementPtr OwnedLayout(const manifest::Extents& shape,
                                          const std::vector<geometry::Box>& boxes,
                                          const std::vector<int>& owners, int ranks) {
  manifest::OwnedTiling tiling;
  std::vector<manifest::PlacementFragment> fragments;
  for (size_t b = 0; b < boxes.size(); ++b) {
    const auto [offset, extents] = OffsetAndShape(boxes[b]);
    manifest::OwnedBox owned{offset, extents, {}};
    for (int r = 0; r < ranks; ++r) {
      if ((owners[b] >> r & 1) == 0) continue;
      owned.owners.push_back("p" + std::to_string(r));
      fragments.push_back(manifest::Fragment("w", offset, extents, {.tp = r}));
    }
    tiling.push_back(std::move(owned));
  }
  manifest::TensorDescriptor tensor = manifest::Tensor("w", shape);
  tensor.extension = std::make_shared<const manifest::TensorExtension>(
      manifest::TensorExtension{.ownership = {std::move(tiling)}});
  std::vector<manifest::ParallelRank> all;
  all.reserve(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) all.push_back({.tp = r});
  return OneTensor(all, std::move(tensor), std::move(fragments));
}

inline std::vector<manifest::PlacementPtr> AllOwnedLayouts(const manifest::Extents& shape,
                                                           int ranks) {
  std::vector<manifest::PlacementPtr> layouts;
  const AllTilings tilings(shape);
  for (const std::vector<geometry::Box>& boxes : tilings.tilings()) {
    std::vector<int> owners(boxes.size(), 1);
    while (true) {
      layouts.push_back(OwnedLayout(shape, boxes, owners, ranks));
      size_t digit = 0;
      while (digit < owners.size() && ++owners[digit] == 1 << ranks) owners[digit++] = 1;
      if (digit == owners.size()) break;
    }
  }
  return layouts;
}

// What one axis of two ranks does: split `dim` at `cut`, or hold all on the ranks of `holders`.
struct AxisChoice {
  manifest::AxisSemantics semantics = manifest::AxisSemantics::kReplicated;
  int64_t dim = 0;
  int64_t cut = 0;
  int holders = 3;  // bits of coordinates
};

// Splits of the first `split_dims` dimensions, at every place.
inline std::vector<AxisChoice> AxisChoices(const manifest::Extents& shape, size_t split_dims,
                                           const std::vector<int>& owners) {
  std::vector<AxisChoice> choices{{}};
  for (const int holders : owners) {
    choices.push_back({.semantics = manifest::AxisSemantics::kOwnership, .holders = holders});
  }
  for (size_t d = 0; d < split_dims; ++d) {
    for (int64_t cut = 1; cut < shape[d]; ++cut) {
      choices.push_back({.semantics = manifest::AxisSemantics::kSplit,
                         .dim = static_cast<int64_t>(d),
                         .cut = cut});
    }
  }
  return choices;
}

// `choices` by AxisKind: dp, pp, ep, tp.
inline manifest::PlacementPtr AxisLayout(const manifest::Extents& shape,
                                         const std::array<AxisChoice, 4>& choices) {
  using manifest::AxisKind;
  constexpr std::array kKinds{AxisKind::kDp, AxisKind::kPp, AxisKind::kEp, AxisKind::kTp};
  std::vector<manifest::ParallelAxis> axes;
  for (size_t k = 0; k < 4; ++k) {
    axes.push_back({kKinds[k], choices[k].semantics, choices[k].dim});
  }
  std::vector<manifest::ParallelRank> ranks;
  std::vector<manifest::PlacementFragment> fragments;
  for (int64_t i = 0; i < 16; ++i) {
    const manifest::ParallelRank rank{
        .dp = i >> 3 & 1, .tp = i & 1, .pp = i >> 2 & 1, .ep = i >> 1 & 1};
    ranks.push_back(rank);
    manifest::Extents offset(shape.size(), 0);
    manifest::Extents extents = shape;
    bool holds = true;
    for (size_t k = 0; k < 4; ++k) {
      const AxisChoice& choice = choices[k];
      const int64_t at = rank.Coordinate(kKinds[k]);
      if (choice.semantics == manifest::AxisSemantics::kSplit) {
        const auto dim = static_cast<size_t>(choice.dim);
        offset[dim] = at == 0 ? 0 : choice.cut;
        extents[dim] = at == 0 ? choice.cut : shape[dim] - choice.cut;
      } else {
        holds = holds && (choice.holders >> at & 1) != 0;
      }
    }
    if (holds) fragments.push_back(manifest::Fragment("w", offset, extents, rank));
  }
  return OneTensor(ranks, manifest::Tensor("w", shape, axes), std::move(fragments));
}

// `owners`: the sets of coordinates (bits) that may own along ep and tp, `outer_owners` along dp
// and pp; {1, 2, 3} are all.
inline std::vector<manifest::PlacementPtr> AllAxisLayouts(const manifest::Extents& shape,
                                                          const std::vector<int>& owners,
                                                          const std::vector<int>& outer_owners) {
  using manifest::AxisSemantics;
  std::vector<manifest::PlacementPtr> layouts;
  const std::vector<AxisChoice> outer = AxisChoices(shape, 0, outer_owners);
  const std::vector<AxisChoice> eps = AxisChoices(shape, 1, owners);
  const std::vector<AxisChoice> tps = AxisChoices(shape, shape.size(), owners);
  for (const AxisChoice& dp : outer) {
    for (const AxisChoice& pp : outer) {
      for (const AxisChoice& ep : eps) {
        for (const AxisChoice& tp : tps) {
          const bool same_dim = ep.semantics == AxisSemantics::kSplit &&
                                tp.semantics == AxisSemantics::kSplit && ep.dim == tp.dim;
          // The contract wants one owner of what dp owns.
          const auto two_owners = [](const AxisChoice& choice) {
            return choice.semantics == AxisSemantics::kOwnership && choice.holders == 3;
          };
          const bool ambiguous =
              dp.semantics == AxisSemantics::kOwnership &&
              (two_owners(dp) || two_owners(pp) || two_owners(ep) || two_owners(tp));
          if (!same_dim && !ambiguous) layouts.push_back(AxisLayout(shape, {dp, pp, ep, tp}));
        }
      }
    }
  }
  return layouts;
}

}  // namespace mooncake::reshard
