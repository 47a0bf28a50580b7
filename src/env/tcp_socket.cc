#include "env/tcp_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "env/errno_status.h"

namespace mooncake::env {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> Resolve(const std::string& address, bool to_listen) {
  const auto bad = [&](const char* why) {
    return InvalidArgument("the TCP address \"" + address + "\" is no host:port: " + why);
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad("it has no host or no port");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return bad("an IPv6 address is written in brackets");
  }
  const std::string port = address.substr(colon + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool whole = error == std::errc() && end == port.data() + port.size();
  if (!whole || number > 65535 || (number == 0 && !to_listen)) return bad("its port is none");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failed != 0) {
    return Unavailable("cannot find the host of " + address + ": " + ::gai_strerror(failed));
  }
  return Addresses(found, &::freeaddrinfo);
}

Result<UniqueFd> NewSocket(const addrinfo& address) {
  UniqueFd fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "create a TCP socket");
  return fd;
}

// Whatever keeps a peer from being reached, asking again later may help.
Status Unreachable(int error, const std::string& attempted) {
  const Status status = ErrnoStatus(error, attempted);
  return status.code() == Code::kExhausted ? status : Unavailable(status.message());
}

Status ConnectOne(int fd, const addrinfo& address, const std::string& attempted, Deadline deadline,
                  const Interrupter* interrupter) {
  if (::connect(fd, address.ai_addr, address.ai_addrlen) == 0) return OkStatus();
  // Interrupted or not, the kernel goes on connecting.
  if (errno != EINPROGRESS && errno != EINTR) return Unreachable(errno, attempted);
  MC_RETURN_IF_ERROR(
      WaitReady(fd, POLLOUT, deadline, interrupter, "connect").WithContext(attempted));
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? OkStatus() : Unreachable(error, attempted);
}

}  // namespace

std::string NameOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return std::string(text.data()) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return "[" + std::string(text.data()) + "]:" + std::to_string(ntohs(v6.sin6_port));
}

Result<TcpSocket> TcpSocket::Connect(const std::string& address, Deadline deadline,
                                     const Interrupter* interrupter) {
  MC_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, /*to_listen=*/false));
  Status status;
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    MC_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(*one));
    status = ConnectOne(fd.get(), *one, "connect to " + address, deadline, interrupter);
    if (status.code() == Code::kCancelled) return status;
    if (!status.ok()) continue;
    const int on = 1;
    if (::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
      return ErrnoStatus(errno, "set TCP_NODELAY");
    }
    return TcpSocket(std::move(fd), interrupter);
  }
  return status;
}

Result<TcpListener> TcpListener::Listen(const std::string& address,
                                        const Interrupter* interrupter) {
  MC_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address, /*to_listen=*/true));
  MC_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket(*addresses));
  const int on = 1;
  // A port whose last connections linger counts as free.
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), addresses->ai_addr, addresses->ai_addrlen) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return Unavailable(ErrnoStatus(errno, "listen on " + address).message());
  }
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return ErrnoStatus(errno, "read the address of a listening socket");
  }
  const bool v4 = bound.ss_family == AF_INET;
  const auto& as_v4 = reinterpret_cast<const sockaddr_in&>(bound);
  const auto& as_v6 = reinterpret_cast<const sockaddr_in6&>(bound);
  const bool wildcard = v4 ? as_v4.sin_addr.s_addr == htonl(INADDR_ANY)
                           : IN6_IS_ADDR_UNSPECIFIED(&as_v6.sin6_addr) != 0;
  const uint16_t port = ntohs(v4 ? as_v4.sin_port : as_v6.sin6_port);
  return TcpListener(std::move(fd), NameOf(bound), wildcard, port, interrupter);
}

}  // namespace mooncake::env
