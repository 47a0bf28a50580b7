#include "manifest/canonical.h"

#include <optional>
#include <utility>

#include "base/digest.h"
#include "manifest/extension.h"
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

void WriteOwnedBox(JsonWriter& json, const OwnedBox& box) {
  json.Raw(R"({"offset":)");
  json.Numbers(box.offset);
  json.Raw(R"(,"owners":)");
  json.Texts(box.owners);
  json.Raw(R"(,"shape":)");
  json.Numbers(box.shape);
  json.Raw("}");
}

void WriteSections(JsonWriter& json, const Sections& sections) {
  json.Raw(R"({"dim":)");
  json.Number(sections.dim);
  json.Raw(R"(,"parts":)");
  json.Array(sections.parts, [&json](const SectionPart& part) {
    json.Raw(R"({"begin":)");
    json.Number(part.begin);
    json.Raw(R"(,"end":)");
    json.Number(part.end);
    json.Raw(R"(,"name":)");
    json.Text(part.name);
    json.Raw("}");
  });
  json.Raw("}");
}

// The keys that are set, in sorted order.
void WriteExtension(JsonWriter& json, const TensorExtension& extension) {
  std::string_view separator = "{";
  const auto key = [&](std::string_view quoted) {
    json.Raw(separator);
    json.Raw(quoted);
    separator = ",";
  };
  if (const auto& scales = extension.block_scales) {
    key(R"("block_scales":{"block_shape":)");
    json.Numbers(scales->block_shape);
    json.Raw(R"(,"scale_tensor_id":)");
    json.Text(scales->scale_tensor_id);
    json.Raw(scales->shareable ? R"(,"shareable":true})" : R"(,"shareable":false})");
  }
  if (!extension.ownership.empty()) {
    key(R"("ownership":)");
    json.Array(extension.ownership, [&json](const OwnedTiling& tiling) {
      json.Array(tiling, [&json](const OwnedBox& box) { WriteOwnedBox(json, box); });
    });
  }
  if (const auto& packing = extension.packing) {
    key(R"("packing":{"dim":)");
    json.Number(packing->dim);
    json.Raw(R"(,"extent":)");
    json.Number(packing->extent);
    json.Raw(R"(,"factor":)");
    json.Number(packing->factor);
    json.Raw("}");
  }
  if (extension.padded_shape) {
    key(R"("padded_shape":)");
    json.Numbers(*extension.padded_shape);
  }
  if (extension.sections) {
    key(R"("sections":)");
    WriteSections(json, *extension.sections);
  }
  json.Raw(separator == "{" ? "{}" : "}");
}

