#include "reshard/fragment_groups.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "geometry/cover.h"

namespace mooncake::reshard {

using geometry::Box;
using manifest::AxisKind;
using manifest::AxisSemantics;

bool IsDpOwned(const manifest::TensorDescriptor& tensor) {
  return std::any_of(tensor.parallel_axes.begin(), tensor.parallel_axes.end(), [](const auto& a) {
    return a.kind == AxisKind::kDp && a.semantics == AxisSemantics::kOwnership;
  });
}

void FragmentGroups::Load(const manifest::TensorDescriptor& tensor,
                          manifest::FragmentSpan fragments, const FragmentsByTensor& by_tensor,
                          size_t position, bool prove_tiling) {
  // In (dp, pp, ep, tp) order. dp always selects, unless dp owns the tensor: then it selects as an
  // owner and the position of the group among dp ranks means nothing.
  std::array<bool, 4> selects{true, false, false, false};
  for (const manifest::ParallelAxis& axis : tensor.parallel_axes) {
    if (axis.semantics == AxisSemantics::kOwnership) selects[static_cast<size_t>(axis.kind)] = true;
  }
  const std::span<const uint32_t> members = by_tensor.of(position);
  PrefetchFragments(fragments, by_tensor.members, by_tensor.begins[position], members.size());
  entries_.clear();
  member_boxes_.clear();
  for (uint32_t member : members) {
    const manifest::PlacementFragment& fragment = fragments[member];
    if (fragment.is_empty()) continue;
    member_boxes_.push_back(geometry::UncheckedBox(fragment.global_offset, fragment.local_shape));
    Entry& entry = entries_.emplace_back();
    entry.fragment = member;
    entry.rank = {fragment.rank.dp, fragment.rank.pp, fragment.rank.ep, fragment.rank.tp};
    for (size_t k = 0; k < 4; ++k) entry.group[k] = selects[k] ? entry.rank[k] : 0;
  }
  NumberBoxes();
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.group, a.box, a.rank, a.fragment) <
           std::tie(b.group, b.box, b.rank, b.fragment);
  });
  FormGroups(IsDpOwned(tensor));
  if (!prove_tiling) return;
  const std::array<int64_t, geometry::kMaxRank> origin{};
  const Box whole = geometry::UncheckedBox(std::span(origin).first(tensor.global_shape.size()),
                                           tensor.global_shape);
  tested_.clear();
  for (Group& group : groups_) group.tiles = Tiles(whole, of(group));
}

void FragmentGroups::NumberBoxes() {
  order_.resize(entries_.size());
  std::iota(order_.begin(), order_.end(), 0u);
  std::sort(order_.begin(), order_.end(),
            [this](uint32_t a, uint32_t b) { return member_boxes_[a] < member_boxes_[b]; });
  boxes_.clear();
  for (uint32_t entry : order_) {
    if (boxes_.empty() || !(boxes_.back() == member_boxes_[entry])) {
      boxes_.push_back(member_boxes_[entry]);
    }
    entries_[entry].box = static_cast<uint32_t>(boxes_.size() - 1);
  }
}

void FragmentGroups::FormGroups(bool dp_owned) {
  groups_.clear();
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (i == 0 || entries_[i].group != entries_[i - 1].group) {
      groups_.push_back({dp_owned ? 0 : entries_[i].group[0], i, 0, false});
    }
    ++groups_.back().count;
  }
}

bool FragmentGroups::Tiles(const Box& whole, std::span<const Entry> entries) {
  distinct_.clear();
  for (const Entry& entry : entries) {
    if (distinct_.empty() || distinct_.back() != entry.box) distinct_.push_back(entry.box);
  }
  if (distinct_ == tested_) return tested_tiles_;
  chosen_.clear();
  for (uint32_t box : distinct_) chosen_.push_back(boxes_[box]);
  tested_tiles_ = geometry::BoxesExactlyCover(whole, chosen_);
  tested_.swap(distinct_);
  return tested_tiles_;
}

}  // namespace mooncake::reshard
