// Stored manifests from their wire JSON.
#include <string>
#include <utility>

#include "manifest/json.h"
#include "manifest/json_fields.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

constexpr std::string_view kWhat = "weight manifest";

Result<StoredFragment> ReadStoredFragment(JsonValue value, bool extended) {
  static constexpr std::array<std::string_view, 9> kKeys = {
      "aliases",    "fragment_id",   "global_offset", "local_shape", "nbytes",
      "object_key", "object_offset", "tensor_id",     "shares_range"};
  const Label label{"stored fragment"};
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  const bool shares = extended && FindKey(value, "shares_range").has_value();
  std::array<JsonValue, kKeys.size()> fields;
  if (!MatchKeys(value, std::span(kKeys).first(shares ? 9 : 8), fields)) {
    return InvalidArgument(label.Text() + " schema fields do not match contract");
  }
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
  if (shares) {
    MC_ASSIGN_OR_RETURN(fragment.shares_range, ReadBool(fields[8], field_label(8)));
    if (!fragment.shares_range) {  // not writing the key is the one way to say this
      return InvalidArgument("stored fragment shares_range must be true");
    }
  }
  return MakeStoredFragment(std::move(fragment));
}

// Sets `extended` to the document's form.
Result<StoredManifest> ReadStoredManifest(JsonValue root, bool& extended) {
  static constexpr std::array<std::string_view, 11> kKeys = {
      "created_at",    "fragments", "group_id", "manifest_key",      "namespace",    "resource_id",
      "resource_kind", "revision",  "tensors",  "weight_generation", "extended_form"};
  MC_RETURN_IF_ERROR(CheckObject(root, {kWhat}));
  extended = FindKey(root, "extended_form").has_value();
  std::array<JsonValue, kKeys.size()> fields;
  if (!MatchKeys(root, std::span(kKeys).first(extended ? 11 : 10), fields)) {
    return InvalidArgument(std::string(kWhat) + " schema fields do not match contract");
  }
  MC_RETURN_IF_ERROR(CheckResourceKind(fields[6], kWhat));
  if (extended) MC_RETURN_IF_ERROR(CheckExtendedForm(fields[10], kWhat));
  StoredManifest manifest;
  MC_ASSIGN_OR_RETURN(manifest.created_at, ReadText(fields[0], {"created_at"}));
  MC_ASSIGN_OR_RETURN(
      manifest.fragments,
      ReadArray<StoredFragment>(fields[1], {"fragments"}, [extended](JsonValue value, int64_t) {
        return ReadStoredFragment(value, extended);
      }));
  MC_ASSIGN_OR_RETURN(manifest.group_id, ReadText(fields[2], {"group_id"}));
  MC_ASSIGN_OR_RETURN(manifest.manifest_key, ReadText(fields[3], {"manifest_key"}));
  MC_ASSIGN_OR_RETURN(manifest.namespace_name, ReadText(fields[4], {"namespace"}));
  MC_ASSIGN_OR_RETURN(manifest.resource_id, ReadText(fields[5], {"resource_id"}));
  MC_ASSIGN_OR_RETURN(manifest.revision, ReadText(fields[7], {"revision"}));
  MC_ASSIGN_OR_RETURN(
      manifest.tensors,
      ReadArray<TensorDescriptor>(fields[8], {"tensors"}, [extended](JsonValue value, int64_t) {
        return ReadTensor(value, {"tensor descriptor"}, {"tensor descriptor parallel axis"},
                          extended);
      }));
  MC_ASSIGN_OR_RETURN(manifest.weight_generation,
                      ReadUnsigned(fields[9], {"weight_generation"}, 0));
  return manifest;
}

}  // namespace

Result<StoredManifestPtr> StoredManifestFromJson(std::string_view text) {
  StoredManifest fields;
  bool extended = false;
  {
    MC_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(kWhat, text));
    MC_ASSIGN_OR_RETURN(fields, ReadStoredManifest(document.root(), extended));
  }
  MC_ASSIGN_OR_RETURN(StoredManifestPtr manifest, MakeStoredManifest(std::move(fields)));
  if (extended == manifest->extended) return manifest;
  return InvalidArgument("weight manifest extended_form without an extended value");
}

}  // namespace mooncake::manifest
