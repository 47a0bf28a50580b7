#include "reshard/planner.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "geometry/cover.h"
#include "manifest/lookup.h"
#include "reshard/compatibility.h"
#include "reshard/fragment_groups.h"
#include "reshard/plan_assembler.h"
#include "reshard/source_index.h"

namespace mooncake::reshard {

using geometry::Box;
using manifest::PlacementFragment;
using manifest::TensorDescriptor;

namespace {

// What is to be filled: a whole placement, or one part of it.
struct Target {
  manifest::PlacementPtr placement;
  std::optional<uint32_t> part;
  std::shared_ptr<const TensorList> tensors;
  manifest::FragmentSpan fragments;

  // The parts that have anything to be filled.
  std::vector<uint32_t> used_parts() const {
    std::vector<uint32_t> used;
    for (uint32_t p = 0; p < placement->parts.size(); ++p) {
      if (part ? p == *part : manifest::HoldsElements(placement->parts[p])) used.push_back(p);
    }
    return used;
  }
};

Target WholeTarget(const manifest::PlacementPtr& placement) {
  return {placement, std::nullopt,
          std::make_shared<const TensorList>(PlacementTensors(placement->tensors)),
          manifest::FragmentSpan(placement->fragments)};
}

Result<Target> LocalTarget(const manifest::PlacementPtr& placement,
                           std::optional<std::string_view> participant_id) {
  if (!participant_id) {
    if (placement->topology.participants.size() != 1) {
      return InvalidArgument(
          "target_participant_id is required for a multi-participant target: it has " +
          std::to_string(placement->topology.participants.size()) + " participants");
    }
    participant_id = placement->topology.participants[0].participant_id;
  }
  const manifest::PlacementPart* part = manifest::FindPart(*placement, *participant_id);
  if (part == nullptr) {
    return InvalidArgument("unknown target participant: " + std::string(*participant_id));
  }
  return Target{placement, static_cast<uint32_t>(part - placement->parts.data()),
                std::make_shared<const TensorList>(PlacementTensors(part->tensors)),
                manifest::FragmentSpan(part->fragments)};
}

std::string JoinIds(std::span<const TensorDescriptor* const> tensors) {
  std::string joined;
  for (const TensorDescriptor* tensor : tensors) {
    if (!joined.empty()) joined += ", ";
    joined += tensor->tensor_id;
  }
  return joined;
}

// Checks the tensor sets and returns, for each target tensor, its position among the source's.
Result<std::vector<uint32_t>> MatchTensors(const SourceIndex& source, const Target& target) {
  const TensorList& wanted = *target.tensors;
  const TensorList& offered = *source.tensors();
  if (target.part && !manifest::HoldsElements(target.placement->parts[*target.part])) {
    return InvalidArgument("local target manifest has no fragments: " +
                           target.placement->parts[*target.part].participant_id);
  }
  std::vector<uint32_t> positions(wanted.size());
  const auto same_id = [](const auto* a, const auto* b) { return a->tensor_id == b->tensor_id; };
  if (std::equal(wanted.begin(), wanted.end(), offered.begin(), offered.end(), same_id)) {
    std::iota(positions.begin(), positions.end(), 0u);
    return positions;
  }
  if (!target.part) {
    TensorList missing;
    std::set_difference(offered.begin(), offered.end(), wanted.begin(), wanted.end(),
                        std::back_inserter(missing),
                        [](const auto* a, const auto* b) { return a->tensor_id < b->tensor_id; });
    std::erase_if(missing, [&target](const TensorDescriptor* tensor) {
      const std::vector<std::string>& omitted = target.placement->omitted_tensors;
      return std::binary_search(omitted.begin(), omitted.end(), tensor->tensor_id);
    });
    if (!missing.empty()) {
      return InvalidArgument("target manifests are missing tensors: " + JoinIds(missing));
    }
  }
  TensorList unknown;
  for (size_t t = 0; t < wanted.size(); ++t) {
    const std::optional<uint32_t> position = source.table().Find(wanted[t]->tensor_id);
    if (position) {
      positions[t] = *position;
    } else {
      unknown.push_back(wanted[t]);
    }
  }
  if (!unknown.empty()) {
    return InvalidArgument("target manifests contain unknown tensors: " + JoinIds(unknown));
  }
  return positions;
}

// The source boxes that a target box needs, in the order of their operations.
struct Piece {
  uint32_t position = 0;  // in the tiling
  uint64_t elements = 0;
  geometry::RegionSummary region;
};

// Finds and proves the pieces of one target box; keeps its memory between boxes.
class PieceFinder {
 public:
  explicit PieceFinder(const SourceIndex& source) : source_(source) {}

