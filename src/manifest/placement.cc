// Complete placements: the parts of all participants, checked together.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "manifest/coverage.h"
#include "manifest/extension.h"
#include "manifest/field_checks.h"
#include "manifest/fragment_rules.h"
#include "manifest/lookup.h"
#include "manifest/placement_identity.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

Status CheckParticipants(const ParallelTopology& topology,
                         const std::vector<PlacementPart>& parts) {
  if (const auto* twin = FirstTwin(parts, &PlacementPart::participant_id)) {
    return InvalidArgument("duplicate placement participant: " + twin->participant_id);
  }
  size_t next_part = 0;
  for (const TopologyParticipant& participant : topology.participants) {
    while (next_part < parts.size() &&
           parts[next_part].participant_id < participant.participant_id) {
      ++next_part;
    }
    if (next_part == parts.size() ||
        parts[next_part].participant_id != participant.participant_id) {
      return InvalidArgument("missing topology participant: " + participant.participant_id);
    }
  }
  for (const PlacementPart& part : parts) {
    if (FindParticipant(topology, part.participant_id) != nullptr) continue;
    return InvalidArgument("unknown topology participant: " + part.participant_id);
  }
  return OkStatus();
}

template <class T>
Status CheckSame(const PlacementPart& part, std::string_view field, const T& got,
                 const T& expected) {
  if (got == expected) return OkStatus();
  return InvalidArgument(fmt::format("placement part {} differs: {}: expected {}, got {}", field,
                                     part.participant_id, expected, got));
}

Status CheckPartBelongs(const PlacementFields& placement, const PlacementPart& part) {
  MC_RETURN_IF_ERROR(CheckSame(part, "resource_id", part.resource_id, placement.resource_id));
  MC_RETURN_IF_ERROR(CheckSame(part, "revision", part.revision, placement.revision));
  MC_RETURN_IF_ERROR(
      CheckSame(part, "weight_generation", part.weight_generation, placement.weight_generation));
  MC_RETURN_IF_ERROR(
      CheckSame(part, "placement_set_id", part.placement_set_id, placement.placement_set_id));
  MC_RETURN_IF_ERROR(
      CheckSame(part, "topology_id", part.topology_id, placement.topology.topology_id));
  const ParallelRank& rank = FindParticipant(placement.topology, part.participant_id)->rank;
  if (part.rank == rank) return OkStatus();
  return InvalidArgument(fmt::format("placement part rank differs from topology: {}: {} and {}",
                                     part.participant_id, ToText(part.rank), ToText(rank)));
}

Result<std::vector<TensorDescriptor>> MergedTensors(const std::vector<PlacementPart>& parts) {
  std::unordered_map<std::string_view, const TensorDescriptor*> merged;
  for (const PlacementPart& part : parts) {
    for (const TensorDescriptor& tensor : part.tensors) {
      const auto [it, added] = merged.try_emplace(tensor.tensor_id, &tensor);
      if (added || *it->second == tensor) continue;
      return InvalidArgument("placement part tensor descriptor mismatch: " + tensor.tensor_id);
    }
  }
  std::vector<TensorDescriptor> tensors;
  tensors.reserve(merged.size());
  for (const auto& [id, tensor] : merged) tensors.push_back(*tensor);
  SortBy(tensors, &TensorDescriptor::tensor_id);
  return tensors;
}

std::vector<PlacementFragment> MergedFragments(const std::vector<PlacementPart>& parts) {
  std::vector<const PlacementFragment*> merged;
  for (const PlacementPart& part : parts) {
    for (const PlacementFragment& fragment : part.fragments) merged.push_back(&fragment);
  }
  std::stable_sort(merged.begin(), merged.end(), [](const auto* a, const auto* b) {
    return a->placement_fragment_id < b->placement_fragment_id;
  });
  std::vector<PlacementFragment> fragments;
  fragments.reserve(merged.size());
  for (const PlacementFragment* fragment : merged) fragments.push_back(*fragment);
  return fragments;
}

// The rules over all parts together, on the merged tensors and fragments.
Status CheckUnion(const Placement& placement) {
  MC_ASSIGN_OR_RETURN(const TensorPositions positions, TensorPositions::Of(placement.tensors));
  MC_ASSIGN_OR_RETURN(const std::vector<uint32_t> tensor_of,
                      CheckFragments(positions, placement.tensors, placement.fragments));
  MC_RETURN_IF_ERROR(
      CheckAliasGroups(positions, placement.tensors, placement.fragments, tensor_of));
  MC_RETURN_IF_ERROR(CheckBoxesDisjoint(placement.tensors, placement.fragments, tensor_of));
  MC_RETURN_IF_ERROR(
      CheckCompleteCoverage(placement.topology, placement.tensors, placement.fragments, tensor_of));
  return CheckBlockScales(positions, placement.tensors, placement.fragments, tensor_of);
}

// The values a placement is made of, as if their own constructors had just run.
Status RemakeMembers(PlacementFields& fields) {
  std::string topology_id = std::move(fields.topology.topology_id);
  MC_ASSIGN_OR_RETURN(fields.topology,
                      MakeTopology(std::move(fields.topology), std::move(topology_id)));
  for (PlacementPart& part : fields.parts) {
    MC_ASSIGN_OR_RETURN(part, MakePart(std::move(part)));
  }
  return OkStatus();
}

}  // namespace

Result<PlacementPtr> MakePlacement(PlacementFields fields) {
  MC_RETURN_IF_ERROR(RemakeMembers(fields));
  MC_RETURN_IF_ERROR(CheckText("resource_id", fields.resource_id));
  MC_RETURN_IF_ERROR(CheckText("revision", fields.revision));
  MC_RETURN_IF_ERROR(CheckText("placement_set_id", fields.placement_set_id));
  if (fields.placement_id) MC_RETURN_IF_ERROR(CheckText("placement_id", *fields.placement_id));
  SortBy(fields.parts, &PlacementPart::participant_id);
  MC_RETURN_IF_ERROR(CheckParticipants(fields.topology, fields.parts));
  for (const PlacementPart& part : fields.parts) {
    MC_RETURN_IF_ERROR(CheckPartBelongs(fields, part));
  }
  auto placement = std::make_shared<Placement>();
  placement->resource_id = std::move(fields.resource_id);
  placement->revision = std::move(fields.revision);
  placement->weight_generation = fields.weight_generation;
  placement->placement_set_id = std::move(fields.placement_set_id);
  placement->topology = std::move(fields.topology);
  placement->parts = std::move(fields.parts);
  MC_ASSIGN_OR_RETURN(placement->tensors, MergedTensors(placement->parts));
  placement->fragments = MergedFragments(placement->parts);
  MC_RETURN_IF_ERROR(NormalizeOmitted(placement->tensors, fields.omitted_tensors));
  placement->omitted_tensors = std::move(fields.omitted_tensors);
  placement->extended = !placement->omitted_tensors.empty() ||
                        std::any_of(placement->tensors.begin(), placement->tensors.end(),
                                    [](const auto& t) { return t.extension != nullptr; });
  MC_RETURN_IF_ERROR(CheckUnion(*placement));
  SetPlacementIdAndDigest(*placement);
  if (fields.placement_id && *fields.placement_id != placement->placement_id) {
    return InvalidArgument(
        fmt::format("placement_id does not match canonical logical content: expected {}, got {}",
                    placement->placement_id, *fields.placement_id));
  }
  return PlacementPtr(std::move(placement));
}

}  // namespace mooncake::manifest
