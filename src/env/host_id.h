// Which host this is: equal for processes that can share memory and Unix sockets.
#pragma once

#include <string>

namespace mooncake::env {

// "<machine-id>-<boot id>", or the parts of it that the system has. The boot id makes two machines
// with one cloned image, and one machine before and after a restart, different.
std::string HostId();

}  // namespace mooncake::env
