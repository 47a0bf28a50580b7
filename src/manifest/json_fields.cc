#include "manifest/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "manifest/extension.h"
#include "manifest/json_extension.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

std::string Label::Text() const {
  std::string text(noun);
  if (index >= 0) text += fmt::format(" {}", index);
  if (!field.empty()) text += fmt::format("{}{}", text.empty() ? "" : " ", field);
  return text;
}

bool MatchKeys(JsonValue object, std::span<const std::string_view> keys,
               std::span<JsonValue> values) {
  if (object.count() != keys.size()) return false;
  // Keys of an object are distinct, so as many matches as keys means equal sets.
  JsonValue key = object.first();
  for (size_t i = 0; i < object.count(); ++i) {
    const auto it = std::find(keys.begin(), keys.end(), key.text());
    if (it == keys.end()) return false;
    const JsonValue value = key.next();
    values[it - keys.begin()] = value;
    key = value.next();
  }
  return true;
}

Status CheckObject(JsonValue value, const Label& label) {
  if (value.kind() == JsonKind::kObject) return OkStatus();
  return InvalidArgument(label.Text() + " must be a JSON object");
}

Result<std::string> ReadText(JsonValue value, const Label& label) {
  if (value.is_text() && value.count() > 0) return std::string(value.text());
  return InvalidArgument(label.Text() + " must be a non-empty string");
}

namespace {

template <class Integer>
Status NotAnInteger(const Label& label, Integer min) {
  return InvalidArgument(fmt::format("{} must be an integer at least {}", label.Text(), min));
}

}  // namespace

Result<int64_t> ReadInteger(JsonValue value, const Label& label, int64_t min) {
  if (value.kind() == JsonKind::kUnsigned || value.kind() == JsonKind::kBigInteger) {
    return InvalidArgument(label.Text() + " must fit in a signed 64-bit integer");
  }
  if (value.kind() != JsonKind::kInteger || value.integer() < min) return NotAnInteger(label, min);
  return value.integer();
}

Result<uint64_t> ReadUnsigned(JsonValue value, const Label& label, uint64_t min) {
  if (value.kind() == JsonKind::kUnsigned) return value.unsigned_integer();
  if (value.kind() == JsonKind::kBigInteger) {
    return InvalidArgument(label.Text() + " must fit in an unsigned 64-bit integer");
  }
  if (value.kind() != JsonKind::kInteger || value.integer() < 0 ||
      static_cast<uint64_t>(value.integer()) < min) {
    return NotAnInteger(label, min);
  }
  return static_cast<uint64_t>(value.integer());
}

Result<std::optional<int64_t>> ReadOptionalInteger(JsonValue value, const Label& label,
                                                   int64_t min) {
  if (value.kind() == JsonKind::kNull) return std::optional<int64_t>();
  MC_ASSIGN_OR_RETURN(const int64_t integer, ReadInteger(value, label, min));
  return std::optional<int64_t>(integer);
}

Status CheckArray(JsonValue value, const Label& label) {
  if (value.kind() == JsonKind::kArray) return OkStatus();
  return InvalidArgument(label.Text() + " must be a sequence");
}

Result<Extents> ReadIntegers(JsonValue value, const Label& label, int64_t min) {
  return ReadArray<int64_t>(value, label, [&label, min](JsonValue element, int64_t) {
    return ReadInteger(element, label, min);
  });
}

Result<std::vector<std::string>> ReadTexts(JsonValue value, const Label& label) {
  return ReadArray<std::string>(
      value, label, [&label](JsonValue element, int64_t) { return ReadText(element, label); });
}

std::optional<JsonValue> FindKey(JsonValue object, std::string_view key) {
  JsonValue at = object.first();
  for (size_t i = 0; i < object.count(); ++i) {
    const JsonValue value = at.next();
    if (at.text() == key) return value;
    at = value.next();
  }
  return std::nullopt;
}

