#include "reshard/plan_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "geometry/cover.h"
#include "manifest/lookup.h"
#include "reshard/plan_assembler.h"
#include "reshard/tensor_table.h"

namespace mooncake::reshard {

using geometry::Box;
using manifest::Extents;
using manifest::PlacementFragment;
using manifest::PlacementPart;
using manifest::StoredFragment;
using manifest::TensorDescriptor;

namespace {

std::string SideName(PlanSide side) { return side == PlanSide::kSource ? "source" : "target"; }

const std::string& SourceIdOf(const TransferRegion& region) {
  if (const auto* stored = std::get_if<StoredFragment>(&region.source)) return stored->fragment_id;
  return std::get<PlacementFragment>(region.source).placement_fragment_id;
}

uint64_t SourceBytesOf(const TransferRegion& region) {
  return std::visit([](const auto& fragment) { return fragment.nbytes; }, region.source);
}

Box SourceBoxOf(const TransferRegion& region) {
  return std::visit(
      [](const auto& f) { return geometry::UncheckedBox(f.global_offset, f.local_shape); },
      region.source);
}

}  // namespace

Status ValidatePipelineRouteGroup(const PipelineRouteGroup& group) {
  const std::pair<const char*, std::optional<int64_t>> numbers[] = {
      {"source_pp", group.source_pp},
      {"source_pipeline_stage_id", group.source_pipeline_stage_id},
      {"target_pp", group.target_pp},
      {"target_pipeline_stage_id", group.target_pipeline_stage_id}};
  for (const auto& [name, value] : numbers) {
    if (value && *value < 0) {
      return InvalidArgument(std::string("pipeline route ") + name + " must be at least 0, got " +
                             std::to_string(*value));
    }
  }
  std::unordered_set<uint32_t> seen;
  for (uint32_t index : group.operation_indices) {
    if (!seen.insert(index).second) {
      return InvalidArgument("pipeline route operation_indices must not contain duplicates: " +
                             std::to_string(index));
    }
  }
  return OkStatus();
}

Status ValidatePlacementExecutor(const PlacementExecutor& executor) {
  if (executor.placement_id.empty()) {
    return InvalidArgument("placement executor placement_id must be a non-empty string");
  }
  if (executor.participant_id.empty()) {
    return InvalidArgument("placement executor participant_id must be a non-empty string");
  }
  if (executor.placement_fragment_ids.empty()) {
    return InvalidArgument("placement executor placement_fragment_ids must not be empty");
  }
  std::unordered_set<std::string_view> seen;
  for (const std::string& id : executor.placement_fragment_ids) {
    if (id.empty()) {
      return InvalidArgument(
          "placement executor placement_fragment_ids must contain non-empty strings");
    }
    if (!seen.insert(id).second) {
      return InvalidArgument(
          "placement executor placement_fragment_ids must not contain duplicates: " + id);
    }
  }
  return OkStatus();
}

std::vector<PlacementExecutor> ExecutorsOf(const LogicalPlan& plan, PlanSide side) {
  std::vector<PlacementExecutor> executors;
  const bool source_side = side == PlanSide::kSource;
  const auto& placement = source_side ? plan.source_placement() : plan.target_placement();
  for (uint32_t part : source_side ? plan.source_executors() : plan.target_executors()) {
    const PlacementPart& from = placement->parts[part];
    PlacementExecutor& executor = executors.emplace_back();
    executor.placement_id = placement->placement_id;
    executor.participant_id = from.participant_id;
    executor.rank = from.rank;
    for (const PlacementFragment& fragment : from.fragments) {
      executor.placement_fragment_ids.push_back(fragment.placement_fragment_id);
    }
  }
  return executors;
}

namespace {

template <class Fragments, class IdOf>
std::unordered_map<std::string_view, uint32_t> PositionsById(const Fragments& fragments,
                                                             IdOf id_of) {
  std::unordered_map<std::string_view, uint32_t> positions;
  positions.reserve(fragments.size());
  for (uint32_t i = 0; i < fragments.size(); ++i) positions.emplace(id_of(fragments[i]), i);
  return positions;
}

std::unordered_map<std::string_view, uint32_t> PositionsOf(manifest::FragmentSpan fragments) {
  return PositionsById(fragments,
                       [](const auto& f) { return std::string_view(f.placement_fragment_id); });
}

bool SameTensors(std::span<const TensorDescriptor> given,
                 std::span<const TensorDescriptor* const> wanted) {
  return std::equal(given.begin(), given.end(), wanted.begin(), wanted.end(),
                    [](const TensorDescriptor& a, const TensorDescriptor* b) { return a == *b; });
}

// Puts a plan together from fields that are checked one group after another.
class PlanChecker {
 public:
  explicit PlanChecker(const LogicalPlanFields& fields) : fields_(fields) {}

