// Bugs on purpose: each is built into a seam between production parts, as if the part behind it had
// it, so that the judge can prove that it would see one.
#pragma once

#include <memory>

#include "sim/judge.h"
#include "sim/scenario.h"

namespace mooncake::sim {

// Also without a bug it shows the judge every record of the log. What is returned must outlive the
// run.
std::shared_ptr<void> Plant(PlantedBug bug, SimCluster& cluster, Judge& judge);

}  // namespace mooncake::sim
