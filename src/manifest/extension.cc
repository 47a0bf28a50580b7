#include "manifest/extension.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "geometry/box.h"
#include "geometry/box_index.h"
#include "geometry/cover.h"
#include "manifest/field_checks.h"
#include "manifest/lookup.h"
#include "manifest/tiling.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool HasNoElements(std::span<const int64_t> shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

std::string BoxText(std::span<const int64_t> offset, std::span<const int64_t> shape) {
  return fmt::format("offset {} and shape {}", ToText(offset), ToText(shape));
}

// --- a tensor alone ------------------------------------------------------------------------------

Status NormalizeOwnedBox(const TensorDescriptor& tensor, OwnedBox& box) {
  const auto refuse = [&](const char* what) {
    return InvalidArgument(fmt::format("explicit ownership {}: {}: {} of a tensor of shape {}",
                                       what, tensor.tensor_id, BoxText(box.offset, box.shape),
                                       ToText(tensor.global_shape)));
  };
  const size_t rank = tensor.global_shape.size();
  if (box.offset.size() != rank || box.shape.size() != rank) return refuse("box is out of bounds");
  for (size_t d = 0; d < rank; ++d) {
    if (box.offset[d] < 0 || box.shape[d] < 1 || box.shape[d] > tensor.global_shape[d] ||
        box.offset[d] > tensor.global_shape[d] - box.shape[d]) {
      return refuse("box is out of bounds");
    }
  }
  if (box.owners.empty()) return refuse("box has no owner");
  for (const std::string& owner : box.owners) {
    MC_RETURN_IF_ERROR(CheckText("explicit ownership owner", owner));
  }
  std::sort(box.owners.begin(), box.owners.end());
  return OkStatus();
}

Status NormalizeOwnership(const TensorDescriptor& tensor, std::vector<OwnedTiling>& ownership) {
  if (ownership.empty()) return OkStatus();
  const std::string& id = tensor.tensor_id;
  if (!tensor.parallel_axes.empty() || !tensor.shard_dims.empty()) {
    return InvalidArgument("explicit ownership replaces parallel_axes and shard_dims: " + id);
  }
  if (HasNoElements(tensor.global_shape)) {
    return InvalidArgument(fmt::format("explicit ownership of an empty tensor: {} of shape {}", id,
                                       ToText(tensor.global_shape)));
  }
  for (OwnedTiling& tiling : ownership) {
    if (tiling.empty()) return InvalidArgument("explicit ownership tiling has no boxes: " + id);
    std::vector<BoxView> boxes;
    for (OwnedBox& box : tiling) {
      MC_RETURN_IF_ERROR(NormalizeOwnedBox(tensor, box));
      boxes.push_back({box.offset, box.shape});
    }
    MC_ASSIGN_OR_RETURN(const bool tiles, ExactlyTile(tensor.global_shape, boxes));
    if (!tiles) {
      return InvalidArgument(
          fmt::format("explicit ownership does not tile the tensor exactly: {}: {} boxes of a "
                      "tensor of shape {}",
                      id, tiling.size(), ToText(tensor.global_shape)));
    }
    std::sort(tiling.begin(), tiling.end());
  }
  std::sort(ownership.begin(), ownership.end());
  if (std::adjacent_find(ownership.begin(), ownership.end()) != ownership.end()) {
    return InvalidArgument("explicit ownership repeats a tiling: " + id);
  }
  return OkStatus();
}

Status CheckPaddedShape(const TensorDescriptor& tensor, const Extents& padded) {
  const auto refuse = [&](const char* what) {
    return InvalidArgument(fmt::format("padded_shape must {} global_shape: {}: {} and {}", what,
                                       tensor.tensor_id, ToText(padded),
                                       ToText(tensor.global_shape)));
  };
  if (padded.size() != tensor.global_shape.size()) return refuse("have the rank of");
  for (size_t d = 0; d < padded.size(); ++d) {
    if (padded[d] < tensor.global_shape[d]) return refuse("not be smaller than");
  }
  return OkStatus();
}

Status CheckDim(const TensorDescriptor& tensor, const char* what, int64_t dim) {
  if (dim >= 0 && dim < static_cast<int64_t>(tensor.global_shape.size())) return OkStatus();
  return InvalidArgument(fmt::format("{} dimension is out of range: {}: {} of a tensor of rank {}",
                                     what, tensor.tensor_id, dim, tensor.global_shape.size()));
}

