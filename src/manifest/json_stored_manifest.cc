// Stored manifests from their wire JSON.
#include <utility>

#include "manifest/json.h"
#include "manifest/json_fields.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

constexpr std::string_view kWhat = "weight manifest";

Result<StoredFragment> ReadStoredFragment(JsonValue value, int64_t) {
  static constexpr std::array<std::string_view, 8> kKeys = {
      "aliases", "fragment_id", "global_offset", "local_shape",
      "nbytes",  "object_key",  "object_offset", "tensor_id"};
  const Label label{"stored fragment"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  const auto field_label = [&label](size_t i) { return label.Field(kKeys[i]); };
  StoredFragment fragment;
  MC_ASSIGN_OR_RETURN(fragment.aliases, ReadTexts(fields[0], field_label(0)));
  MC_ASSIGN_OR_RETURN(fragment.fragment_id, ReadText(fields[1], field_label(1)));
  MC_ASSIGN_OR_RETURN(fragment.global_offset, ReadIntegers(fields[2], field_label(2), 0));
  MC_ASSIGN_OR_RETURN(fragment.local_shape, ReadIntegers(fields[3], field_label(3), 1));
  MC_ASSIGN_OR_RETURN(fragment.nbytes, ReadUnsigned(fields[4], field_label(4), 1));
  MC_ASSIGN_OR_RETURN(fragment.object_key, ReadText(fields[5], field_label(5)));
  MC_ASSIGN_OR_RETURN(fragment.object_offset, ReadUnsigned(fields[6], field_label(6), 0));
  MC_ASSIGN_OR_RETURN(fragment.tensor_id, ReadText(fields[7], field_label(7)));
  return MakeStoredFragment(std::move(fragment));
}

Result<StoredManifest> ReadStoredManifest(JsonValue root) {
  static constexpr std::array<std::string_view, 10> kKeys = {
      "created_at",  "fragments",     "group_id", "manifest_key", "namespace",
      "resource_id", "resource_kind", "revision", "tensors",      "weight_generation"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(root, {kWhat}, kKeys));
  MC_RETURN_IF_ERROR(CheckResourceKind(fields[6], kWhat));
  StoredManifest manifest;
  MC_ASSIGN_OR_RETURN(manifest.created_at, ReadText(fields[0], {"created_at"}));
  MC_ASSIGN_OR_RETURN(manifest.fragments,
                      ReadArray<StoredFragment>(fields[1], {"fragments"}, ReadStoredFragment));
  MC_ASSIGN_OR_RETURN(manifest.group_id, ReadText(fields[2], {"group_id"}));
  MC_ASSIGN_OR_RETURN(manifest.manifest_key, ReadText(fields[3], {"manifest_key"}));
  MC_ASSIGN_OR_RETURN(manifest.namespace_name, ReadText(fields[4], {"namespace"}));
  MC_ASSIGN_OR_RETURN(manifest.resource_id, ReadText(fields[5], {"resource_id"}));
  MC_ASSIGN_OR_RETURN(manifest.revision, ReadText(fields[7], {"revision"}));
  MC_ASSIGN_OR_RETURN(
      manifest.tensors,
      ReadArray<TensorDescriptor>(fields[8], {"tensors"}, [](JsonValue value, int64_t) {
        return ReadTensor(value, {"tensor descriptor"}, {"tensor descriptor parallel axis"});
      }));
  MC_ASSIGN_OR_RETURN(manifest.weight_generation,
                      ReadUnsigned(fields[9], {"weight_generation"}, 0));
  return manifest;
}

}  // namespace

Result<StoredManifestPtr> StoredManifestFromJson(std::string_view text) {
  StoredManifest manifest;
  {
    MC_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(kWhat, text));
    MC_ASSIGN_OR_RETURN(manifest, ReadStoredManifest(document.root()));
  }
  return MakeStoredManifest(std::move(manifest));
}

}  // namespace mooncake::manifest
