// A placement from one list of all participants' fragments.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "manifest/field_checks.h"
#include "manifest/rank_order.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

// Position of the tensor of each fragment. Every fragment's tensor is in the inventory and every
// tensor has a fragment.
Result<std::vector<uint32_t>> MatchInventory(const std::vector<TensorDescriptor>& tensors,
                                             const std::vector<PlacementFragment>& fragments) {
  std::unordered_map<std::string_view, uint32_t> positions;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (!positions.try_emplace(tensors[i].tensor_id, i).second) {
      return InvalidArgument("duplicate tensor_id in placement tensors: " + tensors[i].tensor_id);
    }
  }
  std::vector<uint32_t> tensor_of;
  tensor_of.reserve(fragments.size());
  std::vector<bool> referenced(tensors.size());
  const SharedText* unknown = nullptr;
  for (const PlacementFragment& fragment : fragments) {
    const auto it = positions.find(fragment.tensor_id);
    if (it != positions.end()) {
      referenced[it->second] = true;
      tensor_of.push_back(it->second);
    } else if (unknown == nullptr || fragment.tensor_id < *unknown) {
      unknown = &fragment.tensor_id;
    }
  }
  if (unknown != nullptr) return InvalidArgument("unknown tensor_id: " + *unknown);
  const SharedText* unreferenced = nullptr;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (referenced[i]) continue;
    if (unreferenced == nullptr || tensors[i].tensor_id < *unreferenced) {
      unreferenced = &tensors[i].tensor_id;
    }
  }
  if (unreferenced != nullptr) {
    return InvalidArgument("global placement contains an unreferenced tensor: " + *unreferenced);
  }
  return tensor_of;
}

struct RankOrder {
  bool operator()(const ParallelRank& a, const ParallelRank& b) const { return RankLess(a, b); }
};

std::vector<PlacementPart> EmptyParts(const FragmentInventory& inventory) {
  std::vector<PlacementPart> parts;
  parts.reserve(inventory.topology.participants.size());
  for (const TopologyParticipant& participant : inventory.topology.participants) {
    parts.push_back({.resource_id = inventory.resource_id,
                     .revision = inventory.revision,
                     .weight_generation = inventory.weight_generation,
                     .placement_set_id = inventory.placement_set_id,
                     .topology_id = inventory.topology.topology_id,
                     .participant_id = participant.participant_id,
                     .rank = participant.rank,
                     .tensors = {},
                     .fragments = {}});
  }
  return parts;
}

// Moves every fragment into its rank's part, and gives each part the tensors it needs.
Status Distribute(FragmentInventory& inventory, std::span<const uint32_t> tensor_of,
                  std::vector<PlacementPart>& parts) {
  std::map<ParallelRank, size_t, RankOrder> part_of;
  for (size_t i = 0; i < parts.size(); ++i) part_of.emplace(parts[i].rank, i);
  std::vector<std::vector<uint32_t>> tensors_of_part(parts.size());
  for (size_t i = 0; i < inventory.fragments.size(); ++i) {
    PlacementFragment& fragment = inventory.fragments[i];
    const auto it = part_of.find(fragment.rank);
    if (it == part_of.end()) {
      return InvalidArgument(
          fmt::format("placement fragment rank has no topology participant: {}: {}",
                      fragment.placement_fragment_id, ToText(fragment.rank)));
    }
    tensors_of_part[it->second].push_back(tensor_of[i]);
    parts[it->second].fragments.push_back(std::move(fragment));
  }
  inventory.fragments = {};
  SharedTensors tensors(std::move(inventory.tensors));
  const std::vector<SharedTensors::Pointer>& shared = tensors.pointers();
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<uint32_t>& positions = tensors_of_part[i];
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    for (const uint32_t position : positions) {
      parts[i].tensors.push_back(shared[position]);
    }
  }
  return OkStatus();
}

}  // namespace

Result<PlacementPtr> PlacementFromFragments(FragmentInventory fields) {
  MC_ASSIGN_OR_RETURN(const std::vector<uint32_t> tensor_of,
                      MatchInventory(fields.tensors, fields.fragments));
  std::vector<PlacementPart> parts = EmptyParts(fields);
  MC_RETURN_IF_ERROR(Distribute(fields, tensor_of, parts));
  return MakePlacement({.resource_id = std::move(fields.resource_id),
                        .revision = std::move(fields.revision),
                        .weight_generation = fields.weight_generation,
                        .placement_set_id = std::move(fields.placement_set_id),
                        .topology = std::move(fields.topology),
                        .parts = std::move(parts),
                        .placement_id = std::move(fields.placement_id),
                        .omitted_tensors = std::move(fields.omitted_tensors)});
}

}  // namespace mooncake::manifest