Status CheckSections(const TensorDescriptor& tensor, const Sections& sections) {
  MC_RETURN_IF_ERROR(CheckDim(tensor, "sections", sections.dim));
  if (sections.parts.empty()) {
    return InvalidArgument("sections must not be empty: " + tensor.tensor_id);
  }
  std::vector<std::string_view> names;
  int64_t reached = 0;
  const auto gap = [&](int64_t at) {
    return InvalidArgument(fmt::format(
        "sections do not fill the dimension: {}: expected a section from {} on in "
        "dimension {} of extent {}, got {}",
        tensor.tensor_id, reached, sections.dim, tensor.global_shape[sections.dim], at));
  };
  for (const SectionPart& part : sections.parts) {
    MC_RETURN_IF_ERROR(CheckText("section name", part.name));
    names.push_back(part.name);
    if (part.begin != reached || part.end <= part.begin) return gap(part.begin);
    reached = part.end;
  }
  if (reached != tensor.global_shape[sections.dim]) return gap(reached);
  std::sort(names.begin(), names.end());
  if (const auto twin = std::adjacent_find(names.begin(), names.end()); twin != names.end()) {
    return InvalidArgument(
        fmt::format("section names must not contain duplicates: {}: {}", tensor.tensor_id, *twin));
  }
  return OkStatus();
}

Status CheckPacking(const TensorDescriptor& tensor, const Packing& packing) {
  MC_RETURN_IF_ERROR(CheckDim(tensor, "packing", packing.dim));
  MC_RETURN_IF_ERROR(CheckAtLeast("packing factor", packing.factor, 2));
  MC_RETURN_IF_ERROR(CheckAtLeast("packing extent", packing.extent, 1));
  const int64_t items = CeilDivide(packing.extent, packing.factor);
  if (items == tensor.global_shape[packing.dim]) return OkStatus();
  return InvalidArgument(
      fmt::format("packing does not match global_shape: {}: {} elements, {} an item, are {} items "
                  "along dimension {}, got {}",
                  tensor.tensor_id, packing.extent, packing.factor, items, packing.dim,
                  tensor.global_shape[packing.dim]));
}

Status CheckBlockShape(const TensorDescriptor& tensor, const BlockScales& scales) {
  MC_RETURN_IF_ERROR(CheckText("scale_tensor_id", scales.scale_tensor_id));
  MC_RETURN_IF_ERROR(CheckAllAtLeast("block_shape", scales.block_shape, 1));
  if (scales.block_shape.size() == tensor.global_shape.size()) return OkStatus();
  return InvalidArgument(
      fmt::format("block_shape must have the rank of global_shape: {}: {} and {}", tensor.tensor_id,
                  ToText(scales.block_shape), ToText(tensor.global_shape)));
}

// --- fragments against their tensor --------------------------------------------------------------

// A section of a dimension; the whole dimension where it has none.
struct Stretch {
  int64_t begin = 0;
  int64_t end = 0;
  std::string_view name = {};
};

// The one that `position` lies in; the last one for a position at the end.
Stretch StretchAt(const TensorDescriptor& tensor, size_t dim, int64_t position) {
  const auto& sections = tensor.extension->sections;
  if (!sections || sections->dim != static_cast<int64_t>(dim)) {
    return {0, tensor.global_shape[dim], {}};
  }
  const auto it =
      std::upper_bound(sections->parts.begin(), sections->parts.end(), position,
                       [](int64_t value, const SectionPart& part) { return value < part.end; });
  const SectionPart& part = it == sections->parts.end() ? sections->parts.back() : *it;
  return {part.begin, part.end, part.name};
}

Status CheckSectionsKept(const TensorDescriptor& tensor, std::string_view fragment_id,
                         std::span<const int64_t> offset, std::span<const int64_t> shape) {
  const auto& sections = tensor.extension->sections;
  if (!sections) return OkStatus();
  const auto dim = static_cast<size_t>(sections->dim);
  const int64_t end = offset[dim] + shape[dim];
  const Stretch first = StretchAt(tensor, dim, offset[dim]);
  if (end <= first.end) return OkStatus();
  return InvalidArgument(
      fmt::format("fragment crosses sections: {}: [{}, {}) of dimension {} of {} crosses {}, where "
                  "{} ends and {} begins",
                  fragment_id, offset[dim], end, dim, tensor.tensor_id, first.end, first.name,
                  StretchAt(tensor, dim, first.end).name));
}

