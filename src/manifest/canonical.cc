#include "manifest/canonical.h"

#include <optional>
#include <utility>

#include "base/digest.h"
#include "manifest/json_writer.h"
#include "manifest/placement_identity.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

constexpr std::string_view kIdPrefix = "sha256:";

// Keys below are in sorted order: that is what makes the text canonical.

void WriteOptional(JsonWriter& json, const std::optional<int64_t>& value) {
  if (value) {
    json.Number(*value);
  } else {
    json.Raw("null");
  }
}

void WriteRank(JsonWriter& json, const ParallelRank& rank) {
  json.Raw(R"({"dp":)");
  json.Number(rank.dp);
  json.Raw(R"(,"ep":)");
  json.Number(rank.ep);
  json.Raw(R"(,"pp":)");
  json.Number(rank.pp);
  json.Raw(R"(,"tp":)");
  json.Number(rank.tp);
  json.Raw("}");
}

void WriteAxis(JsonWriter& json, const ParallelAxis& axis) {
  json.Raw("{");
  if (axis.semantics == AxisSemantics::kSplit) {
    json.Raw(R"("dim":)");
    json.Number(axis.dim);
    json.Raw(",");
  }
  json.Raw(R"("kind":)");
  json.Text(AxisKindName(axis.kind));
  json.Raw(R"(,"semantics":)");
  json.Text(AxisSemanticsName(axis.semantics));
  json.Raw("}");
}

void WriteTensor(JsonWriter& json, const TensorDescriptor& tensor) {
  json.Raw(R"({"dtype":)");
  json.Text(tensor.dtype);
  json.Raw(R"(,"expert_id":)");
  WriteOptional(json, tensor.expert_id);
  json.Raw(R"(,"global_shape":)");
  json.Numbers(tensor.global_shape);
  json.Raw(R"(,"itemsize":)");
  json.Number(tensor.itemsize);
  json.Raw(R"(,"layer_id":)");
  WriteOptional(json, tensor.layer_id);
  json.Raw(R"(,"layout_fingerprint":)");
  json.Text(tensor.layout_fingerprint);
  json.Raw(R"(,"parallel_axes":)");
  json.Array(tensor.parallel_axes, [&json](const ParallelAxis& axis) { WriteAxis(json, axis); });
  json.Raw(R"(,"shard_dims":)");
  json.Numbers(tensor.shard_dims);
  json.Raw(R"(,"tensor_id":)");
  json.Text(tensor.tensor_id);
  json.Raw("}");
}

void WriteTensors(JsonWriter& json, const std::vector<TensorDescriptor>& tensors) {
  json.Array(tensors, [&json](const TensorDescriptor& tensor) { WriteTensor(json, tensor); });
}

// kHashed: what topology_id is made from.
enum class TopologyForm : uint8_t { kHashed, kFull };

void WriteTopology(JsonWriter& json, const ParallelTopology& topology, TopologyForm form) {
  json.Raw(R"({"dp_size":)");
  json.Number(topology.dp_size);
  json.Raw(R"(,"ep_size":)");
  json.Number(topology.ep_size);
  json.Raw(R"(,"participants":)");
  json.Array(topology.participants, [&json](const TopologyParticipant& participant) {
    json.Raw(R"({"participant_id":)");
    json.Text(participant.participant_id);
    json.Raw(R"(,"rank":)");
    WriteRank(json, participant.rank);
    json.Raw("}");
  });
  json.Raw(R"(,"pp_size":)");
  json.Number(topology.pp_size);
  if (form == TopologyForm::kHashed) {
    json.Raw(R"(,"schema":"weight-parallel-topology")");
  } else {
    json.Raw(R"(,"topology_id":)");
    json.Text(topology.topology_id);
  }
  json.Raw(R"(,"tp_size":)");
  json.Number(topology.tp_size);
  json.Raw("}");
}

// kHashed: what placement_fragment_id is made from.
enum class FragmentForm : uint8_t { kHashed, kFull };

