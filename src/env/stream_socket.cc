#include "env/stream_socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "env/errno_status.h"
#include "env/tcp_socket.h"

namespace mooncake::env {
namespace {

constexpr size_t kHeaderBytes = 4;
constexpr size_t kReceiveStepBytes = 64 << 10;
constexpr size_t kControlBytes = CMSG_SPACE(kFrameFdsMax * sizeof(int));

Status CheckNotInterrupted(const Interrupter* interrupter, const char* attempted) {
  if (interrupter == nullptr || !interrupter->interrupted()) return OkStatus();
  return Cancelled(std::string("interrupted before trying to ") + attempted);
}

// The descriptors of one message. All of them are taken, so that none leaks whatever comes next.
void TakeFds(msghdr* message, std::vector<UniqueFd>* fds) {
  for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr;
       control = CMSG_NXTHDR(message, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof fd);
      fds->emplace_back(fd);
    }
  }
}

Status TornFrame(size_t got, size_t wanted) {
  return Unavailable("the peer closed the connection inside a frame: got " + std::to_string(got) +
                     " of " + std::to_string(wanted) + " bytes");
}

std::array<char, kHeaderBytes> EncodeLength(size_t bytes) {
  std::array<char, kHeaderBytes> header{};
  for (size_t i = 0; i < kHeaderBytes; ++i) header[i] = static_cast<char>(bytes >> (8 * i) & 0xff);
  return header;
}

uint32_t DecodeLength(const std::array<char, kHeaderBytes>& header) {
  uint32_t bytes = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) {
    bytes |= uint32_t{static_cast<uint8_t>(header[i])} << (8 * i);
  }
  return bytes;
}

// What accept(2) says of a connection that failed before it was accepted; the next one may be good.
bool IsOfTheConnection(int error) {
  switch (error) {
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
      return true;
    default:
      return false;
  }
}

}  // namespace

Status WaitReady(int fd, short events, Deadline deadline, const Interrupter* interrupter,
                 const char* attempted) {
  for (;;) {
    std::array<pollfd, 2> items{
        pollfd{.fd = fd, .events = events, .revents = 0},
        pollfd{
            .fd = interrupter != nullptr ? interrupter->fd() : -1, .events = POLLIN, .revents = 0}};
    const int ready = ::poll(items.data(), items.size(), deadline.PollTimeoutMs());
    if (ready < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, std::string("wait to ") + attempted);
    }
    if (items[1].revents != 0)
      return Cancelled(std::string("interrupted while waiting to ") + attempted);
    if (items[0].revents != 0) return OkStatus();
    if (deadline.Expired())
      return Unavailable(std::string("the deadline ran out while waiting to ") + attempted);
  }
}

Result<PeerCredentials> StreamSocket::Peer() const {
  if (kind_ == StreamKind::kTcp) return Unsupported("TCP does not say which process asks");
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return ErrnoStatus(errno, "read the peer's credentials");
  }
  return PeerCredentials{.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

std::string StreamSocket::PeerName() const {
  if (kind_ == StreamKind::kUnix) {
    const Result<PeerCredentials> peer = Peer();
    return peer.ok() ? "process " + std::to_string(peer->pid) : "a process of this host";
  }
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "a peer that is gone";
  }
  return NameOf(address);
}

Status StreamSocket::WaitReadable(Deadline deadline) const {
  return WaitReady(fd_.get(), POLLIN, deadline, interrupter_, "receive a frame");
}

void StreamSocket::Shutdown() const { ::shutdown(fd_.get(), SHUT_RDWR); }

Status StreamSocket::SendFrame(std::string_view bytes, Deadline deadline,
                               std::span<const int> fds) {
  if (bytes.size() > kFrameBytesMax) {
    return InvalidArgument("a frame has at most " + std::to_string(kFrameBytesMax) +
                           " bytes, got " + std::to_string(bytes.size()));
  }
  if (fds.size() > kFrameFdsMax) {
    return InvalidArgument("a frame carries at most " + std::to_string(kFrameFdsMax) +
                           " descriptors, got " + std::to_string(fds.size()));
  }
  if (!fds.empty() && kind_ == StreamKind::kTcp) {
    return Unsupported("descriptors do not travel over TCP");
  }
  if (broken_) return Unavailable("the connection broke inside an earlier frame");
  bool started = false;
  Status status = SendWhole(bytes, deadline, fds, &started);
  if (!status.ok() && started) broken_ = true;
  return status;
}