Result<ParallelRank> ReadRank(JsonValue value, const Label& label) {
  static constexpr std::array<std::string_view, 4> kKeys = {"dp", "ep", "pp", "tp"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  ParallelRank rank;
  MC_ASSIGN_OR_RETURN(rank.dp, ReadInteger(fields[0], label.Field("dp"), 0));
  MC_ASSIGN_OR_RETURN(rank.ep, ReadInteger(fields[1], label.Field("ep"), 0));
  MC_ASSIGN_OR_RETURN(rank.pp, ReadInteger(fields[2], label.Field("pp"), 0));
  MC_ASSIGN_OR_RETURN(rank.tp, ReadInteger(fields[3], label.Field("tp"), 0));
  return rank;
}

namespace {

// The text of an axis object's "semantics"; empty when there is none.
std::string_view SemanticsOf(JsonValue axis) {
  const std::optional<JsonValue> value = FindKey(axis, "semantics");
  return value && value->is_text() ? value->text() : std::string_view();
}

Result<ParallelAxis> ReadAxis(JsonValue value, const Label& label) {
  static constexpr std::array<std::string_view, 3> kSplitKeys = {"dim", "kind", "semantics"};
  static constexpr std::array<std::string_view, 2> kOtherKeys = {"kind", "semantics"};
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  MC_ASSIGN_OR_RETURN(const AxisSemantics semantics, ParseAxisSemantics(SemanticsOf(value)));
  if (semantics == AxisSemantics::kSplit) {
    MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kSplitKeys));
    MC_ASSIGN_OR_RETURN(const std::string kind, ReadText(fields[1], {"parallel axis kind"}));
    MC_ASSIGN_OR_RETURN(const int64_t dim, ReadInteger(fields[0], label.Field("dim"), 0));
    return MakeAxis(semantics, kind, dim);
  }
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kOtherKeys));
  MC_ASSIGN_OR_RETURN(const std::string kind, ReadText(fields[0], {"parallel axis kind"}));
  return MakeAxis(semantics, kind);
}

}  // namespace

Result<TensorDescriptor> ReadTensor(JsonValue value, const Label& label, const Label& axis_label,
                                    bool extended) {
  static constexpr std::array<std::string_view, 10> kKeys = {
      "dtype",         "expert_id",  "global_shape", "itemsize", "layer_id", "layout_fingerprint",
      "parallel_axes", "shard_dims", "tensor_id",    "extension"};
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  const bool has_extension = extended && FindKey(value, "extension").has_value();
  std::array<JsonValue, kKeys.size()> fields;
  const std::span<const std::string_view> keys =
      std::span(kKeys).first(has_extension ? kKeys.size() : kKeys.size() - 1);
  if (!MatchKeys(value, keys, fields)) {
    return InvalidArgument(label.Text() + " schema fields do not match contract");
  }
  const auto field_label = [&label](size_t i) { return label.Field(kKeys[i]); };
  TensorDescriptor tensor;
  MC_ASSIGN_OR_RETURN(tensor.dtype, ReadText(fields[0], field_label(0)));
  MC_ASSIGN_OR_RETURN(tensor.expert_id, ReadOptionalInteger(fields[1], field_label(1), 0));
  MC_ASSIGN_OR_RETURN(tensor.global_shape,
                      ReadIntegers(fields[2], field_label(2), has_extension ? 0 : 1));
  MC_ASSIGN_OR_RETURN(tensor.itemsize, ReadInteger(fields[3], field_label(3), 1));
  MC_ASSIGN_OR_RETURN(tensor.layer_id, ReadOptionalInteger(fields[4], field_label(4), 0));
  MC_ASSIGN_OR_RETURN(tensor.layout_fingerprint, ReadText(fields[5], field_label(5)));
  MC_ASSIGN_OR_RETURN(
      tensor.parallel_axes,
      ReadArray<ParallelAxis>(fields[6], field_label(6), [&](JsonValue element, int64_t i) {
        return ReadAxis(element, {axis_label.noun, i});
      }));
  MC_ASSIGN_OR_RETURN(tensor.shard_dims, ReadIntegers(fields[7], field_label(7), 0));
  MC_ASSIGN_OR_RETURN(tensor.tensor_id, ReadText(fields[8], field_label(8)));
  if (has_extension) {
    MC_ASSIGN_OR_RETURN(tensor.extension, ReadExtension(fields[9], field_label(9)));
  }
  return MakeTensorDescriptor(std::move(tensor));
}

Result<bool> ReadBool(JsonValue value, const Label& label) {
  if (value.kind() == JsonKind::kBool) return value.boolean();
  return InvalidArgument(label.Text() + " must be true or false");
}

Status CheckExtendedForm(JsonValue value, std::string_view what) {
  if (value.kind() == JsonKind::kInteger && value.integer() == kExtendedForm) return OkStatus();
  return InvalidArgument(fmt::format("{} extended_form must be {}", what, kExtendedForm));
}

Status CheckResourceKind(JsonValue value, std::string_view what) {
  if (value.is_text() && value.text() == "model_weight") return OkStatus();
  return InvalidArgument(fmt::format("{} resource_kind must be model_weight", what));
}

}  // namespace mooncake::manifest
