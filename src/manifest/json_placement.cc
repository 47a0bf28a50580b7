// Placements from their wire JSON.
#include <fmt/format.h>

#include <unordered_map>
#include <utility>
#include <vector>

#include "manifest/json.h"
#include "manifest/json_fields.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

constexpr std::string_view kWhat = "placement manifest";

Result<TopologyParticipant> ReadParticipant(JsonValue value, int64_t index) {
  static constexpr std::array<std::string_view, 2> kKeys = {"participant_id", "rank"};
  const Label label{"parallel topology participant", index};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  TopologyParticipant participant;
  MC_ASSIGN_OR_RETURN(participant.participant_id,
                      ReadText(fields[0], label.Field("participant_id")));
  MC_ASSIGN_OR_RETURN(participant.rank, ReadRank(fields[1], {"parallel topology rank", index}));
  return participant;
}

Result<ParallelTopology> ReadTopology(JsonValue value) {
  static constexpr std::array<std::string_view, 6> kKeys = {
      "dp_size", "ep_size", "participants", "pp_size", "topology_id", "tp_size"};
  const Label label{"parallel topology"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  ParallelTopology topology;
  MC_ASSIGN_OR_RETURN(topology.dp_size, ReadInteger(fields[0], label.Field("dp_size"), 1));
  MC_ASSIGN_OR_RETURN(topology.ep_size, ReadInteger(fields[1], label.Field("ep_size"), 1));
  MC_ASSIGN_OR_RETURN(
      topology.participants,
      ReadArray<TopologyParticipant>(fields[2], label.Field("participants"), ReadParticipant));
  MC_ASSIGN_OR_RETURN(topology.pp_size, ReadInteger(fields[3], label.Field("pp_size"), 1));
  MC_ASSIGN_OR_RETURN(topology.tp_size, ReadInteger(fields[5], label.Field("tp_size"), 1));
  MC_ASSIGN_OR_RETURN(std::string topology_id, ReadText(fields[4], label.Field("topology_id")));
  return MakeTopology(std::move(topology), std::move(topology_id));
}

// A fragment's fields in sorted order; pipeline_stage_id may be absent, slot is of the extended
// form.
constexpr size_t kPipelineStage = 4;
constexpr size_t kSlot = 8;
using FragmentFields = std::array<JsonValue, 9>;
constexpr std::array<std::string_view, 9> kFragmentKeys = {
    "aliases", "global_offset",     "local_shape",
    "nbytes",  "pipeline_stage_id", "placement_fragment_id",
    "rank",    "tensor_id",         "slot"};

// What a fragment is read with beside its JSON.
struct FragmentSchema {
  bool extended = false;  // the document's form
  bool has_pipeline_stage = false;
  bool has_slot = false;
};

Result<FragmentFields> ReadFragmentFields(JsonValue value, const Label& label,
                                          FragmentSchema& schema) {
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  schema.has_pipeline_stage = FindKey(value, kFragmentKeys[kPipelineStage]).has_value();
  schema.has_slot = schema.extended && FindKey(value, kFragmentKeys[kSlot]).has_value();
  std::array<std::string_view, kFragmentKeys.size()> keys;
  std::array<size_t, kFragmentKeys.size()> positions;
  size_t count = 0;
  for (size_t i = 0; i < kFragmentKeys.size(); ++i) {
    if (i == kPipelineStage && !schema.has_pipeline_stage) continue;
    if (i == kSlot && !schema.has_slot) continue;
    keys[count] = kFragmentKeys[i];
    positions[count++] = i;
  }
  std::array<JsonValue, kFragmentKeys.size()> values;
  if (!MatchKeys(value, std::span(keys).first(count), values)) {
    return InvalidArgument(label.Text() + " has an invalid schema");
  }
  FragmentFields fields;
  for (size_t i = 0; i < count; ++i) fields[positions[i]] = values[i];
  return fields;
}

Result<PlacementFragment> ReadFragment(JsonValue value, int64_t index, bool extended) {
  const Label label{"placement fragment", index};
  FragmentSchema schema{.extended = extended};
  MC_ASSIGN_OR_RETURN(const FragmentFields fields, ReadFragmentFields(value, label, schema));
  const auto field_label = [&label](size_t i) { return label.Field(kFragmentKeys[i]); };
  const int64_t least = extended ? 0 : 1;  // its tensor decides when the part is made
  PlacementFragment fragment;
  MC_ASSIGN_OR_RETURN(fragment.aliases, ReadTexts(fields[0], field_label(0)));
  MC_ASSIGN_OR_RETURN(fragment.global_offset, ReadIntegers(fields[1], field_label(1), 0));
  MC_ASSIGN_OR_RETURN(fragment.local_shape, ReadIntegers(fields[2], field_label(2), least));
  MC_ASSIGN_OR_RETURN(fragment.nbytes,
                      ReadUnsigned(fields[3], field_label(3), static_cast<uint64_t>(least)));
  if (schema.has_pipeline_stage) {
    MC_ASSIGN_OR_RETURN(fragment.pipeline_stage_id,
                        ReadOptionalInteger(fields[4], field_label(4), 0));
  }
  MC_ASSIGN_OR_RETURN(std::string id, ReadText(fields[5], field_label(5)));
  MC_ASSIGN_OR_RETURN(fragment.rank, ReadRank(fields[6], {"placement rank", index}));
  MC_ASSIGN_OR_RETURN(fragment.tensor_id, ReadText(fields[7], field_label(7)));
  if (schema.has_slot) {
    MC_ASSIGN_OR_RETURN(fragment.slot, ReadInteger(fields[kSlot], field_label(kSlot), 0));
  }
  return MakePlacementFragment(std::move(fragment), std::move(id),
                               extended ? FragmentForm::kExtended : FragmentForm::kBase);
}

// A part without what it shares with its placement: resource, topology and tensors.
Result<PlacementPart> ReadPart(JsonValue value, int64_t index, bool extended) {
  static constexpr std::array<std::string_view, 3> kKeys = {"fragments", "participant_id", "rank"};
  const Label label{"placement part", index};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  PlacementPart part;
  MC_ASSIGN_OR_RETURN(part.participant_id, ReadText(fields[1], label.Field("participant_id")));
  MC_ASSIGN_OR_RETURN(part.rank, ReadRank(fields[2], {"placement part rank", index}));
  MC_ASSIGN_OR_RETURN(part.fragments,
                      ReadArray<PlacementFragment>(fields[0], label.Field("fragments"),
                                                   [extended](JsonValue fragment, int64_t i) {
                                                     return ReadFragment(fragment, i, extended);
                                                   }));
  return part;
}

// Gives every part the tensors its fragments belong to.
Status AttachTensors(const SharedTensors& tensors, std::vector<PlacementPart>& parts) {
  struct Entry {
    SharedTensors::Pointer tensor;
    size_t used_by = 0;  // 1 + the last part that took the tensor
  };
  std::unordered_map<std::string_view, Entry> by_id;
  by_id.reserve(tensors.size());
  for (const SharedTensors::Pointer& tensor : tensors.pointers()) {
    if (!by_id.try_emplace(tensor->tensor_id, Entry{tensor}).second) {
      return InvalidArgument("duplicate tensor_id in placement JSON: " + tensor->tensor_id);
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (PlacementFragment& fragment : parts[i].fragments) {
      const auto it = by_id.find(fragment.tensor_id);
      if (it == by_id.end()) {
        return InvalidArgument("unknown tensor_id in placement part: " + fragment.tensor_id);
      }
      fragment.tensor_id = it->second.tensor->tensor_id;  // one text for all ranks
      if (it->second.used_by == i + 1) continue;
      it->second.used_by = i + 1;
      parts[i].tensors.push_back(it->second.tensor);
    }
  }
  for (const TensorDescriptor& tensor : tensors) {
    if (by_id.at(tensor.tensor_id).used_by > 0) continue;
    return InvalidArgument("placement JSON contains an unreferenced tensor: " + tensor.tensor_id);
  }
  return OkStatus();
}

// Sets `extended` to the document's form.
Result<PlacementFields> ReadPlacement(JsonValue root, bool& extended) {
  static constexpr std::array<std::string_view, 11> kKeys = {
      "parts",   "placement_id", "placement_set_id",  "resource_id",   "resource_kind",  "revision",
      "tensors", "topology",     "weight_generation", "extended_form", "omitted_tensors"};
  MC_RETURN_IF_ERROR(CheckObject(root, {kWhat}));
  extended = FindKey(root, "extended_form").has_value();
  std::array<JsonValue, kKeys.size()> fields;
  if (!MatchKeys(root, std::span(kKeys).first(extended ? 11 : 9), fields)) {
    return InvalidArgument(std::string(kWhat) + " schema fields do not match contract");
  }
  MC_RETURN_IF_ERROR(CheckResourceKind(fields[4], kWhat));
  PlacementFields placement;
  if (extended) {
    MC_RETURN_IF_ERROR(CheckExtendedForm(fields[9], kWhat));
    MC_ASSIGN_OR_RETURN(placement.omitted_tensors, ReadTexts(fields[10], {"omitted_tensors"}));
  }
  MC_ASSIGN_OR_RETURN(placement.placement_id, ReadText(fields[1], {"placement_id"}));
  MC_ASSIGN_OR_RETURN(placement.placement_set_id, ReadText(fields[2], {"placement_set_id"}));
  MC_ASSIGN_OR_RETURN(placement.resource_id, ReadText(fields[3], {"resource_id"}));
  MC_ASSIGN_OR_RETURN(placement.revision, ReadText(fields[5], {"revision"}));
  MC_ASSIGN_OR_RETURN(placement.weight_generation,
                      ReadUnsigned(fields[8], {"weight_generation"}, 0));
  MC_ASSIGN_OR_RETURN(placement.topology, ReadTopology(fields[7]));
  MC_ASSIGN_OR_RETURN(std::vector<TensorDescriptor> tensors,
                      ReadArray<TensorDescriptor>(
                          fields[6], {"placement tensors"}, [extended](JsonValue value, int64_t i) {
                            return ReadTensor(value, {"placement tensor", i},
                                              {"placement tensor parallel axis"}, extended);
                          }));
  MC_ASSIGN_OR_RETURN(placement.parts,
                      ReadArray<PlacementPart>(fields[0], {"placement parts"},
                                               [extended](JsonValue value, int64_t i) {
                                                 return ReadPart(value, i, extended);
                                               }));
  MC_RETURN_IF_ERROR(AttachTensors(SharedTensors(std::move(tensors)), placement.parts));
  for (PlacementPart& part : placement.parts) {
    part.resource_id = placement.resource_id;
    part.revision = placement.revision;
    part.weight_generation = placement.weight_generation;
    part.placement_set_id = placement.placement_set_id;
    part.topology_id = placement.topology.topology_id;
  }
  return placement;
}

}  // namespace

Result<PlacementPtr> PlacementFromJson(std::string_view text) {
  PlacementFields fields;
  bool extended = false;
  {
    MC_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(kWhat, text));
    MC_ASSIGN_OR_RETURN(fields, ReadPlacement(document.root(), extended));
  }
  MC_ASSIGN_OR_RETURN(PlacementPtr placement, MakePlacement(std::move(fields)));
  if (extended == placement->extended) return placement;
  return InvalidArgument("placement manifest extended_form without an extended value");
}

}  // namespace mooncake::manifest
