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
#include "manifest/part.h"
#include "manifest/placement_identity.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

// `parts` are sorted by participant.
Status CheckParticipants(const ParallelTopology& topology, const std::vector<MadePart>& parts) {
  const auto id_of = [&parts](size_t i) -> const std::string& {
    return parts[i].part.participant_id;
  };
  for (size_t i = 1; i < parts.size(); ++i) {
    if (id_of(i) == id_of(i - 1)) {
      return InvalidArgument("duplicate placement participant: " + id_of(i));
    }
  }
  size_t next_part = 0;
  for (const TopologyParticipant& participant : topology.participants) {
    while (next_part < parts.size() && id_of(next_part) < participant.participant_id) ++next_part;
    if (next_part == parts.size() || id_of(next_part) != participant.participant_id) {
      return InvalidArgument("missing topology participant: " + participant.participant_id);
    }
  }
  for (const MadePart& made : parts) {
    if (FindParticipant(topology, made.part.participant_id) != nullptr) continue;
    return InvalidArgument("unknown topology participant: " + made.part.participant_id);
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

// The distinct tensors of all parts, and where each of `made` is among them.
struct MergedTensors {
  std::vector<TensorDescriptor> tensors;  // sorted by id
  std::vector<uint32_t> position_of;      // by the number that the parts know a tensor by
};

// Parts that were made apart have equal tensors of their own: they take those of the first part.
void ShareTensors(const std::vector<uint32_t>& first_of, const MadeTensors& made, MadePart& part) {
  std::vector<bool> replaced(part.tensor_numbers.size());
  bool any = false;
  for (size_t i = 0; i < part.tensor_numbers.size(); ++i) {
    uint32_t& number = part.tensor_numbers[i];
    if (first_of[number] == number) continue;
    number = first_of[number];
    part.part.tensors.replace(i, made[number]);
    replaced[i] = any = true;
  }
  if (!any) return;
  for (size_t f = 0; f < part.tensor_of.size(); ++f) {
    const uint32_t tensor = part.tensor_of[f];
    if (!replaced[tensor]) continue;
    part.part.fragments[f].tensor_id = part.part.tensors[tensor].tensor_id;
  }
}

Result<MergedTensors> MergeTensors(std::vector<MadePart>& parts, const MadeTensors& made) {
  constexpr uint32_t kUnseen = UINT32_MAX;
  std::unordered_map<std::string_view, uint32_t> by_id;
  std::vector<uint32_t> first_of(made.size(), kUnseen);  // the first number of the same tensor
  std::vector<uint32_t> distinct;
  for (const MadePart& part : parts) {
    for (const uint32_t number : part.tensor_numbers) {
      if (first_of[number] != kUnseen) continue;
      const auto [it, added] = by_id.try_emplace(made[number]->tensor_id, number);
      if (!added && !(*made[it->second] == *made[number])) {
        return InvalidArgument("placement part tensor descriptor mismatch: " +
                               made[number]->tensor_id);
      }
      first_of[number] = it->second;
      if (added) distinct.push_back(number);
    }
  }
  MergedTensors merged;
  merged.tensors.reserve(distinct.size());
  merged.position_of.assign(made.size(), 0);
  for (const uint32_t position : PositionsById(distinct.size(), [&](size_t i) {
         return std::string_view(made[distinct[i]]->tensor_id);
       })) {
    merged.position_of[distinct[position]] = static_cast<uint32_t>(merged.tensors.size());
    merged.tensors.push_back(*made[distinct[position]]);
  }
  for (MadePart& part : parts) ShareTensors(first_of, made, part);
  return merged;
}

// Moves the parts into the placement and lists their fragments by id, each with its tensor.
Status TakeParts(std::vector<MadePart> made, const std::vector<uint32_t>& position_of,
                 Placement& placement) {
  size_t count = 0;
  for (const MadePart& part : made) count += part.part.fragments.size();
  std::vector<const PlacementFragment*> fragments;
  std::vector<uint32_t> tensor_of;
  fragments.reserve(count);
  tensor_of.reserve(count);
  placement.parts.reserve(made.size());
  for (MadePart& part : made) {
    placement.parts.push_back(std::move(part.part));
    for (const PlacementFragment& fragment : placement.parts.back().fragments) {
      fragments.push_back(&fragment);
    }
    for (const uint32_t own : part.tensor_of) {
      tensor_of.push_back(position_of[part.tensor_numbers[own]]);
    }
  }
  made.clear();
  std::vector<const PlacementFragment*> sorted;
  sorted.reserve(count);
  placement.tensor_of.reserve(count);
  for (const uint32_t position : PositionsById(count, [&fragments](size_t i) {
         return std::string_view(fragments[i]->placement_fragment_id);
       })) {
    const PlacementFragment* fragment = fragments[position];
    if (!sorted.empty() &&
        sorted.back()->placement_fragment_id == fragment->placement_fragment_id) {
      return InvalidArgument("duplicate fragment_id: " + fragment->placement_fragment_id);
    }
    sorted.push_back(fragment);
    placement.tensor_of.push_back(tensor_of[position]);
  }
  placement.fragments = FragmentRefs(std::move(sorted));
  return OkStatus();
}

// The rules over all parts together; those of the parts hold.
Status CheckUnion(const Placement& placement, bool any_aliases) {
  MC_ASSIGN_OR_RETURN(const TensorPositions positions, TensorPositions::Of(placement.tensors));
  if (any_aliases) {
    MC_RETURN_IF_ERROR(CheckAliasGroups(positions, placement.fragments, placement.tensor_of));
  }
  MC_RETURN_IF_ERROR(CheckCompleteCoverage(placement.topology, placement.tensors,
                                           placement.fragments, placement.tensor_of));
  return CheckBlockScales(positions, placement.tensors, placement.fragments, placement.tensor_of);
}

// The values a placement is made of, as if their own constructors had just run.
Result<std::vector<MadePart>> RemakeMembers(PlacementFields& fields, MadeTensors& tensors) {
  std::string topology_id = std::move(fields.topology.topology_id);
  MC_ASSIGN_OR_RETURN(fields.topology,
                      MakeTopology(std::move(fields.topology), std::move(topology_id)));
  std::vector<MadePart> made;
  made.reserve(fields.parts.size());
  for (PlacementPart& part : fields.parts) {
    MC_ASSIGN_OR_RETURN(MadePart one, MakePart(std::move(part), tensors));
    made.push_back(std::move(one));
  }
  std::stable_sort(made.begin(), made.end(), [](const MadePart& a, const MadePart& b) {
    return a.part.participant_id < b.part.participant_id;
  });
  return made;
}

}  // namespace

Result<PlacementPtr> MakePlacement(PlacementFields fields) {
  MadeTensors made_tensors;
  MC_ASSIGN_OR_RETURN(std::vector<MadePart> parts, RemakeMembers(fields, made_tensors));
  MC_RETURN_IF_ERROR(CheckText("resource_id", fields.resource_id));
  MC_RETURN_IF_ERROR(CheckText("revision", fields.revision));
  MC_RETURN_IF_ERROR(CheckText("placement_set_id", fields.placement_set_id));
  if (fields.placement_id) MC_RETURN_IF_ERROR(CheckText("placement_id", *fields.placement_id));
  MC_RETURN_IF_ERROR(CheckParticipants(fields.topology, parts));
  bool any_aliases = false;
  for (const MadePart& made : parts) {
    MC_RETURN_IF_ERROR(CheckPartBelongs(fields, made.part));
    any_aliases = any_aliases || made.any_aliases;
  }
  auto placement = std::make_shared<Placement>();
  placement->resource_id = std::move(fields.resource_id);
  placement->revision = std::move(fields.revision);
  placement->weight_generation = fields.weight_generation;
  placement->placement_set_id = std::move(fields.placement_set_id);
  placement->topology = std::move(fields.topology);
  MC_ASSIGN_OR_RETURN(MergedTensors merged, MergeTensors(parts, made_tensors));
  placement->tensors = std::move(merged.tensors);
  MC_RETURN_IF_ERROR(TakeParts(std::move(parts), merged.position_of, *placement));
  MC_RETURN_IF_ERROR(NormalizeOmitted(placement->tensors, fields.omitted_tensors));
  placement->omitted_tensors = std::move(fields.omitted_tensors);
  placement->extended = !placement->omitted_tensors.empty() ||
                        std::any_of(placement->tensors.begin(), placement->tensors.end(),
                                    [](const auto& t) { return t.extension != nullptr; });
  MC_RETURN_IF_ERROR(CheckUnion(*placement, any_aliases));
  SetPlacementIdAndDigest(*placement);
  if (fields.placement_id && *fields.placement_id != placement->placement_id) {
    return InvalidArgument(
        fmt::format("placement_id does not match canonical logical content: expected {}, got {}",
                    placement->placement_id, *fields.placement_id));
  }
  return PlacementPtr(std::move(placement));
}

}  // namespace mooncake::manifest
