#include "env/peer_memory.h"

#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "env/errno_status.h"
#include "env/world.h"

namespace mooncake::env {
namespace {

#ifndef SO_PEERPIDFD
constexpr int SO_PEERPIDFD = 77;  // Linux 6.5
#endif

// Ranges of one call; the kernel's UIO_MAXIOV.
constexpr size_t kRangesPerCall = IOV_MAX;

std::string Text(pid_t pid) { return "process " + std::to_string(pid); }

Status ReadStatus(int error, pid_t pid, const PeerRange& range) {
  const Status status =
      ErrnoStatus(error, "read " + std::to_string(range.bytes) + " bytes at address " +
                             std::to_string(range.address) + " of " + Text(pid));
  switch (error) {
    case EPERM:
    case ENOSYS:
      return Unsupported(status.message());
    case ESRCH:
      return Unavailable(status.message());
    case EFAULT:
    case EINVAL:
      return InvalidArgument(status.message());
    default:
      return status;
  }
}

// What is left of the ranges, cut into what one call takes.
class Progress {
 public:
  explicit Progress(std::span<const PeerRange> ranges) : ranges_(ranges) { SkipDone(); }

  bool done() const { return at_ == ranges_.size(); }
  PeerRange current() const {
    const PeerRange& range = ranges_[at_];
    return {range.address + done_, range.target + done_, range.bytes - done_};
  }
  size_t Fill(std::span<iovec> local, std::span<iovec> remote) const {
    size_t count = 0;
    uint64_t skip = done_;
    for (size_t i = at_; i < ranges_.size() && count < local.size(); ++i) {
      const PeerRange& range = ranges_[i];
      const uint64_t bytes = range.bytes - skip;
      if (bytes > 0) {
        local[count] = {range.target + skip, bytes};
        // An address of another process: this one never follows it.
        remote[count] = {reinterpret_cast<void*>(range.address + skip), bytes};
        ++count;
      }
      skip = 0;
    }
    return count;
  }
  void Advance(uint64_t bytes) {
    while (bytes > 0) {
      const uint64_t step = std::min(bytes, ranges_[at_].bytes - done_);
      done_ += step;
      bytes -= step;
      SkipDone();
    }
  }

 private:
  void SkipDone() {
    while (at_ < ranges_.size() && done_ == ranges_[at_].bytes) {
      ++at_;
      done_ = 0;
    }
  }

  const std::span<const PeerRange> ranges_;
  size_t at_ = 0;
  uint64_t done_ = 0;  // of ranges_[at_]
};

}  // namespace

bool PeerProcess::Possible() { return World::Current() == nullptr; }

Result<PeerProcess> PeerProcess::Open(pid_t pid) {
  if (World::Current() != nullptr) {
    return Unsupported("simulated processes have no memory of their own to be read");
  }
  if (pid <= 0) return Unsupported("the peer's process is not known here: its id is 0");
  UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (handle.valid()) return PeerProcess(pid, std::move(handle));
  const Status status = ErrnoStatus(errno, "open " + Text(pid));
  if (errno == ESRCH) return Unavailable(status.message());
  if (errno == EPERM) return Unsupported(status.message());
  return status;
}

Result<PeerProcess> PeerProcess::OfSocket(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "read the peer's credentials");
  }
  int handle = -1;
  length = sizeof handle;
  if (World::Current() == nullptr && credentials.pid > 0 &&
      ::getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &handle, &length) == 0) {
    return PeerProcess(credentials.pid, UniqueFd(handle));
  }
  // An older kernel: whoever has that id by now.
  return Open(credentials.pid);
}

Status PeerProcess::CheckAlive() const {
  pollfd ended{.fd = handle_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&ended, 1, 0) == 0) return OkStatus();
  return Unavailable(Text(pid_) + " ended while its memory was read");
}

Status PeerProcess::Read(std::span<const PeerRange> ranges) const {
  if (World::Current() != nullptr) {
    return Unsupported("simulated processes have no memory of their own to be read");
  }
  std::array<iovec, kRangesPerCall> local;
  std::array<iovec, kRangesPerCall> remote;
  for (Progress left(ranges); !left.done();) {
    const size_t count = left.Fill(local, remote);
    const ssize_t got = ::process_vm_readv(pid_, local.data(), count, remote.data(), count, 0);
    if (got < 0 && errno == EINTR) continue;
    // Nothing, without an error, is no more than the kernel's way to say that it gave up.
    if (got <= 0) return ReadStatus(got < 0 ? errno : EFAULT, pid_, left.current());
    left.Advance(static_cast<uint64_t>(got));
  }
  return CheckAlive();
}

}  // namespace mooncake::env