void WriteTensor(JsonWriter& json, const TensorDescriptor& tensor) {
  json.Raw(R"({"dtype":)");
  json.Text(tensor.dtype);
  json.Raw(R"(,"expert_id":)");
  WriteOptional(json, tensor.expert_id);
  if (tensor.extension != nullptr) {
    json.Raw(R"(,"extension":)");
    WriteExtension(json, *tensor.extension);
  }
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
enum class FragmentText : uint8_t { kHashed, kFull };

void WriteFragment(JsonWriter& json, const PlacementFragment& fragment, FragmentText form) {
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
  if (form == FragmentText::kFull) {
    json.Raw(R"(,"placement_fragment_id":)");
    json.Text(fragment.placement_fragment_id);
  }
  json.Raw(R"(,"rank":)");
  WriteRank(json, fragment.rank);
  if (form == FragmentText::kHashed) {
    json.Raw(IsExtended(fragment) ? R"(,"schema":"extended-weight-placement-fragment")"
                                  : R"(,"schema":"weight-placement-fragment")");
  }
  if (fragment.slot) {
    json.Raw(R"(,"slot":)");
    json.Number(*fragment.slot);
  }
  json.Raw(R"(,"tensor_id":)");
  json.Text(fragment.tensor_id);
  json.Raw("}");
}

// '{"parts":[...],"placement_': the common beginning of what placement_id, digest and geometry
// digest are made from.
void WriteParts(JsonWriter& json, const Placement& placement) {
  json.Raw("{");
  if (placement.extended) {
    json.Raw(R"("extended_form":)");
    json.Number(kExtendedForm);
    json.Raw(R"(,"omitted_tensors":)");
    json.Texts(placement.omitted_tensors);
    json.Raw(",");
  }
  json.Raw(R"("parts":)");
  json.Array(placement.parts, [&json](const PlacementPart& part) {
    json.Raw(R"({"fragments":)");
    json.Array(part.fragments, [&json](const PlacementFragment& fragment) {
      WriteFragment(json, fragment, FragmentText::kFull);
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
  json.Raw(placement.extended ? R"(,"schema":"extended-weight-placement","tensors":)"
                              : R"(,"schema":"complete-weight-placement","tensors":)");
  WriteTensors(json, placement.tensors);
  json.Raw(R"(,"topology":)");
  WriteTopology(json, placement.topology, TopologyForm::kFull);
  json.Raw(R"(,"weight_generation":)");
  json.Number(placement.weight_generation);
  json.Raw("}");
}

// The rest of what geometry_digest is made from.
void WriteGeometryRest(JsonWriter& json, const Placement& placement) {
  json.Raw(R"(geometry":1,"tensors":)");
  WriteTensors(json, placement.tensors);
  json.Raw(R"(,"topology":)");
  WriteTopology(json, placement.topology, TopologyForm::kFull);
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

// Object keys without their first `key_prefix` bytes.
void WriteStoredFragment(JsonWriter& json, const StoredFragment& fragment, size_t key_prefix) {
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
  json.Text(std::string_view(fragment.object_key).substr(key_prefix));
  json.Raw(R"(,"object_offset":)");
  json.Number(fragment.object_offset);
  if (fragment.shares_range) json.Raw(R"(,"shares_range":true)");
  json.Raw(R"(,"tensor_id":)");
  json.Text(fragment.tensor_id);
  json.Raw("}");
}

void WriteStoredManifest(JsonWriter& json, const StoredManifest& manifest) {
  json.Raw(R"({"created_at":)");
  json.Text(manifest.created_at);
  if (manifest.extended) {
    json.Raw(R"(,"extended_form":)");
    json.Number(kExtendedForm);
  }
  json.Raw(R"(,"fragments":)");
  json.Array(manifest.fragments,
             [&json](const StoredFragment& fragment) { WriteStoredFragment(json, fragment, 0); });
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

void WriteStoredGeometry(JsonWriter& json, const StoredManifest& manifest) {
  const size_t key_prefix = manifest.group_id.size() + std::string_view("/payload/").size();
  json.Raw(R"({"fragments":)");
  json.Array(manifest.fragments, [&](const StoredFragment& fragment) {
    WriteStoredFragment(json, fragment, key_prefix);
  });
  json.Raw(R"(,"stored_geometry":1,"tensors":)");
  WriteTensors(json, manifest.tensors);
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
  JsonWriter json(Escaping::kAscii);
  WriteFragment(json, fragment, FragmentText::kHashed);
  return std::string(kIdPrefix) + ToHex(Sha256Of(json.Take()));
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

std::string PlacementGeometryDigest(const Placement& placement) {
  return Sha256HexOf(Escaping::kAscii, [&placement](JsonWriter& json) {
    WriteParts(json, placement);
    WriteGeometryRest(json, placement);
  });
}

void SetPlacementIdAndDigest(Placement& placement) {
  Sha256 id_hash;
  JsonWriter parts(Escaping::kAscii, id_hash);
  WriteParts(parts, placement);
  parts.Flush();
  Sha256 digest_hash = id_hash.Clone();
  Sha256 geometry_hash = id_hash.Clone();

  JsonWriter hashed(Escaping::kAscii, id_hash);
  WriteHashedRest(hashed, placement);
  hashed.Flush();
  placement.placement_id = std::string(kIdPrefix) + ToHex(id_hash.Finish());

  JsonWriter wire(Escaping::kAscii, digest_hash);
  WriteWireRest(wire, placement);
  wire.Flush();
  placement.digest = ToHex(digest_hash.Finish());

  JsonWriter geometry(Escaping::kAscii, geometry_hash);
  WriteGeometryRest(geometry, placement);
  geometry.Flush();
  placement.geometry_digest = ToHex(geometry_hash.Finish());
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

std::string StoredGeometryDigest(const StoredManifest& manifest) {
  return Sha256HexOf(Escaping::kUtf8,
                     [&manifest](JsonWriter& json) { WriteStoredGeometry(json, manifest); });
}

std::string StoredManifestDigest(const StoredManifest& manifest) {
  return Sha256HexOf(Escaping::kUtf8,
                     [&manifest](JsonWriter& json) { WriteStoredManifest(json, manifest); });
}

}  // namespace mooncake::manifest