void WriteFragment(JsonWriter& json, const PlacementFragment& fragment, FragmentForm form) {
  json.Raw(R"({"aliases":)");
  json.Texts(fragment.aliases);
  json.Raw(R"(,"global_offset":)");
  json.Numbers(fragment.global_offset);
  json.Raw(R"(,"local_shape":)");
  json.Numbers(fragment.local_shape);
  json.Raw(R"(,"nbytes":)");
  json.Number(fragment.nbytes);
  if (fragment.pipeline_stage_id) {
    json.Raw(R"(,"pipeline_stage_id":)");
    json.Number(*fragment.pipeline_stage_id);
  }
  if (form == FragmentForm::kFull) {
    json.Raw(R"(,"placement_fragment_id":)");
    json.Text(fragment.placement_fragment_id);
  }
  json.Raw(R"(,"rank":)");
  WriteRank(json, fragment.rank);
  if (form == FragmentForm::kHashed) json.Raw(R"(,"schema":"weight-placement-fragment")");
  json.Raw(R"(,"tensor_id":)");
  json.Text(fragment.tensor_id);
  json.Raw("}");
}

// '{"parts":[...],"placement_': the common beginning of what placement_id and digest are made from.
void WriteParts(JsonWriter& json, const Placement& placement) {
  json.Raw(R"({"parts":)");
  json.Array(placement.parts, [&json](const PlacementPart& part) {
    json.Raw(R"({"fragments":)");
    json.Array(part.fragments, [&json](const PlacementFragment& fragment) {
      WriteFragment(json, fragment, FragmentForm::kFull);
    });
    json.Raw(R"(,"participant_id":)");
    json.Text(part.participant_id);
    json.Raw(R"(,"rank":)");
    WriteRank(json, part.rank);
    json.Raw("}");
  });
  json.Raw(R"(,"placement_)");
}

// The rest of what placement_id is made from.
void WriteHashedRest(JsonWriter& json, const Placement& placement) {
  json.Raw(R"(set_id":)");
  json.Text(placement.placement_set_id);
  json.Raw(R"(,"resource_id":)");
  json.Text(placement.resource_id);
  json.Raw(R"(,"revision":)");
  json.Text(placement.revision);
  json.Raw(R"(,"schema":"complete-weight-placement","tensors":)");
  WriteTensors(json, placement.tensors);
  json.Raw(R"(,"topology":)");
  WriteTopology(json, placement.topology, TopologyForm::kFull);
  json.Raw(R"(,"weight_generation":)");
  json.Number(placement.weight_generation);
  json.Raw("}");
}

// The rest of the wire JSON.
void WriteWireRest(JsonWriter& json, const Placement& placement) {
  json.Raw(R"(id":)");
  json.Text(placement.placement_id);
  json.Raw(R"(,"placement_set_id":)");
  json.Text(placement.placement_set_id);
  json.Raw(R"(,"resource_id":)");
  json.Text(placement.resource_id);
  json.Raw(R"(,"resource_kind":"model_weight","revision":)");
  json.Text(placement.revision);
  json.Raw(R"(,"tensors":)");
  WriteTensors(json, placement.tensors);
  json.Raw(R"(,"topology":)");
  WriteTopology(json, placement.topology, TopologyForm::kFull);
  json.Raw(R"(,"weight_generation":)");
  json.Number(placement.weight_generation);
  json.Raw("}");
}

void WriteStoredFragment(JsonWriter& json, const StoredFragment& fragment) {
  json.Raw(R"({"aliases":)");
  json.Texts(fragment.aliases);
  json.Raw(R"(,"fragment_id":)");
  json.Text(fragment.fragment_id);
  json.Raw(R"(,"global_offset":)");
  json.Numbers(fragment.global_offset);
  json.Raw(R"(,"local_shape":)");
  json.Numbers(fragment.local_shape);
  json.Raw(R"(,"nbytes":)");
  json.Number(fragment.nbytes);
  json.Raw(R"(,"object_key":)");
  json.Text(fragment.object_key);
  json.Raw(R"(,"object_offset":)");
  json.Number(fragment.object_offset);
  json.Raw(R"(,"tensor_id":)");
  json.Text(fragment.tensor_id);
  json.Raw("}");
}

