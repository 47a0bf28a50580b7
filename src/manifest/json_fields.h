// Reads typed fields of a parsed document, with the contract's messages.
//
// Internal to the folder. A Label is only turned into text when something is refused.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/json_document.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// "placement fragment 3 nbytes".
struct Label {
  std::string_view noun;
  int64_t index = -1;  // < 0: none
  std::string_view field = {};

  Label Field(std::string_view name) const { return {noun, index, name}; }
  std::string Text() const;
};

// Fills `values` with the values of `keys`, in the order of `keys`; the object has exactly these.
// False when its key set differs.
bool MatchKeys(JsonValue object, std::span<const std::string_view> keys,
               std::span<JsonValue> values);

Status CheckObject(JsonValue value, const Label& label);

// "{label} must be a JSON object", "{label} schema fields do not match contract".
template <size_t N>
Result<std::array<JsonValue, N>> ReadObject(JsonValue value, const Label& label,
                                            const std::array<std::string_view, N>& keys) {
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  std::array<JsonValue, N> values;
  if (!MatchKeys(value, keys, values)) {
    return InvalidArgument(label.Text() + " schema fields do not match contract");
  }
  return values;
}

// Refuses empty text too.
Result<std::string> ReadText(JsonValue value, const Label& label);
Result<int64_t> ReadInteger(JsonValue value, const Label& label, int64_t min);
Result<uint64_t> ReadUnsigned(JsonValue value, const Label& label, uint64_t min);
Result<std::optional<int64_t>> ReadOptionalInteger(JsonValue value, const Label& label,
                                                   int64_t min);
// "{label} must be a sequence".
Status CheckArray(JsonValue value, const Label& label);
Result<Extents> ReadIntegers(JsonValue value, const Label& label, int64_t min);
Result<std::vector<std::string>> ReadTexts(JsonValue value, const Label& label);

// Calls read(element, index) -> Result<T> for every element.
template <class T, class Read>
Result<std::vector<T>> ReadArray(JsonValue value, const Label& label, Read read) {
  MC_RETURN_IF_ERROR(CheckArray(value, label));
  std::vector<T> items;
  items.reserve(value.count());
  JsonValue element = value.first();
  for (size_t i = 0; i < value.count(); ++i, element = element.next()) {
    MC_ASSIGN_OR_RETURN(T item, read(element, static_cast<int64_t>(i)));
    items.push_back(std::move(item));
  }
  return items;
}

// The objects that placements and stored manifests have in common.
Result<ParallelRank> ReadRank(JsonValue value, const Label& label);
// `extended`: the document is in the extended form, where a tensor may have an extension.
Result<TensorDescriptor> ReadTensor(JsonValue value, const Label& label, const Label& axis_label,
                                    bool extended);
// The value of `key`; empty when the object has none.
std::optional<JsonValue> FindKey(JsonValue object, std::string_view key);
// root.extended_form is the version we know.
Status CheckExtendedForm(JsonValue value, std::string_view what);
Result<bool> ReadBool(JsonValue value, const Label& label);
// root.resource_kind is "model_weight".
Status CheckResourceKind(JsonValue value, std::string_view what);

}  // namespace mooncake::manifest
