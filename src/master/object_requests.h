// Checks of what every request about ordinary objects has.
#pragma once

#include <string>

#include "base/status.h"

namespace mooncake::master {

// INVALID_ARGUMENT: a tenant id that is none, or more keys than one request may have.
Status CheckTenantAndKeys(const std::string& tenant_id, int keys);
Status CheckClientId(const std::string& client_id);

}  // namespace mooncake::master
