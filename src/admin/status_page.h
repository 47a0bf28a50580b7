// What /status says: the Master's observation as JSON, for people and scripts.
#pragma once

#include <string>

#include "admin/observation.h"

namespace mooncake::admin {

// {"cluster": v1.GetClusterReply, "tenants": [v1.TenantStatus]}, with the schema's field names;
// 64-bit numbers are strings, as in every JSON of the schema. INTERNAL: a text that is no UTF-8.
Result<std::string> StatusJson(const Observation& seen);

}  // namespace mooncake::admin