  Result<LogicalPlanPtr> Run() {
    MC_RETURN_IF_ERROR(CheckIdentity());
    MC_RETURN_IF_ERROR(CheckOperations());
    operations_.resize(fields_.operations.size());
    if (fields_.source_manifest) MC_RETURN_IF_ERROR(CheckStoredSource());
    MC_RETURN_IF_ERROR(CheckTarget());
    if (fields_.source_placement) MC_RETURN_IF_ERROR(CheckPlacementSource());
    return Assemble();
  }

 private:
  Status CheckIdentity() const {
    if (fields_.resource_id.empty()) {
      return InvalidArgument("logical transfer plan resource_id must be a non-empty string");
    }
    if (fields_.revision.empty()) {
      return InvalidArgument("logical transfer plan revision must be a non-empty string");
    }
    if (!fields_.target_placement) {
      return InvalidArgument("logical transfer plan target placement is invalid: none given");
    }
    MC_RETURN_IF_ERROR(ValidatePlanningLimits(fields_.planning_limits));
    MC_RETURN_IF_ERROR(CheckRegionCount(fields_.operations.size(), fields_.planning_limits));
    if ((fields_.source_placement == nullptr) == (fields_.source_manifest == nullptr)) {
      return InvalidArgument("logical transfer plan requires exactly one source provenance");
    }
    const manifest::Placement& target = *fields_.target_placement;
    MC_RETURN_IF_ERROR(CheckSide("target", target.resource_id, target.revision));
    const auto check_source = [&](const auto& source) {
      MC_RETURN_IF_ERROR(CheckSide("source", source.resource_id, source.revision));
      if (source.weight_generation == target.weight_generation) return OkStatus();
      return InvalidArgument("source and target weight_generation differ: " +
                             std::to_string(source.weight_generation) + " and " +
                             std::to_string(target.weight_generation));
    };
    return fields_.source_placement ? check_source(*fields_.source_placement)
                                    : check_source(*fields_.source_manifest);
  }

  Status CheckSide(const char* side, const std::string& resource_id,
                   const std::string& revision) const {
    if (resource_id != fields_.resource_id) {
      return InvalidArgument(std::string("logical plan and ") + side +
                             " resource_id differ: " + fields_.resource_id + " and " + resource_id);
    }
    if (revision != fields_.revision) {
      return InvalidArgument(std::string("logical plan and ") + side +
                             " revision differ: " + fields_.revision + " and " + revision);
    }
    return OkStatus();
  }

  Status CheckOperations() {
    const PlanningLimits& limits = fields_.planning_limits;
    uint64_t reached = 0;  // the first count over the limit
    for (const TransferRegion& operation : fields_.operations) {
      MC_RETURN_IF_ERROR(ValidateTransferRegion(operation));
      if (std::holds_alternative<StoredFragment>(operation.source) !=
          (fields_.source_manifest != nullptr)) {
        return InvalidArgument(
            "logical plan operation source does not match the plan's source kind: " +
            SourceIdOf(operation));
      }
      const geometry::StridedRegion region = StridedRegionOf(operation);
      MC_RETURN_IF_ERROR(
          geometry::ValidateBounds(region, SourceBytesOf(operation), operation.target.nbytes));
      const uint64_t segments = region.segment_count();
      MC_RETURN_IF_ERROR(CheckRegionSegments(segments, limits));
      if (__builtin_add_overflow(total_segments_, segments, &total_segments_)) {
        total_segments_ = UINT64_MAX;
      }
      if (reached == 0 && total_segments_ > limits.max_total_lowered_segments) {
        reached = total_segments_;
      }
      if (__builtin_add_overflow(total_bytes_, region.total_bytes(), &total_bytes_)) {
        return InvalidArgument("logical transfer plan exceeds 2^64 - 1 bytes");
      }
    }
    return CheckTotalSegments(reached == 0 ? total_segments_ : reached, total_segments_, limits);
  }

  Status CheckStoredSource() {
    const manifest::StoredManifest& manifest = *fields_.source_manifest;
    source_tensors_ = std::make_shared<const TensorList>(SortedTensors(manifest.tensors));
    if (!SameTensors(fields_.source_tensors, *source_tensors_)) {
      return InvalidArgument("logical plan source tensor catalog differs");
    }
    if (!fields_.source_executors.empty()) {
      return InvalidArgument("logical plan of a stored source has source executor metadata");
    }
    const auto positions =
        PositionsById(std::span<const StoredFragment>(manifest.fragments),
                      [](const auto& f) { return std::string_view(f.fragment_id); });
    for (size_t i = 0; i < fields_.operations.size(); ++i) {
      const auto& source = std::get<StoredFragment>(fields_.operations[i].source);
      const auto it = positions.find(source.fragment_id);
      if (it == positions.end() || !(manifest.fragments[it->second] == source)) {
        return InvalidArgument("logical plan and source manifest fragment snapshots differ: " +
                               source.fragment_id);
      }
      operations_[i].source = it->second;
    }
    return OkStatus();
  }