  // False when the pieces do not tile the box exactly.
  bool Find(const Tiling& tiling, const Box& target, uint64_t itemsize) {
    source_.FindOverlaps(tiling, target, &found_);
    pieces_.clear();
    overlaps_.clear();
    geometry::Volume covered = 0;
    bool in_order = true;
    for (uint32_t position : found_) {
      const Box box = source_.BoxOf(tiling, position);
      const Box overlap = *box.Intersect(target);
      covered = geometry::SaturatingAdd(covered, overlap.volume());
      pieces_.push_back({position, static_cast<uint64_t>(overlap.volume()),
                         geometry::SummarizeRegion(box, target, overlap, itemsize)});
      in_order = in_order &&
                 (pieces_.size() == 1 || pieces_[pieces_.size() - 2].region.target_base_offset <
                                             pieces_.back().region.target_base_offset);
      if (!tiling.exact) overlaps_.push_back(overlap);
    }
    // Disjoint overlaps begin at different elements of the target, so the offset decides.
    if (!in_order) {
      std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
        return a.region.target_base_offset < b.region.target_base_offset;
      });
    }
    // The boxes of an exact tiling are disjoint, so counting elements proves the cover.
    if (tiling.exact) return covered == target.volume();
    return geometry::BoxesExactlyCover(target, overlaps_);
  }

  std::span<const Piece> pieces() const { return pieces_; }

 private:
  const SourceIndex& source_;
  std::vector<uint32_t> found_;
  std::vector<Piece> pieces_;
  std::vector<Box> overlaps_;
};

// One planning run. Works tensor by tensor, where neighbours share cache lines and answers; only
// when something is wrong does it walk the fragments in the contract's order, to name the fault
// that the contract names.
class Planner {
 public:
  // A stored source has nothing to balance.
  Planner(SourceIndexPtr source, Target target, const PlanningLimits& limits,
          const Balance* balance)
      : source_(std::move(source)),
        target_(std::move(target)),
        limits_(limits),
        balance_(source_->placement() == nullptr ? nullptr : balance),
        finder_(*source_) {}

  Result<LogicalPlanPtr> Run() {
    MC_RETURN_IF_ERROR(CheckSameRevision(source_->resource_id(), source_->revision(),
                                         source_->weight_generation(), *target_.placement));
    MC_ASSIGN_OR_RETURN(source_tensor_, MatchTensors(*source_, target_));
    MC_RETURN_IF_ERROR(ValidateTensorRanks(*target_.tensors));
    GroupFragments();
    MC_RETURN_IF_ERROR(PlanTensors());
    if (faulty_) return NameTheFault();
    if (balance_ != nullptr) BalanceReads();
    return Assemble();
  }

 private:
  bool can_plan() const { return source_->rank_status().ok() && source_->choice_status().ok(); }

  void GroupFragments() {
    if (target_.part) {
      tensors_of_part_ = TensorsOf(target_.fragments, TensorTable(*target_.tensors));
      tensor_of_ = tensors_of_part_;
    } else {
      tensor_of_ = target_.placement->tensor_of;
    }
    by_tensor_ = GroupByTensor(tensor_of_, target_.tensors->size());
  }

  Status PlanTensors() {
    piece_counts_.assign(target_.fragments.size(), 0);
    used_source_parts_.assign(source_->placement() ? source_->placement()->parts.size() : size_t{1},
                              false);
    std::vector<int64_t> dps;
    if (!target_.part) dps = TargetDps();
    const bool can_plan = this->can_plan();
    for (uint32_t tensor = 0; tensor < target_.tensors->size(); ++tensor) {
      groups_.Load(*(*target_.tensors)[tensor], target_.fragments, by_tensor_, tensor,
                   /*prove_tiling=*/!target_.part && !(*target_.tensors)[tensor]->is_owned());
      if (!target_.part) MC_RETURN_IF_ERROR(CheckTargetCovered(tensor, dps));
      if (can_plan && !faulty_) faulty_ = !PlanTensor(tensor);
    }
    MC_RETURN_IF_ERROR(source_->rank_status());
    return source_->choice_status();
  }

