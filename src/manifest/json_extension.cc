#include "manifest/json_extension.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace mooncake::manifest {

namespace {

Result<OwnedBox> ReadOwnedBox(JsonValue value, const Label& label) {
  static constexpr std::array<std::string_view, 3> kKeys = {"offset", "owners", "shape"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  OwnedBox box;
  MC_ASSIGN_OR_RETURN(box.offset, ReadIntegers(fields[0], label, 0));
  MC_ASSIGN_OR_RETURN(box.owners, ReadTexts(fields[1], label));
  MC_ASSIGN_OR_RETURN(box.shape, ReadIntegers(fields[2], label, 1));
  return box;
}

Result<std::vector<OwnedTiling>> ReadOwnership(JsonValue value, const Label& label) {
  MC_ASSIGN_OR_RETURN(std::vector<OwnedTiling> ownership,
                      ReadArray<OwnedTiling>(value, label, [&](JsonValue tiling, int64_t) {
                        return ReadArray<OwnedBox>(tiling, label, [&](JsonValue box, int64_t) {
                          return ReadOwnedBox(box, label);
                        });
                      }));
  // Not writing the key is the one way to say this.
  if (ownership.empty()) return InvalidArgument(label.Text() + " must not be empty");
  return ownership;
}

Result<Sections> ReadSections(JsonValue value, const Label& label) {
  static constexpr std::array<std::string_view, 2> kKeys = {"dim", "parts"};
  static constexpr std::array<std::string_view, 3> kPartKeys = {"begin", "end", "name"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  Sections sections;
  MC_ASSIGN_OR_RETURN(sections.dim, ReadInteger(fields[0], label, 0));
  MC_ASSIGN_OR_RETURN(sections.parts,
                      ReadArray<SectionPart>(
                          fields[1], label, [&](JsonValue element, int64_t) -> Result<SectionPart> {
                            MC_ASSIGN_OR_RETURN(const auto part,
                                                ReadObject(element, label, kPartKeys));
                            SectionPart read;
                            MC_ASSIGN_OR_RETURN(read.begin, ReadInteger(part[0], label, 0));
                            MC_ASSIGN_OR_RETURN(read.end, ReadInteger(part[1], label, 1));
                            MC_ASSIGN_OR_RETURN(read.name, ReadText(part[2], label));
                            return read;
                          }));
  return sections;
}

Result<BlockScales> ReadBlockScales(JsonValue value, const Label& label) {
  static constexpr std::array<std::string_view, 3> kKeys = {"block_shape", "scale_tensor_id",
                                                            "shareable"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  BlockScales scales;
  MC_ASSIGN_OR_RETURN(scales.block_shape, ReadIntegers(fields[0], label, 1));
  MC_ASSIGN_OR_RETURN(scales.scale_tensor_id, ReadText(fields[1], label));
  MC_ASSIGN_OR_RETURN(scales.shareable, ReadBool(fields[2], label));
  return scales;
}

Result<Packing> ReadPacking(JsonValue value, const Label& label) {
  static constexpr std::array<std::string_view, 3> kKeys = {"dim", "extent", "factor"};
  MC_ASSIGN_OR_RETURN(const auto fields, ReadObject(value, label, kKeys));
  Packing packing;
  MC_ASSIGN_OR_RETURN(packing.dim, ReadInteger(fields[0], label, 0));
  MC_ASSIGN_OR_RETURN(packing.extent, ReadInteger(fields[1], label, 1));
  MC_ASSIGN_OR_RETURN(packing.factor, ReadInteger(fields[2], label, 2));
  return packing;
}

// `member` is the field's key.
Status ReadMember(std::string_view key, JsonValue value, const Label& label,
                  TensorExtension& extension) {
  if (key == "ownership") {
    MC_ASSIGN_OR_RETURN(extension.ownership, ReadOwnership(value, label));
  } else if (key == "padded_shape") {
    MC_ASSIGN_OR_RETURN(extension.padded_shape, ReadIntegers(value, label, 0));
  } else if (key == "sections") {
    MC_ASSIGN_OR_RETURN(extension.sections, ReadSections(value, label));
  } else if (key == "block_scales") {
    MC_ASSIGN_OR_RETURN(extension.block_scales, ReadBlockScales(value, label));
  } else if (key == "packing") {
    MC_ASSIGN_OR_RETURN(extension.packing, ReadPacking(value, label));
  } else {
    return InvalidArgument(
        fmt::format("{} schema fields do not match contract: unknown {}", label.Text(), key));
  }
  return OkStatus();
}

}  // namespace

Result<std::shared_ptr<const TensorExtension>> ReadExtension(JsonValue value, const Label& label) {
  MC_RETURN_IF_ERROR(CheckObject(value, label));
  TensorExtension extension;
  JsonValue key = value.first();
  for (size_t i = 0; i < value.count(); ++i) {
    const JsonValue member = key.next();
    MC_RETURN_IF_ERROR(ReadMember(key.text(), member, label, extension));
    key = member.next();
  }
  return std::make_shared<const TensorExtension>(std::move(extension));
}

}  // namespace mooncake::manifest
