#include "env/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "env/errno_status.h"

namespace mooncake::env {
namespace {

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path ||
      path.find('\0') != std::string::npos) {
    return InvalidArgument("the socket path " + path + " has " + std::to_string(path.size()) +
                           " bytes, expected 1 to " + std::to_string(sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UniqueFd> NewSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "create a unix socket");
  return fd;
}

const sockaddr* Generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

// Clears the way for bind: removes a socket file without a listener, refuses anything else.
Status RemoveStaleSocket(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return OkStatus();
    return ErrnoStatus(errno, "stat " + path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return InvalidArgument("cannot listen at " + path + ": the file exists and is not a socket");
  }
  MC_ASSIGN_OR_RETURN(const UniqueFd probe, NewSocket());
  if (::connect(probe.get(), Generic(address), sizeof address) != 0 && errno == ECONNREFUSED) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
    return OkStatus();
  }
  return InvalidArgument("cannot listen at " + path + ": another process serves it");
}

}  // namespace

Result<UnixSocket> UnixSocket::Connect(const std::string& path, Deadline deadline,
                                       const Interrupter* interrupter) {
  MC_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  MC_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  const std::string attempted = "connect to " + path;
  while (::connect(fd.get(), Generic(address), sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (errno == EISCONN) break;
    if (errno == EAGAIN) {
      // The listener's queue is full, and poll(2) does not tell when it no longer is: try again
      // soon.
      if (interrupter != nullptr && interrupter->interrupted()) {
        return Cancelled("interrupted while waiting to " + attempted);
      }
      if (deadline.Expired()) {
        return Unavailable("the deadline ran out while waiting to " + attempted +
                           ": its queue is full");
      }
      (void)::poll(nullptr, 0, 1);
      continue;
    }
    const Status status = ErrnoStatus(errno, attempted);
    if (errno == ENOENT) return Unavailable(status.message());
    return status;
  }
  return UnixSocket(std::move(fd), interrupter);
}

Result<std::pair<UnixSocket, UnixSocket>> UnixSocket::Pair(const Interrupter* interrupter) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) {
    return ErrnoStatus(errno, "create a socket pair");
  }
  return std::pair(UnixSocket(UniqueFd(fds[0]), interrupter),
                   UnixSocket(UniqueFd(fds[1]), interrupter));
}

Result<UnixListener> UnixListener::Listen(const std::string& path, const Interrupter* interrupter,
                                          mode_t mode) {
  MC_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  MC_RETURN_IF_ERROR(RemoveStaleSocket(path, address));
  MC_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  // Before bind, so that the file is never open to more users than it should be.
  if (::fchmod(fd.get(), mode) != 0) return ErrnoStatus(errno, "set the mode of a unix socket");
  if (::bind(fd.get(), Generic(address), sizeof address) != 0) {
    return ErrnoStatus(errno, "bind " + path);
  }
  UnixListener listener(std::move(fd), path, interrupter);
  // The mode again: bind applied the umask.
  if (::chmod(path.c_str(), mode) != 0) return ErrnoStatus(errno, "set the mode of " + path);
  if (::listen(listener.fd_.get(), SOMAXCONN) != 0) return ErrnoStatus(errno, "listen at " + path);
  return listener;
}

UnixListener::~UnixListener() {
  if (fd_.valid()) ::unlink(address_.c_str());
}

}  // namespace mooncake::env
