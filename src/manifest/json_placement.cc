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

// The eight fields of a fragment, in sorted order; pipeline_stage_id may be absent.
constexpr size_t kPipelineStage = 4;
using FragmentFields = std::array<JsonValue, 8>;
constexpr std::array<std::string_view, 8> kFragmentKeys = {
    "aliases",           "global_offset",         "local_shape", "nbytes",
    "pipeline_stage_id", "placement_fragment_id", "rank",        "tensor_id"};

Result<FragmentFields> ReadFragmentFields(JsonValue value, const Label& label,
                                          bool& has_pipeline_stage) {
  static constexpr std::array<std::string_view, 7> kWithoutStage = {
      "aliases", "global_offset", "local_shape", "nbytes", "placement_fragment_id",
      "rank",    "tensor_id"};
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  FragmentFields fields;
  has_pipeline_stage = MatchKeys(value, kFragmentKeys, fields);
  if (has_pipeline_stage) return fields;
  std::array<JsonValue, 7> others;
  if (!MatchKeys(value, kWithoutStage, others)) {
    return InvalidArgument(label.Text() + " has an invalid schema");
  }
  for (size_t i = 0; i < others.size(); ++i) fields[i < kPipelineStage ? i : i + 1] = others[i];
  return fields;
}

Result<PlacementFragment> ReadFragment(JsonValue value, int64_t index) {
  const Label label{"placement fragment", index};
  bool has_pipeline_stage = false;
  MC_ASSIGN_OR_RETURN(const FragmentFields fields,
                      ReadFragmentFields(value, label, has_pipeline_stage));
  const auto field_label = [&label](size_t i) { return label.Field(kFragmentKeys[i]); };
  PlacementFragment fragment;
  MC_ASSIGN_OR_RETURN(fragment.aliases, ReadTexts(fields[0], field_label(0)));
  MC_ASSIGN_OR_RETURN(fragment.global_offset, ReadIntegers(fields[1], field_label(1), 0));
  MC_ASSIGN_OR_RETURN(fragment.local_shape, ReadIntegers(fields[2], field_label(2), 1));
  MC_ASSIGN_OR_RETURN(fragment.nbytes, ReadUnsigned(fields[3], field_label(3), 1));
  if (has_pipeline_stage) {
    MC_ASSIGN_OR_RETURN(fragment.pipeline_stage_id,
                        ReadOptionalInteger(fields[4], field_label(4), 0));
  }
  MC_ASSIGN_OR_RETURN(std::string id, ReadText(fields[5], field_label(5)));
  MC_ASSIGN_OR_RETURN(fragment.rank, ReadRank(fields[6], {"placement rank", index}));
  MC_ASSIGN_OR_RETURN(fragment.tensor_id, ReadText(fields[7], field_label(7)));
  return MakePlacementFragment(std::move(fragment), std::move(id));
}

// A part without what it shares with its placement: resource, topology and tensors.
Result<PlacementPart> ReadPart(JsonValue value, int64_t index) {
  static constexpr std::array<std::string_view, 3> kKeys = {"fragments", "participant_id", "rank"};
  const Label label{"placement part", index};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  PlacementPart part;
  MC_ASSIGN_OR_RETURN(part.participant_id, ReadText(fields[1], label.Field("participant_id")));
  MC_ASSIGN_OR_RETURN(part.rank, ReadRank(fields[2], {"placement part rank", index}));
  MC_ASSIGN_OR_RETURN(part.fragments, ReadArray<PlacementFragment>(
                                          fields[0], label.Field("fragments"), ReadFragment));
  return part;
}

// Gives every part the tensors its fragments belong to.
Status AttachTensors(const std::vector<TensorDescriptor>& tensors,
                     std::vector<PlacementPart>& parts) {
  struct Entry {
    const TensorDescriptor* tensor;
    size_t used_by = 0;  // 1 + the last part that took the tensor
  };
  std::unordered_map<std::string_view, Entry> by_id;
  by_id.reserve(tensors.size());
  for (const TensorDescriptor& tensor : tensors) {
    if (!by_id.try_emplace(tensor.tensor_id, Entry{&tensor}).second) {
      return InvalidArgument("duplicate tensor_id in placement JSON: " + tensor.tensor_id);
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const PlacementFragment& fragment : parts[i].fragments) {
      const auto it = by_id.find(fragment.tensor_id);
      if (it == by_id.end()) {
        return InvalidArgument("unknown tensor_id in placement part: " + fragment.tensor_id);
      }
      if (it->second.used_by == i + 1) continue;
      it->second.used_by = i + 1;
      parts[i].tensors.push_back(*it->second.tensor);
    }
  }
  for (const TensorDescriptor& tensor : tensors) {
    if (by_id.at(tensor.tensor_id).used_by > 0) continue;
    return InvalidArgument("placement JSON contains an unreferenced tensor: " + tensor.tensor_id);
  }
  return OkStatus();
}

Result<PlacementFields> ReadPlacement(JsonValue root) {
  static constexpr std::array<std::string_view, 9> kKeys = {
      "parts",    "placement_id", "placement_set_id", "resource_id",      "resource_kind",
      "revision", "tensors",      "topology",         "weight_generation"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(root, {kWhat}, kKeys));
  MC_RETURN_IF_ERROR(CheckResourceKind(fields[4], kWhat));
  PlacementFields placement;
  MC_ASSIGN_OR_RETURN(placement.placement_id, ReadText(fields[1], {"placement_id"}));
  MC_ASSIGN_OR_RETURN(placement.placement_set_id, ReadText(fields[2], {"placement_set_id"}));
  MC_ASSIGN_OR_RETURN(placement.resource_id, ReadText(fields[3], {"resource_id"}));
  MC_ASSIGN_OR_RETURN(placement.revision, ReadText(fields[5], {"revision"}));
  MC_ASSIGN_OR_RETURN(placement.weight_generation,
                      ReadUnsigned(fields[8], {"weight_generation"}, 0));
  MC_ASSIGN_OR_RETURN(placement.topology, ReadTopology(fields[7]));
  MC_ASSIGN_OR_RETURN(
      const std::vector<TensorDescriptor> tensors,
      ReadArray<TensorDescriptor>(fields[6], {"placement tensors"}, [](JsonValue value, int64_t i) {
        return ReadTensor(value, {"placement tensor", i}, {"placement tensor parallel axis"});
      }));
  MC_ASSIGN_OR_RETURN(placement.parts,
                      ReadArray<PlacementPart>(fields[0], {"placement parts"}, ReadPart));
  MC_RETURN_IF_ERROR(AttachTensors(tensors, placement.parts));
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
  PlacementFields placement;
  {
    MC_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(kWhat, text));
    MC_ASSIGN_OR_RETURN(placement, ReadPlacement(document.root()));
  }
  return MakePlacement(std::move(placement));
}

}  // namespace mooncake::manifest
