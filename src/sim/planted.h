// Bugs on purpose: each is built into a seam between production parts, as if the part behind it had
// it, so that the judge can prove that it would see one.
#pragma once

#include <memory>

#include "sim/judge.h"
#include "sim/scenario.h"
#include "sim/written_arenas.h"

namespace mooncake::sim {

// Also without a bug it shows the judge every record of the log. After the network's hooks are set.
void Plant(PlantedBug bug, SimCluster& cluster, Judge& judge,
           const std::shared_ptr<WrittenArenas>& arenas);

}  // namespace mooncake::sim
