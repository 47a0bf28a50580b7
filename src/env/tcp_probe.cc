#include "env/tcp_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "env/errno_status.h"
#include "env/unique_fd.h"

namespace mooncake::env {

namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> Resolve(const std::string& host, const std::string& port, int flags,
                          const std::string& attempted) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return Unavailable("cannot " + attempted + ": " + ::gai_strerror(error));
  return Addresses(found, &::freeaddrinfo);
}

// UNAVAILABLE: not within the deadline.
Status Await(const UniqueFd& fd, short events, Deadline deadline) {
  pollfd item{.fd = fd.get(), .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&item, 1, deadline.PollTimeoutMs());
    if (ready > 0) return OkStatus();
    if (ready == 0) return Unavailable("no answer in time");
    if (errno != EINTR) return ErrnoStatus(errno, "wait for a socket");
  }
}

}  // namespace

Status ProbeTcpListen(const std::string& host, const std::string& port) {
  const std::string attempted = "listen on " + host + ":" + port;
  MC_ASSIGN_OR_RETURN(const Addresses found, Resolve(host, port, AI_PASSIVE, attempted));
  const UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int one = 1;
  // As servers do, so that a port whose last connections linger counts as free.
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
      ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), 1) != 0) {
    return Unavailable(ErrnoStatus(errno, attempted).message());
  }
  return OkStatus();
}

Result<TcpProbe> TcpProbe::Connect(const std::string& host, const std::string& port,
                                   Deadline deadline) {
  const std::string attempted = "connect to " + host + ":" + port;
  MC_ASSIGN_OR_RETURN(const Addresses found, Resolve(host, port, 0, attempted));
  Status why;
  for (const addrinfo* address = found.get(); address != nullptr; address = address->ai_next) {
    UniqueFd fd(::socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) return ErrnoStatus(errno, attempted);
    int error = ::connect(fd.get(), address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      why = Await(fd, POLLOUT, deadline).WithContext(attempted);
      if (!why.ok()) continue;
      socklen_t bytes = sizeof error;
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
    if (error == 0) return TcpProbe(std::move(fd), deadline);
    why = Unavailable(ErrnoStatus(error, attempted).message());
  }
  return why;
}

Status TcpProbe::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    MC_RETURN_IF_ERROR(Await(fd_, POLLOUT, deadline_));
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) return Unavailable(ErrnoStatus(errno, "send").message());
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return OkStatus();
}

Result<std::string> TcpProbe::Receive() {
  char buffer[16 * 1024];
  while (true) {
    MC_RETURN_IF_ERROR(Await(fd_, POLLIN, deadline_));
    const ssize_t got = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (got >= 0) return std::string(buffer, static_cast<size_t>(got));
    if (errno == EINTR || errno == EAGAIN) continue;
    return Unavailable(ErrnoStatus(errno, "receive").message());
  }
}

}  // namespace mooncake::env
