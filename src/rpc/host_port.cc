#include "rpc/host_port.h"

#include <fmt/format.h>

namespace mooncake::rpc {
namespace {

// Four decimal numbers up to 255: "127.evil.example" is a name.
bool IsIpv4(std::string_view host) {
  int numbers = 0;
  while (true) {
    const size_t end = std::min(host.find('.'), host.size());
    const std::string_view number = host.substr(0, end);
    if (number.empty() || number.size() > 3 ||
        number.find_first_not_of("0123456789") != std::string_view::npos ||
        std::stoi(std::string(number)) > 255) {
      return false;
    }
    ++numbers;
    if (end == host.size()) return numbers == 4;
    host.remove_prefix(end + 1);
  }
}

}  // namespace

Result<HostPort> SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return InvalidArgument(fmt::format("expected host:port, got \"{}\"", address));
  }
  const HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  const bool digits = parts.port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || parts.port.size() > 5 || std::stoul(parts.port) > 65535) {
    return InvalidArgument(
        fmt::format("expected a port from 0 to 65535 in \"{}\", got \"{}\"", address, parts.port));
  }
  return parts;
}

bool IsLoopback(std::string_view host) {
  if (host == "localhost" || host == "[::1]" || host == "::1") return true;
  return host.starts_with("127.") && IsIpv4(host);
}

}  // namespace mooncake::rpc
