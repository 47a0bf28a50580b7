// Unix stream sockets: how processes of one host find each other, know each other, and pass file
// descriptors. What they carry is stream_socket.h's.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "base/status.h"
#include "env/stream_socket.h"

namespace mooncake::env {

class UnixSocket : public StreamSocket {
 public:
  // UNAVAILABLE when nobody listens at `path` (also when it does not exist).
  static Result<UnixSocket> Connect(const std::string& path, Deadline deadline,
                                    const Interrupter* interrupter = nullptr);
  // Two ends of one connection in this process.
  static Result<std::pair<UnixSocket, UnixSocket>> Pair(const Interrupter* interrupter = nullptr);

 private:
  UnixSocket(UniqueFd fd, const Interrupter* interrupter)
      : StreamSocket(std::move(fd), StreamKind::kUnix, interrupter) {}
};

class UnixListener final : public StreamListener {
 public:
  // Binds `path` with permission bits `mode`. A socket file that nobody listens on any more is
  // replaced; one that is served, or a file of another kind, is INVALID_ARGUMENT. Paths are at most
  // 107 bytes.
  static Result<UnixListener> Listen(const std::string& path,
                                     const Interrupter* interrupter = nullptr, mode_t mode = 0600);

  UnixListener(UnixListener&& other) noexcept = default;
  // Removes the socket file.
  ~UnixListener() override;

 private:
  UnixListener(UniqueFd fd, std::string path, const Interrupter* interrupter)
      : StreamListener(std::move(fd), StreamKind::kUnix, std::move(path), interrupter) {}
};

}  // namespace mooncake::env
