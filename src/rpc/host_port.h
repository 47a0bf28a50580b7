// "host:port" as flags, URIs and gRPC write it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake::rpc {

struct HostPort {
  std::string host;  // a name, an IPv4 address, or an IPv6 one in brackets
  std::string port;  // a number from 0 to 65535
};

// INVALID_ARGUMENT names the address and what is wrong with it.
Result<HostPort> SplitHostPort(const std::string& address);

// Whether what is sent there never leaves this host: localhost, 127.0.0.0/8, [::1].
bool IsLoopback(std::string_view host);

}  // namespace mooncake::rpc