  Status CheckTarget() {
    const manifest::Placement& placement = *fields_.target_placement;
    const auto positions = PositionsOf(placement.fragments);
    for (size_t i = 0; i < fields_.operations.size(); ++i) {
      const PlacementFragment& target = fields_.operations[i].target;
      const auto it = positions.find(target.placement_fragment_id);
      if (it == positions.end() || !(placement.fragments[it->second] == target)) {
        return InvalidArgument("logical plan and target placement fragment snapshots differ: " +
                               target.placement_fragment_id);
      }
      operations_[i].target = it->second;
    }
    MC_ASSIGN_OR_RETURN(target_executors_,
                        CheckExecutors(PlanSide::kTarget, placement, fields_.target_executors));
    MC_RETURN_IF_ERROR(CheckTargetTensors());
    return CheckTargetCovered();
  }

  Status CheckPlacementSource() {
    const manifest::Placement& placement = *fields_.source_placement;
    source_tensors_ = std::make_shared<const TensorList>(PlacementTensors(placement.tensors));
    if (!SameTensors(fields_.source_tensors, *source_tensors_)) {
      return InvalidArgument("logical plan source tensor catalog differs from placement");
    }
    const auto positions = PositionsOf(placement.fragments);
    for (size_t i = 0; i < fields_.operations.size(); ++i) {
      const auto& source = std::get<PlacementFragment>(fields_.operations[i].source);
      const auto it = positions.find(source.placement_fragment_id);
      if (it == positions.end() || !(placement.fragments[it->second] == source)) {
        return InvalidArgument("logical plan and source placement fragment snapshots differ: " +
                               source.placement_fragment_id);
      }
      operations_[i].source = it->second;
    }
    MC_ASSIGN_OR_RETURN(source_executors_,
                        CheckExecutors(PlanSide::kSource, placement, fields_.source_executors));
    return OkStatus();
  }

  // The executors' parts, in the given order.
  Result<std::vector<uint32_t>> CheckExecutors(PlanSide side, const manifest::Placement& placement,
                                               std::span<const PlacementExecutor> executors) const {
    const std::string name = "logical " + SideName(side) + " executor ";
    if (executors.empty()) {
      return InvalidArgument("logical plan has no " + SideName(side) + " executor metadata");
    }
    const std::set<uint32_t> touched = TouchedParts(side, placement);
    std::set<std::string_view> seen;
    std::vector<uint32_t> parts;
    for (const PlacementExecutor& executor : executors) {
      MC_RETURN_IF_ERROR(ValidatePlacementExecutor(executor));
      if (executor.placement_id != placement.placement_id) {
        return InvalidArgument(name + "placement_id differs: " + executor.placement_id + " and " +
                               placement.placement_id);
      }
      if (!seen.insert(executor.participant_id).second) {
        return InvalidArgument("duplicate " + name + "participant: " + executor.participant_id);
      }
      const PlacementPart* part = manifest::FindPart(placement, executor.participant_id);
      if (part == nullptr) {
        return InvalidArgument(name +
                               "participant differs from placement: " + executor.participant_id);
      }
      if (!(executor.rank == part->rank)) {
        return InvalidArgument(name + "rank differs from placement: " + executor.participant_id);
      }
      if (!std::equal(executor.placement_fragment_ids.begin(),
                      executor.placement_fragment_ids.end(), part->fragments.begin(),
                      part->fragments.end(), [](const std::string& id, const auto& fragment) {
                        return id == fragment.placement_fragment_id;
                      })) {
        return InvalidArgument(name +
                               "fragment ids differ from placement: " + executor.participant_id);
      }
      const auto position = static_cast<uint32_t>(part - placement.parts.data());
      if (!touched.contains(position)) {
        return InvalidArgument(name + "has no operations: " + executor.participant_id);
      }
      parts.push_back(position);
    }
    for (uint32_t part : touched) {
      if (!seen.contains(placement.parts[part].participant_id)) {
        return InvalidArgument(name + "participants differ from operations: missing " +
                               placement.parts[part].participant_id);
      }
    }
    return parts;
  }

