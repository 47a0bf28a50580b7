// What requests about ordinary objects share: checks of what every one of them has, and words for
// messages.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "mooncake/v1/master.pb.h"

namespace mooncake::master {

// INVALID_ARGUMENT: a tenant id that is none, or more keys than one request may have.
Status CheckTenantAndKeys(const std::string& tenant_id, int keys);
Status CheckClientId(const std::string& client_id);
// Keys are any bytes; the text is printable and not too long.
std::string Quoted(std::string_view key);

}  // namespace mooncake::master
