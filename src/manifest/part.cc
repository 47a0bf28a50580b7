// One participant's share of a placement.
#include "manifest/part.h"

#include <fmt/format.h>

#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "manifest/field_checks.h"
#include "manifest/fragment_rules.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

Status RemakeFragments(PlacementPart& part) {
  std::unordered_set<std::string_view> extended;
  for (const TensorDescriptor& tensor : part.tensors) {
    if (tensor.extension != nullptr) extended.insert(tensor.tensor_id);
  }
  for (PlacementFragment& fragment : part.fragments) {
    const bool is_extended = !extended.empty() && extended.contains(fragment.tensor_id);
    MC_RETURN_IF_ERROR(
        NormalizeFragment(fragment, is_extended ? FragmentForm::kExtended : FragmentForm::kBase));
    MC_RETURN_IF_ERROR(CheckText("placement_fragment_id", fragment.placement_fragment_id));
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

// Makes the part's tensors and sorts them by id.
Status MakeTensors(MadePart& made, MadeTensors& tensors) {
  SharedTensors& own = made.part.tensors;
  std::vector<uint32_t> numbers;
  numbers.reserve(own.size());
  for (size_t i = 0; i < own.size(); ++i) {
    MC_ASSIGN_OR_RETURN(const uint32_t number, tensors.Make(own.pointers()[i]));
    numbers.push_back(number);
  }
  const std::vector<uint32_t> order = PositionsById(
      own.size(), [&](size_t i) { return std::string_view(tensors[numbers[i]]->tensor_id); });
  made.tensor_numbers.reserve(own.size());
  for (const uint32_t position : order) made.tensor_numbers.push_back(numbers[position]);
  for (size_t i = 0; i < order.size(); ++i) own.replace(i, tensors[made.tensor_numbers[i]]);
  return OkStatus();
}

// Every fragment's tensor id is its tensor's own text from here on.
void ShareTensorIds(MadePart& made) {
  for (size_t i = 0; i < made.part.fragments.size(); ++i) {
    PlacementFragment& fragment = made.part.fragments[i];
    made.any_aliases = made.any_aliases || !fragment.aliases.empty();
    const SharedText& id = made.part.tensors[made.tensor_of[i]].tensor_id;
    if (!fragment.tensor_id.IsSameAs(id)) fragment.tensor_id = id;
  }
}

}  // namespace

Result<uint32_t> MadeTensors::Make(const Pointer& given) {
  if (const auto it = numbers_.find(given.get()); it != numbers_.end()) return it->second;
  MC_ASSIGN_OR_RETURN(TensorDescriptor made, MakeTensorDescriptor(*given));
  const auto number = static_cast<uint32_t>(made_.size());
  numbers_.emplace(given.get(), number);
  if (made == *given) {
    made_.push_back(given);
  } else {
    given_.push_back(given);
    made_.push_back(std::make_shared<const TensorDescriptor>(std::move(made)));
    numbers_.emplace(made_.back().get(), number);
  }
  return number;
}

Result<MadePart> MakePart(PlacementPart fields, MadeTensors& tensors) {
  MadePart made;
  made.part = std::move(fields);
  PlacementPart& part = made.part;
  MC_RETURN_IF_ERROR(MakeTensors(made, tensors));
  MC_RETURN_IF_ERROR(RemakeFragments(part));
  MC_RETURN_IF_ERROR(CheckText("resource_id", part.resource_id));
  MC_RETURN_IF_ERROR(CheckText("revision", part.revision));
  MC_RETURN_IF_ERROR(CheckText("placement_set_id", part.placement_set_id));
  MC_RETURN_IF_ERROR(CheckText("topology_id", part.topology_id));
  MC_RETURN_IF_ERROR(CheckText("participant_id", part.participant_id));
  MC_RETURN_IF_ERROR(MakeParallelRank(part.rank).status());
  for (const PlacementFragment& fragment : part.fragments) {
    if (fragment.rank == part.rank) continue;
    return InvalidArgument(
        fmt::format("placement part fragment rank differs from part rank: {}: {} and {}",
                    fragment.placement_fragment_id, ToText(fragment.rank), ToText(part.rank)));
  }
  SortBy(part.fragments, &PlacementFragment::placement_fragment_id);
  MC_RETURN_IF_ERROR(CheckAllReferenced(part));
  MC_ASSIGN_OR_RETURN(const TensorPositions positions, TensorPositions::Of(part.tensors));
  MC_ASSIGN_OR_RETURN(made.tensor_of, CheckPartFragments(positions, part.fragments));
  ShareTensorIds(made);
  return made;
}

Result<PlacementPart> MakePart(PlacementPart fields) {
  MadeTensors tensors;
  MC_ASSIGN_OR_RETURN(MadePart made, MakePart(std::move(fields), tensors));
  return std::move(made.part);
}

}  // namespace mooncake::manifest