  std::vector<int64_t> TargetDps() const {
    std::vector<int64_t> dps;
    for (const manifest::PlacementPart& part : target_.placement->parts) {
      if (manifest::HoldsElements(part)) dps.push_back(part.rank.dp);
    }
    std::sort(dps.begin(), dps.end());
    dps.erase(std::unique(dps.begin(), dps.end()), dps.end());
    return dps;
  }

  // Every owner in every dp rank holds the tensor whole.
  Status CheckTargetCovered(uint32_t tensor, const std::vector<int64_t>& dps) const {
    const TensorDescriptor& descriptor = *(*target_.tensors)[tensor];
    const std::vector<FragmentGroups::Group>& groups = groups_.groups();
    // The placement proved an owned tensor; an empty one has nothing to cover.
    if (descriptor.is_owned() || geometry::VolumeOf(descriptor.global_shape) == 0) {
      return OkStatus();
    }
    if (IsDpOwned(descriptor)) {
      for (const FragmentGroups::Group& group : groups) {
        if (group.tiles) continue;
        return InvalidArgument("target tensor is not fully covered by its DP owner: " +
                               descriptor.tensor_id);
      }
      return OkStatus();
    }
    size_t g = 0;
    for (int64_t dp : dps) {
      bool covered = g < groups.size() && groups[g].dp == dp;
      for (; g < groups.size() && groups[g].dp == dp; ++g) covered = covered && groups[g].tiles;
      if (!covered) {
        return InvalidArgument("target tensor is not fully covered: " + descriptor.tensor_id +
                               ": dp=" + std::to_string(dp));
      }
    }
    return OkStatus();
  }

  // False when something is wrong; NameTheFault finds out what.
  bool PlanTensor(uint32_t tensor) {
    const TensorDescriptor& descriptor = *(*target_.tensors)[tensor];
    const uint32_t source_tensor = source_tensor_[tensor];
    if (!CheckCompatible(*(*source_->tensors())[source_tensor], descriptor).ok()) return false;
    // By box first: equal boxes of several ranks have equal pieces.
    by_box_.assign(groups_.entries().begin(), groups_.entries().end());
    std::sort(by_box_.begin(), by_box_.end(), [](const auto& a, const auto& b) {
      return std::tie(a.box, a.rank[0], a.fragment) < std::tie(b.box, b.rank[0], b.fragment);
    });
    uint32_t known_box = UINT32_MAX;
    uint32_t known_tiling = 0;
    uint64_t segments = 0;
    for (const FragmentGroups::Entry& entry : by_box_) {
      const ReplicaSelection& selection = source_->SelectionFor(source_tensor, entry.rank[0]);
      if (entry.box != known_box || selection.tiling != known_tiling) {
        known_box = entry.box;
        known_tiling = selection.tiling;
        if (!finder_.Find(source_->tiling(selection), groups_.boxes()[entry.box],
                          static_cast<uint64_t>(descriptor.itemsize))) {
          return false;
        }
        segments = 0;
        for (const Piece& piece : finder_.pieces()) {
          if (piece.region.segment_count > limits_.max_segments_per_region) return false;
          if (__builtin_add_overflow(segments, piece.region.segment_count, &segments)) {
            segments = UINT64_MAX;
          }
        }
      }
      if (!Emit(entry.fragment, selection, segments, static_cast<uint64_t>(descriptor.itemsize))) {
        return false;
      }
    }
    return true;
  }

  bool Emit(uint32_t fragment, const ReplicaSelection& selection, uint64_t segments,
            uint64_t itemsize) {
    if (__builtin_add_overflow(total_segments_, segments, &total_segments_)) {
      total_segments_ = UINT64_MAX;
    }
    piece_counts_[fragment] = static_cast<uint32_t>(finder_.pieces().size());
    for (const Piece& piece : finder_.pieces()) {
      emitted_.push_back({source_->fragment(selection, piece.position), fragment});
      if (balance_ == nullptr) {
        used_source_parts_[source_->part(selection, piece.position)] = true;
      } else {
        bytes_.push_back(piece.elements * itemsize);
      }
    }
    return emitted_.size() <= limits_.max_transfer_regions &&
           total_segments_ <= limits_.max_total_lowered_segments;
  }

