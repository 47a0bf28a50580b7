// One participant's share of a placement.
#include <fmt/format.h>

#include <string_view>
#include <unordered_set>
#include <vector>

#include "manifest/field_checks.h"
#include "manifest/fragment_rules.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

Status RemakeMembers(PlacementPart& part) {
  for (TensorDescriptor& tensor : part.tensors) {
    MC_ASSIGN_OR_RETURN(tensor, MakeTensorDescriptor(std::move(tensor)));
  }
  std::unordered_set<std::string_view> extended;
  for (const TensorDescriptor& tensor : part.tensors) {
    if (tensor.extension != nullptr) extended.insert(tensor.tensor_id);
  }
  for (PlacementFragment& fragment : part.fragments) {
    std::string id = std::move(fragment.placement_fragment_id);
    const bool is_extended = !extended.empty() && extended.contains(fragment.tensor_id);
    MC_ASSIGN_OR_RETURN(fragment, MakePlacementFragment(
                                      std::move(fragment), std::move(id),
                                      is_extended ? FragmentForm::kExtended : FragmentForm::kBase));
  }
  return OkStatus();
}

Status CheckAllReferenced(const PlacementPart& part) {
  std::unordered_set<std::string_view> referenced;
  referenced.reserve(part.tensors.size());
  for (const PlacementFragment& fragment : part.fragments) referenced.insert(fragment.tensor_id);
  for (const TensorDescriptor& tensor : part.tensors) {
    if (referenced.contains(tensor.tensor_id)) continue;
    return InvalidArgument("placement part contains an unreferenced tensor: " + tensor.tensor_id);
  }
  return OkStatus();
}

}  // namespace

Result<PlacementPart> MakePart(PlacementPart fields) {
  MC_RETURN_IF_ERROR(RemakeMembers(fields));
  MC_RETURN_IF_ERROR(CheckText("resource_id", fields.resource_id));
  MC_RETURN_IF_ERROR(CheckText("revision", fields.revision));
  MC_RETURN_IF_ERROR(CheckText("placement_set_id", fields.placement_set_id));
  MC_RETURN_IF_ERROR(CheckText("topology_id", fields.topology_id));
  MC_RETURN_IF_ERROR(CheckText("participant_id", fields.participant_id));
  MC_RETURN_IF_ERROR(MakeParallelRank(fields.rank).status());
  for (const PlacementFragment& fragment : fields.fragments) {
    if (fragment.rank == fields.rank) continue;
    return InvalidArgument(
        fmt::format("placement part fragment rank differs from part rank: {}: {} and {}",
                    fragment.placement_fragment_id, ToText(fragment.rank), ToText(fields.rank)));
  }
  SortBy(fields.tensors, &TensorDescriptor::tensor_id);
  SortBy(fields.fragments, &PlacementFragment::placement_fragment_id);
  MC_RETURN_IF_ERROR(CheckAllReferenced(fields));
  MC_ASSIGN_OR_RETURN(const TensorPositions positions, TensorPositions::Of(fields.tensors));
  MC_ASSIGN_OR_RETURN(const std::vector<uint32_t> tensor_of,
                      CheckFragments(positions, fields.tensors, fields.fragments));
  MC_RETURN_IF_ERROR(CheckBoxesDisjoint(fields.tensors, fields.fragments, tensor_of));
  return fields;
}

}  // namespace mooncake::manifest
