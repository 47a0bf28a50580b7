// Internal to the folder: the ids of a placement that is otherwise complete.
#pragma once

#include "manifest/types.h"

namespace mooncake::manifest {

// Sets placement_id, digest and geometry_digest. All texts begin with the same parts, which are
// nearly all of the bytes, so those are written and hashed once.
void SetPlacementIdAndDigest(Placement& placement);

}  // namespace mooncake::manifest