Status CheckBlocksKept(const TensorDescriptor& tensor, std::string_view fragment_id,
                       std::span<const int64_t> offset, std::span<const int64_t> shape) {
  const auto& scales = tensor.extension->block_scales;
  if (!scales || scales->shareable) return OkStatus();
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t block = scales->block_shape[d];
    const Stretch stretch = StretchAt(tensor, d, offset[d]);
    for (const int64_t cut : {offset[d], offset[d] + shape[d]}) {
      if (cut == stretch.end || (cut - stretch.begin) % block == 0) continue;
      return InvalidArgument(fmt::format(
          "fragment cuts a block: {} of {}: dimension {} is cut at {}, blocks are of {} from {} on",
          fragment_id, tensor.tensor_id, d, cut, block, stretch.begin));
    }
  }
  return OkStatus();
}

// --- ownership -----------------------------------------------------------------------------------

// A participant's box, as something to sort.
struct Holding {
  std::string_view participant;
  std::span<const int64_t> offset;
  std::span<const int64_t> shape;
  int64_t count = 1;

  int Compare(const Holding& other) const {
    if (const int c = participant.compare(other.participant); c != 0) return c;
    const auto compare = [](std::span<const int64_t> a, std::span<const int64_t> b) {
      const auto c = std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
      return c < 0 ? -1 : c > 0 ? 1 : 0;
    };
    if (const int c = compare(offset, other.offset); c != 0) return c;
    return compare(shape, other.shape);
  }
};

// Sorts, and joins equal holdings with `join(a.count, b.count)`.
template <class Join>
void Merge(std::vector<Holding>& holdings, Join join) {
  std::sort(holdings.begin(), holdings.end(),
            [](const Holding& a, const Holding& b) { return a.Compare(b) < 0; });
  size_t kept = 0;
  for (size_t i = 0; i < holdings.size(); ++i) {
    if (kept > 0 && holdings[kept - 1].Compare(holdings[i]) == 0) {
      holdings[kept - 1].count = join(holdings[kept - 1].count, holdings[i].count);
    } else {
      holdings[kept++] = holdings[i];
    }
  }
  holdings.resize(kept);
}

std::vector<Holding> DeclaredHoldings(const TensorExtension& extension) {
  std::vector<Holding> declared;
  for (const OwnedTiling& tiling : extension.ownership) {
    for (const OwnedBox& box : tiling) {
      for (size_t i = 0; i < box.owners.size(); ++i) {  // sorted: equal owners are neighbours
        if (i > 0 && box.owners[i] == box.owners[i - 1]) {
          ++declared.back().count;
        } else {
          declared.push_back({box.owners[i], box.offset, box.shape, 1});
        }
      }
    }
  }
  Merge(declared, [](int64_t a, int64_t b) { return std::max(a, b); });
  return declared;
}

Status HoldingsDiffer(const TensorDescriptor& tensor, const Holding& box, int64_t declared,
                      int64_t found) {
  return InvalidArgument(fmt::format(
      "explicit ownership and fragments differ: {}: {} at {}: declared {}, found {}",
      tensor.tensor_id, box.participant, BoxText(box.offset, box.shape), declared, found));
}

// --- block scales --------------------------------------------------------------------------------

// Where the blocks of one dimension lie: they begin anew in each section.
class BlockGrid {
 public:
  BlockGrid(const TensorDescriptor& tensor, size_t dim)
      : block_(tensor.extension->block_scales->block_shape[dim]) {
    const int64_t extent = tensor.global_shape[dim];
    for (int64_t at = 0; at < extent;) {
      const Stretch stretch = StretchAt(tensor, dim, at);
      stretches_.push_back({stretch, count_});
      count_ += CeilDivide(stretch.end - stretch.begin, block_);
      at = stretch.end;
    }
  }

  int64_t count() const { return count_; }
  // The number of the block that an element lies in.
  int64_t BlockOf(int64_t position) const {
    const auto it =
        std::upper_bound(stretches_.begin(), stretches_.end(), position,
                         [](int64_t value, const auto& s) { return value < s.first.end; });
    return it->second + (position - it->first.begin) / block_;
  }

 private:
  int64_t block_;
  int64_t count_ = 0;
  std::vector<std::pair<Stretch, int64_t>> stretches_;  // with the blocks before each
};

using RankKey = std::array<int64_t, 4>;

RankKey KeyOf(const ParallelRank& rank) { return {rank.dp, rank.pp, rank.ep, rank.tp}; }

class BlockScaleCheck {
 public:
  BlockScaleCheck(const TensorDescriptor& weight, const TensorDescriptor& scale)
      : weight_(weight), scale_(scale) {
    for (size_t d = 0; d < weight.global_shape.size(); ++d) grids_.emplace_back(weight, d);
  }

