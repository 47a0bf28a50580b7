// TCP connections: how clients of other hosts reach a node. What they carry is stream_socket.h's.
//
// Addresses are host:port, an IPv6 address in brackets. The host may be a name, which the system's
// resolver looks up in its own time, whatever the deadline. TCP_NODELAY is on, at both ends.
#pragma once

#include <sys/socket.h>

#include <string>
#include <utility>

#include "base/status.h"
#include "env/stream_socket.h"

namespace mooncake::env {

class TcpSocket : public StreamSocket {
 public:
  // Tries every address of the host. UNAVAILABLE: nobody listens there, or cannot be reached in
  // time; CANCELLED: interrupted; INVALID_ARGUMENT: no host:port.
  static Result<TcpSocket> Connect(const std::string& address, Deadline deadline,
                                   const Interrupter* interrupter = nullptr);

 private:
  TcpSocket(UniqueFd fd, const Interrupter* interrupter)
      : StreamSocket(std::move(fd), StreamKind::kTcp, interrupter) {}
};

class TcpListener final : public StreamListener {
 public:
  // Port 0: the system assigns one. UNAVAILABLE, with the cause, when the address cannot be had.
  static Result<TcpListener> Listen(const std::string& address,
                                    const Interrupter* interrupter = nullptr);

  TcpListener(TcpListener&& other) noexcept = default;

  // Whether it listens on all addresses of the host, so that address() is no address to connect to.
  bool wildcard() const { return wildcard_; }
  uint16_t port() const { return port_; }

 private:
  TcpListener(UniqueFd fd, std::string address, bool wildcard, uint16_t port,
              const Interrupter* interrupter)
      : StreamListener(std::move(fd), StreamKind::kTcp, std::move(address), interrupter),
        wildcard_(wildcard),
        port_(port) {}

  bool wildcard_;
  uint16_t port_;
};

// "10.0.0.1:4242", "[::1]:4242".
std::string NameOf(const sockaddr_storage& address);

}  // namespace mooncake::env
