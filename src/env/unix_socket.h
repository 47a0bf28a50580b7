// Unix stream sockets that carry frames, with file descriptors when asked.
//
// Frame on the wire: u32 little-endian length, then that many bytes; descriptors travel with the
// frame's first byte (SCM_RIGHTS). A length over kFrameBytesMax is refused before anything is
// allocated, and memory grows with the bytes that arrive, never with the length alone.
//
// Every call waits in poll(2) until its Deadline; an Interrupter given at creation ends all waits
// with CANCELLED. EINTR, short reads and short writes stay inside. Descriptors are close-on-exec
// from birth. Once a frame was torn (deadline, interrupt or error in its middle) the stream has no
// meaning any more and every later call answers UNAVAILABLE.
//
// Threads: one thread at a time, except Shutdown, which any thread may call to wake the others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "env/deadline.h"
#include "env/interrupter.h"
#include "env/unique_fd.h"

namespace mooncake::env {

// As large as a message to the Master may be: the manifest of a model of 100,000 tensors is some 70
// MB.
inline constexpr uint32_t kFrameBytesMax = 256u << 20;
// The kernel's SCM_MAX_FD.
inline constexpr size_t kFrameFdsMax = 253;

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

struct Frame {
  std::string bytes;
  std::vector<UniqueFd> fds;
};

class UnixSocket {
 public:
  // UNAVAILABLE when nobody listens at `path` (also when it does not exist).
  static Result<UnixSocket> Connect(const std::string& path, Deadline deadline,
                                    const Interrupter* interrupter = nullptr);
  // Two ends of one connection in this process.
  static Result<std::pair<UnixSocket, UnixSocket>> Pair(const Interrupter* interrupter = nullptr);

  UnixSocket(UnixSocket&&) = default;
  UnixSocket& operator=(UnixSocket&&) = default;

  // From now on this one ends all waits. It must outlive them.
  void Watch(const Interrupter& interrupter) { interrupter_ = &interrupter; }

  // Who the kernel says connected (or listened), as it was at that moment.
  Result<PeerCredentials> Peer() const;

  // INVALID_ARGUMENT (nothing sent) over a limit; UNAVAILABLE when the peer is gone or the deadline
  // ran out. The descriptors stay the caller's.
  Status SendFrame(std::string_view bytes, Deadline deadline, std::span<const int> fds = {});

  // nullopt: the peer closed between frames, the regular end. INVALID_ARGUMENT: a frame over a
  // limit. UNAVAILABLE: closed inside a frame, or the deadline ran out. EXHAUSTED: this process is
  // out of descriptors.
  Result<std::optional<Frame>> ReceiveFrame(Deadline deadline);

  // Where the end of the stream is no regular answer: UNAVAILABLE then.
  Result<Frame> ReceiveReply(Deadline deadline);

  // Waits until the peer sent something or closed. UNAVAILABLE: the deadline ran out.
  Status WaitReadable(Deadline deadline) const;

  // Both directions end, for the peer too; a blocked call returns.
  void Shutdown() const;

  int fd() const { return fd_.get(); }

 private:
  friend class UnixListener;
  UnixSocket(UniqueFd fd, const Interrupter* interrupter)
      : fd_(std::move(fd)), interrupter_(interrupter) {}

  Status SendWhole(std::string_view bytes, Deadline deadline, std::span<const int> fds,
                   bool* started) const;
  // Up to `bytes` bytes; 0 at the end of the stream. Descriptors are appended to `fds`.
  Result<size_t> ReceiveSome(char* target, size_t bytes, Deadline deadline,
                             std::vector<UniqueFd>* fds) const;
  Result<std::optional<Frame>> ReceiveWhole(Deadline deadline, bool* started) const;

  UniqueFd fd_;
  const Interrupter* interrupter_;
  bool broken_ = false;
};

class UnixListener {
 public:
  // Binds `path` with permission bits `mode`. A socket file that nobody listens on any more is
  // replaced; one that is served, or a file of another kind, is INVALID_ARGUMENT. Paths are at most
  // 107 bytes.
  static Result<UnixListener> Listen(const std::string& path,
                                     const Interrupter* interrupter = nullptr, mode_t mode = 0600);

  UnixListener(UnixListener&& other) noexcept
      : fd_(std::move(other.fd_)),
        path_(std::exchange(other.path_, {})),
        interrupter_(other.interrupter_) {}
  UnixListener& operator=(UnixListener&&) = delete;
  // Removes the socket file.
  ~UnixListener();

  // UNAVAILABLE when the deadline ran out, CANCELLED when interrupted, EXHAUSTED when out of
  // descriptors (the connection stays in the queue: back off before the next call). The accepted
  // socket watches the same Interrupter.
  Result<UnixSocket> Accept(Deadline deadline);

  const std::string& path() const { return path_; }

 private:
  UnixListener(UniqueFd fd, std::string path, const Interrupter* interrupter)
      : fd_(std::move(fd)), path_(std::move(path)), interrupter_(interrupter) {}

  UniqueFd fd_;
  std::string path_;
  const Interrupter* interrupter_;
};

}  // namespace mooncake::env
