#include "reshard/source_index.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "geometry/cover.h"
#include "manifest/lookup.h"

namespace mooncake::reshard {

using geometry::Box;

namespace {

constexpr uint32_t kScanMax = 16;  // boxes of a tiling that are compared one by one

using RankKey = std::array<int64_t, 4>;

RankKey KeyOf(const manifest::ParallelRank& rank) { return {rank.dp, rank.pp, rank.ep, rank.tp}; }

}  // namespace

Status ValidateTensorRanks(std::span<const manifest::TensorDescriptor* const> tensors) {
  for (const manifest::TensorDescriptor* tensor : tensors) {
    if (tensor->global_shape.size() > geometry::kMaxRank) {
      return InvalidArgument(
          "tensor " + tensor->tensor_id + " has " + std::to_string(tensor->global_shape.size()) +
          " dimensions, planning takes at most " + std::to_string(geometry::kMaxRank));
    }
  }
  return OkStatus();
}

std::vector<uint32_t> PartsOfFragments(const manifest::Placement& placement) {
  std::vector<std::pair<RankKey, uint32_t>> parts;
  for (uint32_t p = 0; p < placement.parts.size(); ++p) {
    parts.emplace_back(KeyOf(placement.parts[p].rank), p);
  }
  std::sort(parts.begin(), parts.end());
  std::vector<uint32_t> part_of_fragment;
  part_of_fragment.reserve(placement.fragments.size());
  for (const manifest::PlacementFragment& fragment : placement.fragments) {
    const auto it =
        std::lower_bound(parts.begin(), parts.end(), std::pair{KeyOf(fragment.rank), uint32_t{0}});
    MC_CHECK(it != parts.end() && it->first == KeyOf(fragment.rank));
    part_of_fragment.push_back(it->second);
  }
  return part_of_fragment;
}

const std::string& SourceIndex::resource_id() const {
  return placement_ ? placement_->resource_id : stored_->resource_id;
}

const std::string& SourceIndex::revision() const {
  return placement_ ? placement_->revision : stored_->revision;
}

uint64_t SourceIndex::weight_generation() const {
  return placement_ ? placement_->weight_generation : stored_->weight_generation;
}

void SourceIndex::TakeTensors(TensorList tensors) {
  tensors_ = std::make_shared<const TensorList>(std::move(tensors));
  table_ = TensorTable(*tensors_);
  rank_status_ = ValidateTensorRanks(*tensors_);
}

SourceIndex::SourceIndex(manifest::PlacementPtr placement) : placement_(std::move(placement)) {
  TakeTensors(PlacementTensors(placement_->tensors));
  if (!rank_status_.ok()) return;
  const manifest::FragmentSpan fragments = placement_->fragments;
  const std::vector<uint32_t> part_of_fragment = PartsOfFragments(*placement_);
  const FragmentsByTensor by_tensor = GroupByTensor(placement_->tensor_of, tensors_->size());

  std::vector<int64_t> dps;
  for (const manifest::PlacementPart& part : placement_->parts) {
    if (manifest::HoldsElements(part)) dps.push_back(part.rank.dp);
  }
  std::sort(dps.begin(), dps.end());
  dps.erase(std::unique(dps.begin(), dps.end()), dps.end());
  if (dps.empty()) dps.push_back(0);  // nothing but empty tensors
  std::vector<bool> complete(dps.size(), true);

  fragments_.reserve(fragments.size());
  parts_.reserve(fragments.size());
  tensor_selections_.resize(tensors_->size());
  FragmentGroups groups;
  for (uint32_t tensor = 0; tensor < tensors_->size(); ++tensor) {
    const bool owned = (*tensors_)[tensor]->is_owned();
    groups.Load(*(*tensors_)[tensor], fragments, by_tensor, tensor, /*prove_tiling=*/!owned);
    tensor_selections_[tensor].first = static_cast<uint32_t>(selections_.size());
    if (owned) {
      IndexOwned(tensor, groups, part_of_fragment, dps);
    } else if (groups.entries().empty()) {  // a tensor without elements
      selections_.push_back({AddTiling({}, true), static_cast<uint32_t>(fragments_.size())});
    } else {
      IndexTensor(tensor, groups, part_of_fragment, dps, &complete);
    }
  }
  for (uint32_t d = 0; d < dps.size(); ++d) {
    if (!complete[d]) continue;
    complete_dps_.push_back(dps[d]);
    complete_positions_.push_back(d);
  }
  if (complete_dps_.empty()) {
    choice_status_ = InvalidArgument(
        "source manifests have no complete DP replica; tensors are not fully covered");
  }
}

void SourceIndex::IndexTensor(uint32_t tensor, const FragmentGroups& groups,
                              std::span<const uint32_t> part_of_fragment,
                              const std::vector<int64_t>& dps, std::vector<bool>* complete) {
  const manifest::TensorDescriptor& descriptor = *(*tensors_)[tensor];
  const std::span<const FragmentGroups::Group> all = groups.groups();
  TensorSelections& selections = tensor_selections_[tensor];
  if (IsDpOwned(descriptor)) {
    const auto tiles = [](const FragmentGroups::Group& group) { return group.tiles; };
    if (std::none_of(all.begin(), all.end(), tiles)) {
      if (choice_status_.ok()) {
        choice_status_ = InvalidArgument("DP-owned source tensor has no complete declared owner: " +
                                         descriptor.tensor_id);
      }
    } else if (all.size() > 1 && choice_status_.ok()) {
      choice_status_ = InvalidArgument("DP-owned source tensor has ambiguous declared owners: " +
                                       descriptor.tensor_id);
    }
    selections_.push_back(Select(groups, all[0], part_of_fragment));
    return;
  }
  selections.single = false;
  size_t g = 0;
  for (size_t d = 0; d < dps.size(); ++d) {
    const size_t first = g;
    bool whole = g < all.size() && all[g].dp == dps[d];
    for (; g < all.size() && all[g].dp == dps[d]; ++g) whole = whole && all[g].tiles;
    if (whole) {
      selections_.push_back(Select(groups, all[first], part_of_fragment));
    } else {
      (*complete)[d] = false;
      selections_.emplace_back();
    }
  }
}

namespace {

using OwnerEntries = std::vector<const FragmentGroups::Entry*>;

// The first entry of each box of the tiling among `by_box`, which are sorted by box; empty when a
// box has none.
OwnerEntries EntriesOf(const manifest::OwnedTiling& tiling, const FragmentGroups& groups,
                       std::span<const FragmentGroups::Entry* const> by_box) {
  OwnerEntries chosen;
  if (by_box.size() < tiling.size()) return chosen;
  for (const manifest::OwnedBox& owned : tiling) {
    const Box box = geometry::UncheckedBox(owned.offset, owned.shape);
    const auto it = std::lower_bound(by_box.begin(), by_box.end(), box,
                                     [&groups](const auto* entry, const Box& wanted) {
                                       return groups.boxes()[entry->box] < wanted;
                                     });
    if (it == by_box.end() || !(groups.boxes()[(*it)->box] == box)) return {};
    chosen.push_back(*it);
  }
  return chosen;
}

}  // namespace

OwnerEntries OwnersWithin(const manifest::TensorDescriptor& tensor, const FragmentGroups& groups,
                          const FragmentGroups::Group& group) {
  OwnerEntries by_box;  // a group's entries are by (box, rank, fragment)
  for (const FragmentGroups::Entry& entry : groups.of(group)) by_box.push_back(&entry);
  for (const manifest::OwnedTiling& tiling : tensor.extension->ownership) {
    OwnerEntries chosen = EntriesOf(tiling, groups, by_box);
    if (!chosen.empty()) return chosen;
  }
  return {};
}

OwnerEntries FirstOwners(const manifest::TensorDescriptor& tensor, const FragmentGroups& groups) {
  OwnerEntries by_box;
  for (const FragmentGroups::Entry& entry : groups.entries()) by_box.push_back(&entry);
  std::sort(by_box.begin(), by_box.end(), [](const auto* a, const auto* b) {
    return std::tie(a->box, a->rank, a->fragment) < std::tie(b->box, b->rank, b->fragment);
  });
  OwnerEntries chosen = EntriesOf(tensor.extension->ownership[0], groups, by_box);
  MC_CHECK(!chosen.empty());  // the placement proved it
  return chosen;
}

void SourceIndex::IndexOwned(uint32_t tensor, const FragmentGroups& groups,
                             std::span<const uint32_t> part_of_fragment,
                             const std::vector<int64_t>& dps) {
  const manifest::TensorDescriptor& descriptor = *(*tensors_)[tensor];
  const auto add = [&](const OwnerEntries& chosen) {
    ReplicaSelection selection;
    selection.first = static_cast<uint32_t>(fragments_.size());
    std::vector<Box> boxes;
    for (const FragmentGroups::Entry* entry : chosen) {
      boxes.push_back(groups.boxes()[entry->box]);
      fragments_.push_back(entry->fragment);
      parts_.push_back(part_of_fragment[entry->fragment]);
    }
    selection.tiling = AddTiling(boxes, true);
    return selection;
  };
  const ReplicaSelection from_anybody = add(FirstOwners(descriptor, groups));
  std::vector<ReplicaSelection> selections(dps.size(), from_anybody);
  bool single = true;
  size_t d = 0;
  for (const FragmentGroups::Group& group : groups.groups()) {  // both ascending by dp
    while (dps[d] != group.dp) ++d;
    const OwnerEntries within = OwnersWithin(descriptor, groups, group);
    if (within.empty()) continue;
    selections[d] = add(within);
    single = false;
  }
  tensor_selections_[tensor].single = single;
  selections_.insert(selections_.end(), selections.begin(),
                     single ? selections.begin() + 1 : selections.end());
}

ReplicaSelection SourceIndex::Select(const FragmentGroups& groups,
                                     const FragmentGroups::Group& group,
                                     std::span<const uint32_t> part_of_fragment) {
  ReplicaSelection selection;
  selection.first = static_cast<uint32_t>(fragments_.size());
  std::vector<Box> boxes;
  uint32_t last_box = UINT32_MAX;
  for (const FragmentGroups::Entry& entry : groups.of(group)) {
    if (entry.box == last_box) continue;
    last_box = entry.box;
    boxes.push_back(groups.boxes()[entry.box]);
    fragments_.push_back(entry.fragment);
    parts_.push_back(part_of_fragment[entry.fragment]);
  }
  selection.tiling = AddTiling(boxes, group.tiles);
  return selection;
}

uint32_t SourceIndex::AddTiling(std::span<const Box> boxes, bool exact) {
  Tiling tiling{numbers_.size(), static_cast<uint32_t>(boxes.size()), -1,
                static_cast<uint8_t>(boxes.empty() ? 0 : boxes[0].rank()), exact};
  for (const Box& box : boxes) {
    for (int d = 0; d < box.rank(); ++d) numbers_.push_back(box.begin(d));
    for (int d = 0; d < box.rank(); ++d) numbers_.push_back(box.extent(d));
  }
  // Replicas, and tensors of one shape that are cut alike, come one after another.
  if (!tilings_.empty()) {
    const Tiling& last = tilings_.back();
    if (last.count == tiling.count && last.rank == tiling.rank && last.exact == exact &&
        std::equal(numbers_.begin() + static_cast<ptrdiff_t>(tiling.first_number), numbers_.end(),
                   numbers_.begin() + static_cast<ptrdiff_t>(last.first_number))) {
      numbers_.resize(tiling.first_number);
      return static_cast<uint32_t>(tilings_.size() - 1);
    }
  }
  if (boxes.size() > kScanMax) {
    tiling.tree = static_cast<int32_t>(trees_.size());
    trees_.emplace_back(std::vector<Box>(boxes.begin(), boxes.end()));
  }
  tilings_.push_back(tiling);
  return static_cast<uint32_t>(tilings_.size() - 1);
}

SourceIndex::SourceIndex(manifest::StoredManifestPtr stored) : stored_(std::move(stored)) {
  TakeTensors(SortedTensors(stored_->tensors));
  if (!rank_status_.ok()) return;
  complete_dps_ = {0};
  complete_positions_ = {0};
  const std::span<const manifest::StoredFragment> fragments = stored_->fragments;
  const FragmentsByTensor by_tensor = GroupByTensor(TensorsOf(fragments, table_), tensors_->size());
  tensor_selections_.resize(tensors_->size());
  struct Choice {
    Box box;
    uint32_t fragment;
  };
  std::vector<Choice> choices;
  std::vector<Box> boxes;
  for (uint32_t tensor = 0; tensor < tensors_->size(); ++tensor) {
    choices.clear();
    for (uint32_t f : by_tensor.of(tensor)) {
      choices.push_back(
          {geometry::UncheckedBox(fragments[f].global_offset, fragments[f].local_shape), f});
    }
    std::sort(choices.begin(), choices.end(), [&](const Choice& a, const Choice& b) {
      if (!(a.box == b.box)) return a.box < b.box;
      const manifest::StoredFragment& fa = fragments[a.fragment];
      const manifest::StoredFragment& fb = fragments[b.fragment];
      return std::tie(fa.object_key, fa.fragment_id) < std::tie(fb.object_key, fb.fragment_id);
    });
    tensor_selections_[tensor].first = static_cast<uint32_t>(selections_.size());
    ReplicaSelection& selection = selections_.emplace_back();
    selection.first = static_cast<uint32_t>(fragments_.size());
    boxes.clear();
    for (const Choice& choice : choices) {
      if (!boxes.empty() && boxes.back() == choice.box) continue;
      boxes.push_back(choice.box);
      fragments_.push_back(choice.fragment);
    }
    const std::vector<int64_t>& shape = (*tensors_)[tensor]->global_shape;
    const std::vector<int64_t> origin(shape.size(), 0);
    const bool exact = geometry::BoxesExactlyCover(geometry::UncheckedBox(origin, shape), boxes);
    const uint32_t tiling = AddTiling(boxes, exact);
    selections_.back().tiling = tiling;
  }
}

SourceHolders::SourceHolders(const SourceIndex& source) {
  const manifest::Placement& placement = *source.placement();
  const manifest::FragmentSpan fragments = placement.fragments;
  const std::vector<uint32_t> part_of_fragment = PartsOfFragments(placement);
  const TensorList& tensors = *source.tensors();
  const FragmentsByTensor by_tensor = GroupByTensor(placement.tensor_of, tensors.size());
  box_of_.assign(fragments.size(), 0);
  holders_.reserve(fragments.size());
  FragmentGroups groups;
  std::vector<FragmentGroups::Entry> by_box;
  for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
    groups.Load(*tensors[tensor], fragments, by_tensor, tensor, /*prove_tiling=*/false);
    const bool any_dp = tensors[tensor]->is_owned() || IsDpOwned(*tensors[tensor]);
    by_box.clear();
    for (const FragmentGroups::Entry& entry : groups.entries()) {
      if (any_dp || source.is_complete(entry.rank[0])) by_box.push_back(entry);
    }
    std::sort(by_box.begin(), by_box.end(), [](const auto& a, const auto& b) {
      return std::tie(a.box, a.rank, a.fragment) < std::tie(b.box, b.rank, b.fragment);
    });
    for (size_t i = 0; i < by_box.size(); ++i) {
      if (i == 0 || by_box[i].box != by_box[i - 1].box) {
        begins_.push_back(static_cast<uint32_t>(holders_.size()));
      }
      box_of_[by_box[i].fragment] = static_cast<uint32_t>(begins_.size() - 1);
      holders_.push_back({by_box[i].fragment, part_of_fragment[by_box[i].fragment]});
    }
  }
  begins_.push_back(static_cast<uint32_t>(holders_.size()));
}

