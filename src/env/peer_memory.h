// The memory of another process of this host, read where it lies: how a node takes the bytes of a
// put without their passing through a socket.
//
// Who is read is what the kernel says of a socket's other end, never what a message says. A process
// id alone may be another process's by the time it is used, so it is held by a pidfd, and a read
// counts only if that process was still there at its end. The kernel asks for no less than it does
// of a debugger (ptrace(2), "PTRACE_MODE_ATTACH_REALCREDS"): same user, or CAP_SYS_PTRACE; Yama and
// seccomp may forbid it altogether.
// Threads: const methods from any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"
#include "env/unique_fd.h"

namespace mooncake::env {

struct PeerRange {
  uint64_t address = 0;  // in the peer
  std::byte* target = nullptr;
  uint64_t bytes = 0;
};

class PeerProcess {
 public:
  // UNAVAILABLE: there is no such process. UNSUPPORTED: its id is not known here (0, of another pid
  // namespace), the kernel has no pidfd, or the caller is inside a World.
  static Result<PeerProcess> Open(pid_t pid);
  // Who connected, or listened, at the moment that they did.
  static Result<PeerProcess> OfSocket(int fd);

  // Whether asking makes sense: not inside a World, where processes share one memory and a message
  // with an address in it is another one every time.
  static bool Possible();

  pid_t pid() const { return pid_; }

  // All ranges or a failure, and then the targets hold anything. UNSUPPORTED: the kernel does not
  // let this process (another way must be found); UNAVAILABLE: the peer is gone; INVALID_ARGUMENT:
  // it has no such memory, with the range.
  Status Read(std::span<const PeerRange> ranges) const;

 private:
  PeerProcess(pid_t pid, UniqueFd handle) : pid_(pid), handle_(std::move(handle)) {}
  Status CheckAlive() const;

  pid_t pid_;
  UniqueFd handle_;
};

}  // namespace mooncake::env