void WriteStoredManifest(JsonWriter& json, const StoredManifest& manifest) {
  json.Raw(R"({"created_at":)");
  json.Text(manifest.created_at);
  json.Raw(R"(,"fragments":)");
  json.Array(manifest.fragments,
             [&json](const StoredFragment& fragment) { WriteStoredFragment(json, fragment); });
  json.Raw(R"(,"group_id":)");
  json.Text(manifest.group_id);
  json.Raw(R"(,"manifest_key":)");
  json.Text(manifest.manifest_key);
  json.Raw(R"(,"namespace":)");
  json.Text(manifest.namespace_name);
  json.Raw(R"(,"resource_id":)");
  json.Text(manifest.resource_id);
  json.Raw(R"(,"resource_kind":"model_weight","revision":)");
  json.Text(manifest.revision);
  json.Raw(R"(,"tensors":)");
  WriteTensors(json, manifest.tensors);
  json.Raw(R"(,"weight_generation":)");
  json.Number(manifest.weight_generation);
  json.Raw("}");
}

template <class Write>
std::string Sha256HexOf(Escaping escaping, Write write) {
  Sha256 hash;
  JsonWriter json(escaping, hash);
  write(json);
  json.Flush();
  return ToHex(hash.Finish());
}

}  // namespace

std::string TopologyId(const ParallelTopology& topology) {
  return std::string(kIdPrefix) + Sha256HexOf(Escaping::kAscii, [&topology](JsonWriter& json) {
           WriteTopology(json, topology, TopologyForm::kHashed);
         });
}

std::string PlacementFragmentId(const PlacementFragment& fragment) {
  return std::string(kIdPrefix) + Sha256HexOf(Escaping::kAscii, [&fragment](JsonWriter& json) {
           WriteFragment(json, fragment, FragmentForm::kHashed);
         });
}

std::string PlacementId(const Placement& placement) {
  return std::string(kIdPrefix) + Sha256HexOf(Escaping::kAscii, [&placement](JsonWriter& json) {
           WriteParts(json, placement);
           WriteHashedRest(json, placement);
         });
}

std::string PlacementDigest(const Placement& placement) {
  return Sha256HexOf(Escaping::kAscii, [&placement](JsonWriter& json) {
    WriteParts(json, placement);
    WriteWireRest(json, placement);
  });
}

void SetPlacementIdAndDigest(Placement& placement) {
  Sha256 id_hash;
  JsonWriter parts(Escaping::kAscii, id_hash);
  WriteParts(parts, placement);
  parts.Flush();
  Sha256 digest_hash = id_hash.Clone();

  JsonWriter hashed(Escaping::kAscii, id_hash);
  WriteHashedRest(hashed, placement);
  hashed.Flush();
  placement.placement_id = std::string(kIdPrefix) + ToHex(id_hash.Finish());

  JsonWriter wire(Escaping::kAscii, digest_hash);
  WriteWireRest(wire, placement);
  wire.Flush();
  placement.digest = ToHex(digest_hash.Finish());
}

std::string PlacementToJson(const Placement& placement) {
  JsonWriter json(Escaping::kAscii);
  WriteParts(json, placement);
  WriteWireRest(json, placement);
  return json.Take();
}

std::string StoredManifestToJson(const StoredManifest& manifest) {
  JsonWriter json(Escaping::kUtf8);
  WriteStoredManifest(json, manifest);
  return json.Take();
}

std::string StoredManifestDigest(const StoredManifest& manifest) {
  return Sha256HexOf(Escaping::kUtf8,
                     [&manifest](JsonWriter& json) { WriteStoredManifest(json, manifest); });
}

}  // namespace mooncake::manifest