const SourceHolders& SourceIndex::holders() const {
  MC_CHECK(placement_ != nullptr);
  std::call_once(holders_once_, [this] { holders_ = std::make_unique<SourceHolders>(*this); });
  return *holders_;
}

const ReplicaSelection& SourceIndex::SelectionFor(uint32_t tensor, int64_t target_dp) const {
  const TensorSelections& selections = tensor_selections_[tensor];
  if (selections.single) return selections_[selections.first];
  const size_t n = complete_positions_.size();
  return selections_[selections.first + complete_positions_[static_cast<size_t>(target_dp) % n]];
}

Box SourceIndex::BoxOf(const Tiling& tiling, uint32_t position) const {
  const size_t rank = tiling.rank;
  const std::span<const int64_t> numbers =
      std::span(numbers_).subspan(tiling.first_number + position * 2 * rank, 2 * rank);
  return geometry::UncheckedBox(numbers.first(rank), numbers.subspan(rank));
}

void SourceIndex::FindOverlaps(const Tiling& tiling, const Box& query,
                               std::vector<uint32_t>* found) const {
  found->clear();
  if (tiling.tree >= 0) {
    trees_[static_cast<size_t>(tiling.tree)].FindOverlaps(query, found);
    std::sort(found->begin(), found->end());
    return;
  }
  const size_t rank = tiling.rank;
  const int64_t* numbers = numbers_.data() + tiling.first_number;
  for (uint32_t p = 0; p < tiling.count; ++p, numbers += 2 * rank) {
    bool overlaps = true;
    for (size_t d = 0; d < rank && overlaps; ++d) {
      const int dim = static_cast<int>(d);
      overlaps = numbers[d] < query.end(dim) && query.begin(dim) < numbers[d] + numbers[rank + d];
    }
    if (overlaps) found->push_back(p);
  }
}

SourceIndexPtr IndexPlacement(manifest::PlacementPtr source) {
  return std::make_shared<const SourceIndex>(std::move(source));
}

SourceIndexPtr IndexStored(manifest::StoredManifestPtr source) {
  return std::make_shared<const SourceIndex>(std::move(source));
}

}  // namespace mooncake::reshard