  std::set<uint32_t> TouchedParts(PlanSide side, const manifest::Placement& placement) const {
    std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, uint32_t> part_of_rank;
    const auto key = [](const manifest::ParallelRank& r) {
      return std::tuple(r.dp, r.tp, r.pp, r.ep);
    };
    for (uint32_t p = 0; p < placement.parts.size(); ++p) {
      part_of_rank[key(placement.parts[p].rank)] = p;
    }
    std::set<uint32_t> touched;
    for (const PlannedOperation& operation : operations_) {
      const uint32_t fragment = side == PlanSide::kSource ? operation.source : operation.target;
      touched.insert(part_of_rank.at(key(placement.fragments[fragment].rank)));
    }
    return touched;
  }

  Status CheckTargetTensors() {
    const manifest::Placement& placement = *fields_.target_placement;
    std::set<std::string_view> ids;
    for (uint32_t part : target_executors_) {
      for (const TensorDescriptor& tensor : placement.parts[part].tensors) {
        ids.insert(tensor.tensor_id);
      }
    }
    TensorList tensors;
    for (std::string_view id : ids) {
      tensors.push_back(manifest::FindTensor(placement.tensors, id));
    }
    if (!SameTensors(fields_.target_tensors, tensors)) {
      return InvalidArgument("logical target tensor catalog differs from placement");
    }
    target_tensors_ = std::make_shared<const TensorList>(std::move(tensors));
    return OkStatus();
  }

  Status CheckTargetCovered() {
    const manifest::Placement& placement = *fields_.target_placement;
    std::unordered_map<std::string_view, std::vector<Box>> overlaps;
    for (const TransferRegion& operation : fields_.operations) {
      overlaps[operation.target.placement_fragment_id].push_back(
          geometry::UncheckedBox(operation.overlap_offset, operation.overlap_shape));
    }
    for (uint32_t part : target_executors_) {
      for (const PlacementFragment& fragment : placement.parts[part].fragments) {
        if (fragment.is_empty()) continue;
        const Box whole = geometry::UncheckedBox(fragment.global_offset, fragment.local_shape);
        const auto it = overlaps.find(fragment.placement_fragment_id);
        if (it == overlaps.end() || !geometry::BoxesExactlyCover(whole, it->second)) {
          return InvalidArgument("logical target fragment is not fully covered: " +
                                 fragment.placement_fragment_id);
        }
      }
    }
    return OkStatus();
  }

  LogicalPlanPtr Assemble() {
    // Kept only where some operation copies less than its fragments share.
    std::vector<Box> overlaps;
    bool whole = true;
    for (const TransferRegion& operation : fields_.operations) {
      overlaps.push_back(geometry::UncheckedBox(operation.overlap_offset, operation.overlap_shape));
      const std::optional<Box> shared = SourceBoxOf(operation).Intersect(
          geometry::UncheckedBox(operation.target.global_offset, operation.target.local_shape));
      whole = whole && shared && *shared == overlaps.back();
    }
    if (whole) overlaps.clear();
    const std::optional<uint32_t> local_part = LocalizeTarget();
    return PlanAssembler()
        .Source(fields_.source_placement, fields_.source_manifest, source_tensors_)
        .Target(fields_.target_placement, local_part, target_tensors_)
        .Limits(fields_.planning_limits)
        .BalanceDigest(fields_.balance_digest)
        .Operations(std::move(operations_), std::move(overlaps), total_bytes_, total_segments_)
        .Executors(std::move(source_executors_), std::move(target_executors_))
        .Build();
  }

  // A plan that fills one part alone is a local plan, as the planner would have made it.
  std::optional<uint32_t> LocalizeTarget() {
    if (target_executors_.size() != 1) return std::nullopt;
    const manifest::Placement& placement = *fields_.target_placement;
    const PlacementPart& part = placement.parts[target_executors_[0]];
    const auto positions = PositionsOf(part.fragments);
    for (PlannedOperation& operation : operations_) {
      operation.target = positions.at(placement.fragments[operation.target].placement_fragment_id);
    }
    return target_executors_[0];
  }

  const LogicalPlanFields& fields_;
  std::vector<PlannedOperation> operations_;
  std::shared_ptr<const TensorList> source_tensors_;
  std::shared_ptr<const TensorList> target_tensors_;
  std::vector<uint32_t> source_executors_;
  std::vector<uint32_t> target_executors_;
  uint64_t total_bytes_ = 0;
  uint64_t total_segments_ = 0;
};

}  // namespace

Result<LogicalPlanPtr> MakeLogicalPlan(const LogicalPlanFields& fields) {
  return PlanChecker(fields).Run();
}

}  // namespace mooncake::reshard