  void BalanceReads() {
    ReadBalancer(*source_, *balance_, *target_.placement, target_.part).Assign(emitted_, bytes_);
    const std::vector<uint32_t> part_of = PartsOfFragments(*source_->placement());
    for (const PlannedOperation& operation : emitted_) {
      used_source_parts_[part_of[operation.source]] = true;
    }
  }

  bool FindPieces(uint32_t f) {
    const PlacementFragment& fragment = target_.fragments[f];
    const uint32_t tensor = tensor_of_[f];
    const ReplicaSelection& selection =
        source_->SelectionFor(source_tensor_[tensor], fragment.rank.dp);
    return finder_.Find(source_->tiling(selection),
                        geometry::UncheckedBox(fragment.global_offset, fragment.local_shape),
                        static_cast<uint64_t>((*target_.tensors)[tensor]->itemsize));
  }

  // The contract's order: target fragments ascending, checks and limits as they are reached.
  Status NameTheFault() {
    Need reached;
    for (uint32_t f = 0; f < target_.fragments.size(); ++f) {
      const uint32_t source_tensor = source_tensor_[tensor_of_[f]];
      const TensorDescriptor& descriptor = *(*target_.tensors)[tensor_of_[f]];
      MC_RETURN_IF_ERROR(CheckCompatible(*(*source_->tensors())[source_tensor], descriptor));
      const PlacementFragment& fragment = target_.fragments[f];
      if (fragment.is_empty()) continue;
      if (!FindPieces(f)) {
        return InvalidArgument("target fragment is not fully covered: " +
                               fragment.placement_fragment_id + " of tensor " + fragment.tensor_id);
      }
      // A copy: what a limit's message needs looks for the pieces of all fragments.
      const std::vector<Piece> pieces(finder_.pieces().begin(), finder_.pieces().end());
      for (const Piece& piece : pieces) {
        reached.Add(piece.region.segment_count);
        MC_RETURN_IF_ERROR(CheckLimits(reached, piece.region.segment_count));
      }
    }
    return Internal("planning failed without a fault to name");
  }

  // What the whole plan takes, without keeping it.
  struct Need {
    uint64_t regions = 0;
    uint64_t segments = 0;

    void Add(uint64_t region_segments) {
      ++regions;
      if (__builtin_add_overflow(segments, region_segments, &segments)) segments = UINT64_MAX;
    }
  };
  Need CountNeed() {
    Need need;
    for (uint32_t f = 0; f < target_.fragments.size(); ++f) {
      if (target_.fragments[f].is_empty()) continue;
      FindPieces(f);
      for (const Piece& piece : finder_.pieces()) need.Add(piece.region.segment_count);
    }
    return need;
  }

  // The piece that was counted last took the plan over a limit, or none did.
  Status CheckLimits(const Need& reached, uint64_t region_segments) {
    if (reached.regions > limits_.max_transfer_regions) {
      return CheckRegionCount(CountNeed().regions, limits_);
    }
    MC_RETURN_IF_ERROR(CheckRegionSegments(region_segments, limits_));
    if (reached.segments > limits_.max_total_lowered_segments) {
      return CheckTotalSegments(reached.segments, CountNeed().segments, limits_);
    }
    return OkStatus();
  }

  Result<LogicalPlanPtr> Assemble() {
    uint64_t total_bytes = 0;
    for (const PlacementFragment& fragment : target_.fragments) {
      if (__builtin_add_overflow(total_bytes, fragment.nbytes, &total_bytes)) {
        return InvalidArgument("logical transfer plan exceeds 2^64 - 1 bytes");
      }
    }
    return PlanAssembler()
        .Source(source_->placement(), source_->stored(), source_->tensors())
        .Target(target_.placement, target_.part, target_.tensors)
        .Limits(limits_)
        .BalanceDigest(balance_ == nullptr ? "" : DigestOf(*balance_))
        .Operations(InTargetOrder(), {}, total_bytes, total_segments_)
        .Executors(SourceExecutors(), InRankOrder(target_.used_parts(), *target_.placement))
        .Build();
  }

