// The extended forms' small dataclasses (mooncake.reshard.weight.extended) and their C++ structs.
//
// As contract_values.h: Read... takes an object and returns its fields as they are. The GIL is held
// throughout.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "manifest/types.h"

namespace mooncake::python {

namespace nb = nanobind;

manifest::OwnedBox ReadOwnedBox(nb::handle object);
manifest::SectionPart ReadSection(nb::handle object);
manifest::Sections ReadSections(nb::handle object);
manifest::BlockScales ReadBlockScales(nb::handle object);
manifest::Packing ReadPacking(nb::handle object);
// Of an ExtendedTensor or ExtendedKind: what many tensors may have in common.
void ReadCommonForms(nb::handle object, manifest::TensorExtension* extension);
// The fields of an ExtendedTensor beyond its base's.
std::shared_ptr<const manifest::TensorExtension> ReadExtension(nb::handle tensor);

nb::tuple ToPython(const std::vector<manifest::OwnedTiling>& ownership);

}  // namespace mooncake::python
