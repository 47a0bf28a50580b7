// Reads a tensor's "extension" object (docs/extended_forms.md).
//
// Internal to the folder. What is read is checked by extension.h, not here.
#pragma once

#include <memory>

#include "base/status.h"
#include "manifest/json_fields.h"
#include "manifest/types.h"

namespace mooncake::manifest {

Result<std::shared_ptr<const TensorExtension>> ReadExtension(JsonValue value, const Label& label);

}  // namespace mooncake::manifest