Status StreamSocket::SendWhole(std::string_view bytes, Deadline deadline, std::span<const int> fds,
                               bool* started) const {
  std::array<char, kHeaderBytes> header = EncodeLength(bytes.size());
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  const size_t total = kHeaderBytes + bytes.size();
  size_t sent = 0;
  while (sent < total) {
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (sent < kHeaderBytes) parts[count++] = {header.data() + sent, kHeaderBytes - sent};
    const size_t body = std::max(sent, kHeaderBytes) - kHeaderBytes;
    if (body < bytes.size()) {
      parts[count++] = {const_cast<char*>(bytes.data()) + body, bytes.size() - body};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    if (sent == 0 && !fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    }
    const ssize_t got = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got >= 0) {
      sent += static_cast<size_t>(got);
      *started = true;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) {
      return ErrnoStatus(errno, "send a frame of " + std::to_string(bytes.size()) + " bytes");
    }
    MC_RETURN_IF_ERROR(WaitReady(fd_.get(), POLLOUT, deadline, interrupter_, "send a frame"));
  }
  return OkStatus();
}

Result<size_t> StreamSocket::ReceiveSome(char* target, size_t bytes, Deadline deadline,
                                         std::vector<UniqueFd>* fds) const {
  for (;;) {
    alignas(cmsghdr) std::array<char, kControlBytes> control;
    iovec part{target, bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got >= 0) {
      TakeFds(&message, fds);
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        return Exhausted("cannot take all descriptors of a frame: this process has too many open");
      }
      if (fds->size() > kFrameFdsMax) {
        return InvalidArgument("a frame carries at most " + std::to_string(kFrameFdsMax) +
                               " descriptors, got " + std::to_string(fds->size()) + " or more");
      }
      return static_cast<size_t>(got);
    }
    if (errno == EINTR) continue;
    if (errno == ECONNRESET) return size_t{0};
    if (errno != EAGAIN) return ErrnoStatus(errno, "receive a frame");
    MC_RETURN_IF_ERROR(WaitReady(fd_.get(), POLLIN, deadline, interrupter_, "receive a frame"));
  }
}

Result<std::optional<Frame>> StreamSocket::ReceiveFrame(Deadline deadline) {
  if (broken_) return Unavailable("the connection broke inside an earlier frame");
  MC_RETURN_IF_ERROR(CheckNotInterrupted(interrupter_, "receive a frame"));
  bool started = false;
  auto frame = ReceiveWhole(deadline, &started);
  if (!frame.ok() && started) broken_ = true;
  return frame;
}

Result<std::optional<Frame>> StreamSocket::ReceiveWhole(Deadline deadline, bool* started) const {
  Frame frame;
  std::array<char, kHeaderBytes> header{};
  for (size_t got = 0; got < kHeaderBytes;) {
    const auto some = ReceiveSome(header.data() + got, kHeaderBytes - got, deadline, &frame.fds);
    // Descriptors that came with a refused message are part of a frame.
    *started =
        *started || some.ok() || !frame.fds.empty() || some.status().code() == Code::kExhausted;
    if (!some.ok()) return some.status();
    if (*some == 0) {
      if (got == 0) return std::optional<Frame>();
      return TornFrame(got, kHeaderBytes);
    }
    got += *some;
  }
  const uint32_t length = DecodeLength(header);
  if (length > kFrameBytesMax) {
    return InvalidArgument("a frame has at most " + std::to_string(kFrameBytesMax) +
                           " bytes, the peer announced " + std::to_string(length));
  }
  for (size_t got = 0; got < length;) {
    if (got == frame.bytes.size()) {
      frame.bytes.resize(std::min<size_t>(length, std::max(kReceiveStepBytes, 2 * got)));
    }
    MC_ASSIGN_OR_RETURN(
        const size_t some,
        ReceiveSome(frame.bytes.data() + got, frame.bytes.size() - got, deadline, &frame.fds));
    if (some == 0) return TornFrame(got, length);
    got += some;
  }
  return std::optional<Frame>(std::move(frame));
}

Result<Frame> StreamSocket::ReceiveReply(Deadline deadline) {
  MC_ASSIGN_OR_RETURN(std::optional<Frame> frame, ReceiveFrame(deadline));
  if (!frame.has_value()) return Unavailable("the peer closed the connection");
  return *std::move(frame);
}

Result<StreamSocket> StreamListener::Accept(Deadline deadline) const {
  MC_RETURN_IF_ERROR(CheckNotInterrupted(interrupter_, "accept a connection"));
  for (;;) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd.valid()) {
      const int one = 1;
      // A reply is one write; waiting for more of it only costs time.
      if (kind_ == StreamKind::kTcp) {
        (void)::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      }
      return StreamSocket(std::move(fd), kind_, interrupter_);
    }
    if (IsOfTheConnection(errno)) continue;
    if (errno != EAGAIN) return ErrnoStatus(errno, "accept a connection at " + address_);
    MC_RETURN_IF_ERROR(WaitReady(fd_.get(), POLLIN, deadline, interrupter_, "accept a connection"));
  }
}

}  // namespace mooncake::env
