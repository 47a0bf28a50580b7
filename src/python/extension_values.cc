#include "python/extension_values.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "python/contract_values.h"
#include "python/convert.h"
#include "python/errors.h"

namespace mooncake::python {

namespace {

std::vector<std::string> Texts(nb::handle value, const char* name) {
  std::vector<std::string> texts;
  for (nb::handle item : AsTuple(value, name, "must be a sequence")) {
    texts.push_back(Text(item, name));
  }
  return texts;
}

// None, or what `read` makes of an instance of `type`.
template <class T>
std::optional<T> Optional(nb::handle value, const char* name, PyClass& type,
                          T (*read)(nb::handle)) {
  if (value.is_none()) return std::nullopt;
  if (!type.IsInstance(value)) Refuse(fmt::format("{} must be {}", name, type.name()));
  return read(value);
}

nb::tuple TextTuple(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(ToStr(text));
  return nb::tuple(list);
}

}  // namespace

manifest::OwnedBox ReadOwnedBox(nb::handle object) {
  return {.offset = Ints(Get(object, N().offset), "offset", 0),
          .shape = Ints(Get(object, N().shape), "shape", 1),
          .owners = Texts(Get(object, N().owners), "owners")};
}

manifest::SectionPart ReadSection(nb::handle object) {
  return {.name = Text(Get(object, N().name), "section name"),
          .begin = Int(Get(object, N().begin), "section begin", 0),
          .end = Int(Get(object, N().end), "section end", 0)};
}

manifest::Sections ReadSections(nb::handle object) {
  manifest::Sections sections;
  sections.dim = Int(Get(object, N().dim), "sections dim", 0);
  for (nb::handle part : Items(Get(object, N().parts), "sections parts", Classes().section)) {
    sections.parts.push_back(ReadSection(part));
  }
  return sections;
}

manifest::BlockScales ReadBlockScales(nb::handle object) {
  manifest::BlockScales scales;
  scales.scale_tensor_id = Text(Get(object, N().scale_tensor_id), "scale_tensor_id");
  scales.block_shape = Ints(Get(object, N().block_shape), "block_shape", 1);
  const nb::object shareable = Get(object, N().shareable);
  if (!PyBool_Check(shareable.ptr())) Refuse("shareable must be true or false");
  scales.shareable = shareable.is(nb::bool_(true));
  return scales;
}

manifest::Packing ReadPacking(nb::handle object) {
  return {.dim = Int(Get(object, N().dim), "packing dim", 0),
          .extent = Int(Get(object, N().extent), "packing extent", 1),
          .factor = Int(Get(object, N().factor), "packing factor", 2)};
}

void ReadCommonForms(nb::handle object, manifest::TensorExtension* extension) {
  if (const nb::object padded = Get(object, N().padded_shape); !padded.is_none()) {
    extension->padded_shape = Ints(padded, "padded_shape", 0);
  }
  ContractClasses& classes = Classes();
  extension->sections =
      Optional(Get(object, N().sections), "sections", classes.sections, &ReadSections);
  extension->packing = Optional(Get(object, N().packing), "packing", classes.packing, &ReadPacking);
}

std::shared_ptr<const manifest::TensorExtension> ReadExtension(nb::handle tensor) {
  manifest::TensorExtension extension;
  for (nb::handle tiling : AsTuple(Get(tensor, N().ownership), "ownership", "must be a sequence")) {
    manifest::OwnedTiling& boxes = extension.ownership.emplace_back();
    for (nb::handle box : Items(tiling, "ownership", Classes().owned_box)) {
      boxes.push_back(ReadOwnedBox(box));
    }
  }
  ReadCommonForms(tensor, &extension);
  extension.block_scales = Optional(Get(tensor, N().block_scales), "block_scales",
                                    Classes().block_scales, &ReadBlockScales);
  return std::make_shared<const manifest::TensorExtension>(std::move(extension));
}

nb::tuple ToPython(const std::vector<manifest::OwnedTiling>& ownership) {
  nb::list tilings;
  for (const manifest::OwnedTiling& tiling : ownership) {
    nb::list boxes;
    for (const manifest::OwnedBox& box : tiling) {
      nb::object made = Classes().owned_box.Make();
      Init(made, N().offset, ToTuple(box.offset));
      Init(made, N().shape, ToTuple(box.shape));
      Init(made, N().owners, TextTuple(box.owners));
      boxes.append(made);
    }
    tilings.append(nb::tuple(boxes));
  }
  return nb::tuple(tilings);
}

namespace {

nb::object ToPython(const manifest::Sections& sections) {
  nb::list parts;
  for (const manifest::SectionPart& part : sections.parts) {
    nb::object made = Classes().section.Make();
    Init(made, N().name, ToStr(part.name));
    Init(made, N().begin, nb::int_(part.begin));
    Init(made, N().end, nb::int_(part.end));
    parts.append(made);
  }
  nb::object made = Classes().sections.Make();
  Init(made, N().dim, nb::int_(sections.dim));
  Init(made, N().parts, nb::tuple(parts));
  return made;
}

nb::object ToPython(const manifest::BlockScales& scales) {
  nb::object made = Classes().block_scales.Make();
  Init(made, N().scale_tensor_id, ToStr(scales.scale_tensor_id));
  Init(made, N().block_shape, ToTuple(scales.block_shape));
  Init(made, N().shareable, nb::bool_(scales.shareable));
  return made;
}

nb::object ToPython(const manifest::Packing& packing) {
  nb::object made = Classes().packing.Make();
  Init(made, N().dim, nb::int_(packing.dim));
  Init(made, N().extent, nb::int_(packing.extent));
  Init(made, N().factor, nb::int_(packing.factor));
  return made;
}

nb::object ToPython(const manifest::Extents& extents) { return ToTuple(extents); }

template <class T>
nb::object OrNone(const std::optional<T>& value) {
  if (!value) return nb::none();
  return ToPython(*value);
}

}  // namespace

void Maker::InitExtension(nb::handle object, const manifest::TensorExtension& extension) {
  Init(object, N().ownership, python::ToPython(extension.ownership));
  Init(object, N().padded_shape, OrNone(extension.padded_shape));
  Init(object, N().sections, OrNone(extension.sections));
  Init(object, N().block_scales, OrNone(extension.block_scales));
  Init(object, N().packing, OrNone(extension.packing));
}

}  // namespace mooncake::python
