#include "env/tcp_probe.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "env/errno_status.h"
#include "env/unique_fd.h"

namespace mooncake::env {

Status ProbeTcpListen(const std::string& host, const std::string& port) {
  const std::string attempted = "listen on " + host + ":" + port;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return Unavailable("cannot " + attempted + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  const UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  // As servers do, so that a port whose last connections linger counts as free.
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), 1) != 0) {
    return Unavailable(ErrnoStatus(errno, attempted).message());
  }
  return OkStatus();
}

}  // namespace mooncake::env
