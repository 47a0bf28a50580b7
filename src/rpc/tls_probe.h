// Why a channel to the Master does not come to be, where gRPC says no more than that.
#pragma once

#include <string>

#include "base/status.h"
#include "env/deadline.h"
#include "rpc/credentials.h"

namespace mooncake::rpc {

// Makes a connection of its own with the same credentials. OK: nothing is wrong with them (any
// more), or nothing was learned in time. PERMISSION_DENIED: a certificate is not accepted, by us or
// by the Master. INVALID_ARGUMENT: one side speaks TLS and the other does not.
Status WhyNoChannel(const std::string& address, const Credentials& credentials,
                    env::Deadline deadline);

}  // namespace mooncake::rpc