  Status CheckShape() const {
    const Extents expected = ScaleShape(weight_);
    if (expected == scale_.global_shape) return OkStatus();
    return InvalidArgument(fmt::format(
        "block scales have another shape: {}: expected {} of {}, got {}", weight_.tensor_id,
        ToText(expected), scale_.tensor_id, ToText(scale_.global_shape)));
  }

  void AddScale(const PlacementFragment& fragment) {
    boxes_[KeyOf(fragment.rank)].push_back(
        geometry::UncheckedBox(fragment.global_offset, fragment.local_shape));
  }

  // The distinct boxes of one rank do not overlap, so that counting elements proves a cover.
  Status Prepare() {
    for (auto& [rank, boxes] : boxes_) {
      std::sort(boxes.begin(), boxes.end());
      boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
      if (geometry::BoxesOverlap(boxes)) {
        return InvalidArgument("block scales overlap on one rank: " + scale_.tensor_id);
      }
      held_.emplace(rank, std::move(boxes));
    }
    return OkStatus();
  }

  Status CheckWeight(const PlacementFragment& fragment) {
    const geometry::Box wanted = ScaleBox(fragment.global_offset, fragment.local_shape);
    geometry::Volume covered = 0;
    if (const auto it = held_.find(KeyOf(fragment.rank)); it != held_.end()) {
      found_.clear();
      it->second.FindOverlaps(wanted, &found_);
      for (const uint32_t box : found_) covered += it->second.box(box).Intersect(wanted)->volume();
    }
    if (covered == wanted.volume()) return OkStatus();
    return InvalidArgument(
        fmt::format("fragment lacks its block scales: {} of {} at {}: needs {} of {}",
                    fragment.placement_fragment_id, weight_.tensor_id, ToText(fragment.rank),
                    wanted.ToString(), scale_.tensor_id));
  }

 private:
  // The box of scales that a box of the weight needs.
  geometry::Box ScaleBox(std::span<const int64_t> offset, std::span<const int64_t> shape) const {
    Extents begins;
    Extents extents;
    for (size_t d = 0; d < shape.size(); ++d) {
      begins.push_back(grids_[d].BlockOf(offset[d]));
      extents.push_back(grids_[d].BlockOf(offset[d] + shape[d] - 1) + 1 - begins.back());
    }
    return geometry::UncheckedBox(begins, extents);
  }

  const TensorDescriptor& weight_;
  const TensorDescriptor& scale_;
  std::vector<BlockGrid> grids_;  // one a dimension
  std::map<RankKey, std::vector<geometry::Box>> boxes_;
  std::map<RankKey, geometry::BoxIndex> held_;
  std::vector<uint32_t> found_;
};

}  // namespace

bool IsExtended(const PlacementFragment& fragment) {
  return fragment.slot.has_value() || HasNoElements(fragment.local_shape);
}

Status NormalizeExtension(TensorDescriptor& tensor) {
  TensorExtension extension = *tensor.extension;
  if (tensor.global_shape.size() > static_cast<size_t>(geometry::kMaxRank)) {
    return InvalidArgument(fmt::format("an extended tensor has at most {} dimensions: {} has {}",
                                       geometry::kMaxRank, tensor.tensor_id,
                                       tensor.global_shape.size()));
  }
  MC_RETURN_IF_ERROR(NormalizeOwnership(tensor, extension.ownership));
  if (extension.padded_shape) MC_RETURN_IF_ERROR(CheckPaddedShape(tensor, *extension.padded_shape));
  if (extension.sections) MC_RETURN_IF_ERROR(CheckSections(tensor, *extension.sections));
  if (extension.packing) MC_RETURN_IF_ERROR(CheckPacking(tensor, *extension.packing));
  if (extension.block_scales) MC_RETURN_IF_ERROR(CheckBlockShape(tensor, *extension.block_scales));
  if (!(extension == *tensor.extension)) {
    tensor.extension = std::make_shared<const TensorExtension>(std::move(extension));
  }
  return OkStatus();
}

Status CheckFragmentCuts(const TensorDescriptor& tensor, std::string_view fragment_id,
                         std::span<const int64_t> offset, std::span<const int64_t> shape) {
  if (tensor.extension == nullptr || HasNoElements(shape)) return OkStatus();
  MC_RETURN_IF_ERROR(CheckSectionsKept(tensor, fragment_id, offset, shape));
  return CheckBlocksKept(tensor, fragment_id, offset, shape);
}

