// The Master's view of the cluster as JSON text, for command line tools.
#pragma once

#include <string>

#include "base/status.h"
#include "rpc/master_api.h"

namespace mooncake::cluster {

Result<std::string> ClusterJson(rpc::MasterApi& master);

}  // namespace mooncake::cluster
