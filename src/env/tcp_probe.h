// Why a TCP port cannot be listened on, for libraries that bind by themselves and do not tell.
#pragma once

#include <string>

#include "base/status.h"

namespace mooncake::env {

// Binds and lets go again. UNAVAILABLE with the cause ("Address already in use") when that fails.
// `host` may be a name, or an IPv6 address in brackets; `port` is a number as text.
Status ProbeTcpListen(const std::string& host, const std::string& port);

}  // namespace mooncake::env
