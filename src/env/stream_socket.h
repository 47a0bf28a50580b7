// Stream sockets that carry frames: connections of a Unix socket (unix_socket.h), which may carry
// file descriptors too, and of TCP (tcp_socket.h).
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

enum class StreamKind : uint8_t { kUnix, kTcp };

class StreamSocket {
 public:
  // A connected, non-blocking socket.
  StreamSocket(UniqueFd fd, StreamKind kind, const Interrupter* interrupter)
      : fd_(std::move(fd)), kind_(kind), interrupter_(interrupter) {}

  StreamKind kind() const { return kind_; }
  // From now on this one ends all waits. It must outlive them.
  void Watch(const Interrupter& interrupter) { interrupter_ = &interrupter; }

  // Who the kernel says connected (or listened), as it was at that moment. UNSUPPORTED over TCP.
  Result<PeerCredentials> Peer() const;
  // For messages: "process 12", "10.0.0.1:4242".
  std::string PeerName() const;

  // INVALID_ARGUMENT (nothing sent) over a limit; UNSUPPORTED: descriptors over TCP; UNAVAILABLE
  // when the peer is gone or the deadline ran out. The descriptors stay the caller's.
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
  Status SendWhole(std::string_view bytes, Deadline deadline, std::span<const int> fds,
                   bool* started) const;
  // Up to `bytes` bytes; 0 at the end of the stream. Descriptors are appended to `fds`.
  Result<size_t> ReceiveSome(char* target, size_t bytes, Deadline deadline,
                             std::vector<UniqueFd>* fds) const;
  Result<std::optional<Frame>> ReceiveWhole(Deadline deadline, bool* started) const;

  UniqueFd fd_;
  StreamKind kind_;
  const Interrupter* interrupter_;
  bool broken_ = false;
};

class StreamListener {
 public:
  virtual ~StreamListener() = default;
  StreamListener(const StreamListener&) = delete;
  StreamListener& operator=(const StreamListener&) = delete;

  // UNAVAILABLE when the deadline ran out, CANCELLED when interrupted, EXHAUSTED when out of
  // descriptors (the connection stays in the queue: back off before the next call). The accepted
  // socket watches the same Interrupter.
  Result<StreamSocket> Accept(Deadline deadline) const;

  // Where it can be reached: a path, or host:port with the port that was assigned.
  const std::string& address() const { return address_; }

 protected:
  StreamListener(UniqueFd fd, StreamKind kind, std::string address, const Interrupter* interrupter)
      : fd_(std::move(fd)), kind_(kind), address_(std::move(address)), interrupter_(interrupter) {}
  StreamListener(StreamListener&& other) noexcept = default;

  UniqueFd fd_;
  StreamKind kind_;
  std::string address_;
  const Interrupter* interrupter_;
};

// OK when `fd` is ready for `events` of poll(2), or has an error that the next call will report.
// `attempted` is for messages.
Status WaitReady(int fd, short events, Deadline deadline, const Interrupter* interrupter,
                 const char* attempted);

}  // namespace mooncake::env