ParticipantTable::ParticipantTable(const ParallelTopology& topology) : topology_(topology) {
  for (const TopologyParticipant& participant : topology.participants) {
    by_rank_.emplace_back(KeyOf(participant.rank), participant.participant_id);
  }
  std::sort(by_rank_.begin(), by_rank_.end());
}

std::string_view ParticipantTable::IdOf(const ParallelRank& rank) const {
  const auto it =
      std::lower_bound(by_rank_.begin(), by_rank_.end(), KeyOf(rank),
                       [](const auto& entry, const auto& key) { return entry.first < key; });
  return it->second;
}

bool ParticipantTable::Contains(std::string_view participant_id) const {
  return FindParticipant(topology_, participant_id) != nullptr;
}

Status CheckOwnership(const ParticipantTable& participants, const TensorDescriptor& tensor,
                      std::span<const PlacementFragment* const> fragments) {
  std::vector<Holding> declared = DeclaredHoldings(*tensor.extension);
  std::vector<Holding> found;
  for (const PlacementFragment* fragment : fragments) {
    if (fragment->is_empty()) continue;
    found.push_back(
        {participants.IdOf(fragment->rank), fragment->global_offset, fragment->local_shape, 1});
  }
  Merge(found, [](int64_t a, int64_t b) { return a + b; });
  for (const Holding& holding : declared) {
    if (participants.Contains(holding.participant)) continue;
    return InvalidArgument(fmt::format("explicit ownership names an unknown participant: {}: {}",
                                       tensor.tensor_id, holding.participant));
  }
  auto d = declared.begin();
  auto f = found.begin();
  while (d != declared.end() || f != found.end()) {
    const int order = d == declared.end() ? 1 : f == found.end() ? -1 : d->Compare(*f);
    if (order < 0) return HoldingsDiffer(tensor, *d, d->count, 0);
    if (order > 0) return HoldingsDiffer(tensor, *f, 0, f->count);
    if (d->count != f->count) return HoldingsDiffer(tensor, *d, d->count, f->count);
    ++d;
    ++f;
  }
  return OkStatus();
}

Extents ScaleShape(const TensorDescriptor& tensor) {
  Extents shape;
  for (size_t d = 0; d < tensor.global_shape.size(); ++d) {
    shape.push_back(BlockGrid(tensor, d).count());
  }
  return shape;
}

Status CheckBlockScales(const TensorPositions& positions, std::span<const TensorDescriptor> tensors,
                        FragmentSpan fragments, std::span<const uint32_t> tensor_of) {
  std::vector<std::vector<uint32_t>> fragments_of;  // made when the first tensor needs it
  for (const TensorDescriptor& weight : tensors) {
    if (weight.extension == nullptr || !weight.extension->block_scales) continue;
    const std::string& scale_id = weight.extension->block_scales->scale_tensor_id;
    const int64_t position = positions.Find(scale_id);
    if (position < 0 || scale_id == weight.tensor_id) {
      return InvalidArgument(
          fmt::format("block scales name an unknown tensor: {}: {}", weight.tensor_id, scale_id));
    }
    if (fragments_of.empty()) {
      fragments_of.resize(tensors.size());
      for (uint32_t f = 0; f < fragments.size(); ++f) fragments_of[tensor_of[f]].push_back(f);
    }
    BlockScaleCheck check(weight, tensors[position]);
    MC_RETURN_IF_ERROR(check.CheckShape());
    for (const uint32_t f : fragments_of[position]) {
      if (!fragments[f].is_empty()) check.AddScale(fragments[f]);
    }
    MC_RETURN_IF_ERROR(check.Prepare());
    for (const uint32_t f : fragments_of[positions.Find(weight.tensor_id)]) {
      if (!fragments[f].is_empty()) MC_RETURN_IF_ERROR(check.CheckWeight(fragments[f]));
    }
  }
  return OkStatus();
}

Status NormalizeOmitted(std::span<const TensorDescriptor> tensors,
                        std::vector<std::string>& omitted) {
  for (const std::string& id : omitted) MC_RETURN_IF_ERROR(CheckText("omitted_tensors", id));
  std::sort(omitted.begin(), omitted.end());
  if (const auto twin = std::adjacent_find(omitted.begin(), omitted.end()); twin != omitted.end()) {
    return InvalidArgument("omitted_tensors must not contain duplicates: " + *twin);
  }
  for (const std::string& id : omitted) {
    if (FindTensor(tensors, id) != nullptr) {
      return InvalidArgument("omitted tensor is in the placement: " + id);
    }
  }
  return OkStatus();
}

}  // namespace mooncake::manifest