  // A counting sort by target fragment; the pieces of one fragment stay in order.
  std::vector<PlannedOperation> InTargetOrder() {
    uint32_t next = 0;
    for (uint32_t& count : piece_counts_) next += std::exchange(count, next);
    std::vector<PlannedOperation> operations(emitted_.size());
    for (const PlannedOperation& operation : emitted_) {
      operations[piece_counts_[operation.target]++] = operation;
    }
    return operations;
  }

  std::vector<uint32_t> SourceExecutors() const {
    if (!source_->placement()) return {};
    std::vector<uint32_t> used;
    for (uint32_t p = 0; p < used_source_parts_.size(); ++p) {
      if (used_source_parts_[p]) used.push_back(p);
    }
    return InRankOrder(std::move(used), *source_->placement());
  }

  static std::vector<uint32_t> InRankOrder(std::vector<uint32_t> parts,
                                           const manifest::Placement& placement) {
    std::sort(parts.begin(), parts.end(), [&](uint32_t a, uint32_t b) {
      const manifest::ParallelRank& ra = placement.parts[a].rank;
      const manifest::ParallelRank& rb = placement.parts[b].rank;
      return std::tie(ra.dp, ra.pp, ra.ep, ra.tp) < std::tie(rb.dp, rb.pp, rb.ep, rb.tp);
    });
    return parts;
  }

  SourceIndexPtr source_;
  Target target_;
  PlanningLimits limits_;
  const Balance* const balance_;  // null: the contract's choice
  PieceFinder finder_;
  FragmentGroups groups_;
  std::vector<FragmentGroups::Entry> by_box_;
  std::vector<uint32_t> source_tensor_;  // per target tensor
  std::span<const uint32_t> tensor_of_;  // per target fragment
  std::vector<uint32_t> tensors_of_part_;
  FragmentsByTensor by_tensor_;
  std::vector<PlannedOperation> emitted_;
  std::vector<uint64_t> bytes_;         // of each emitted operation, where reads are balanced
  std::vector<uint32_t> piece_counts_;  // per target fragment
  std::vector<bool> used_source_parts_;
  uint64_t total_segments_ = 0;
  bool faulty_ = false;
};

}  // namespace

Result<LogicalPlanPtr> PlanFromIndex(const SourceIndexPtr& source,
                                     const manifest::PlacementPtr& target,
                                     const PlanningLimits& limits, const Balance* balance) {
  MC_RETURN_IF_ERROR(ValidatePlanningLimits(limits));
  return Planner(source, WholeTarget(target), limits, balance).Run();
}

Result<LogicalPlanPtr> PlanFromIndexToLocalTarget(const SourceIndexPtr& source,
                                                  const manifest::PlacementPtr& target,
                                                  std::optional<std::string_view> participant_id,
                                                  const PlanningLimits& limits,
                                                  const Balance* balance) {
  MC_RETURN_IF_ERROR(ValidatePlanningLimits(limits));
  MC_ASSIGN_OR_RETURN(Target local, LocalTarget(target, participant_id));
  return Planner(source, std::move(local), limits, balance).Run();
}

Result<LogicalPlanPtr> PlanPlacement(const manifest::PlacementPtr& source,
                                     const manifest::PlacementPtr& target,
                                     const PlanningLimits& limits, const Balance* balance) {
  return PlanFromIndex(IndexPlacement(source), target, limits, balance);
}

Result<LogicalPlanPtr> PlanPlacementToLocalTarget(const manifest::PlacementPtr& source,
                                                  const manifest::PlacementPtr& target,
                                                  std::optional<std::string_view> participant_id,
                                                  const PlanningLimits& limits,
                                                  const Balance* balance) {
  return PlanFromIndexToLocalTarget(IndexPlacement(source), target, participant_id, limits,
                                    balance);
}

Result<LogicalPlanPtr> PlanStored(const manifest::StoredManifestPtr& source,
                                  const manifest::PlacementPtr& target,
                                  const PlanningLimits& limits) {
  return PlanFromIndex(IndexStored(source), target, limits);
}

Result<LogicalPlanPtr> PlanStoredToLocalTarget(const manifest::StoredManifestPtr& source,
                                               const manifest::PlacementPtr& target,
                                               std::optional<std::string_view> participant_id,
                                               const PlanningLimits& limits) {
  return PlanFromIndexToLocalTarget(IndexStored(source), target, participant_id, limits);
}

}  // namespace mooncake::reshard
