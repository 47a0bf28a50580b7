// Reads the wire JSON of placements and stored manifests (canonical.h writes it).
//
// The text is the world's: any bytes give a value or INVALID_ARGUMENT, with bounded recursion and
// memory linear in the text. Key order, array order (placements) and whitespace are free; key sets
// are exact. Refused: invalid UTF-8, a byte order mark, duplicate keys, NaN and infinities, floats
// or booleans where integers belong, integers beyond 64 bits, lone surrogate escapes, nesting
// deeper than kJsonDepthMax. What was read is then made by validate.h, so every contract check
// runs.
#pragma once

#include <string_view>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// No document of the contracts nests deeper than 7.
inline constexpr int kJsonDepthMax = 64;

Result<PlacementPtr> PlacementFromJson(std::string_view text);
Result<StoredManifestPtr> StoredManifestFromJson(std::string_view text);

}  // namespace mooncake::manifest
