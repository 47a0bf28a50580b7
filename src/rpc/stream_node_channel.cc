#include "rpc/stream_node_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "env/tcp_socket.h"
#include "env/unix_socket.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {

Result<std::shared_ptr<StreamNodeChannel>> StreamNodeChannel::Connect(env::StreamKind kind,
                                                                      const std::string& address,
                                                                      const CallBounds& bounds) {
  std::shared_ptr<StreamNodeChannel> channel(new StreamNodeChannel(kind, address));
  std::lock_guard lock(channel->mutex_);
  MC_RETURN_IF_ERROR(channel->EnsureConnected(bounds));
  return channel;
}

Result<std::shared_ptr<StreamNodeChannel>> StreamNodeChannel::ConnectUnix(
    const std::string& socket_path, const CallBounds& bounds) {
  return Connect(env::StreamKind::kUnix, socket_path, bounds);
}

Result<std::shared_ptr<StreamNodeChannel>> StreamNodeChannel::ConnectTcp(const std::string& address,
                                                                         const CallBounds& bounds) {
  return Connect(env::StreamKind::kTcp, address, bounds);
}

StreamNodeChannel::Turn::~Turn() {
  if (channel_ == nullptr) return;
  {
    std::lock_guard lock(channel_->mutex_);
    channel_->taken_ = false;
  }
  channel_->free_.notify_one();
}

Result<StreamNodeChannel::Turn> StreamNodeChannel::TakeTurn(const CallBounds& bounds) {
  // A deadline may be further off than a wait can last.
  constexpr int64_t kStepMs = 60'000;
  std::unique_lock lock(mutex_);
  do {
    const auto step = std::chrono::milliseconds(std::min(bounds.deadline.RemainingMs(), kStepMs));
    if (free_.wait_for(lock, bounds.cancel, step, [this] { return !taken_; })) {
      taken_ = true;
      return Turn(this);
    }
    if (bounds.cancel.stop_requested()) {
      return Cancelled("given up while waiting for earlier calls");
    }
  } while (!bounds.deadline.Expired());
  return Unavailable("the deadline ran out while waiting for earlier calls");
}

Result<StreamNodeChannel::Answer> StreamNodeChannel::Call(v1::NodeRequest* request,
                                                          const CallBounds& bounds) {
  const std::string context = Describe();
  const Result<Turn> turn = TakeTurn(bounds);
  if (!turn.ok()) return turn.status().WithContext(context);
  const uint64_t request_id = next_request_id_++;
  request->set_request_id(request_id);
  const std::string bytes = request->SerializeAsString();
  for (bool reused = connection_ != nullptr && !connection_->IsForeign();; reused = false) {
    Status status = EnsureConnected(bounds);
    if (status.ok()) {
      Result<Answer> answer = Exchange(bytes, request_id, bounds);
      if (answer.ok()) {
        const Status refusal = StatusFromProto(answer->reply.status());
        if (refusal.ok()) return answer;
        return refusal;
      }
      status = answer.status();
      // Whatever is still on the stream belongs to nobody.
      connection_.reset();
    }
    const bool again = reused && status.code() == Code::kUnavailable && !bounds.deadline.Expired();
    if (!again) return status.WithContext(context);
  }
}

Status StreamNodeChannel::EnsureConnected(const CallBounds& bounds) {
  if (connection_ != nullptr && !connection_->IsForeign()) return OkStatus();
  MC_ASSIGN_OR_RETURN(env::Interrupter made, env::Interrupter::Create());
  Result<env::StreamSocket> socket = [&]() -> Result<env::StreamSocket> {
    const std::stop_callback give_up(bounds.cancel, [&made] { made.Interrupt(); });
    if (kind_ == env::StreamKind::kTcp) {
      MC_ASSIGN_OR_RETURN(env::TcpSocket tcp,
                          env::TcpSocket::Connect(address_, bounds.deadline, &made));
      return env::StreamSocket(std::move(tcp));
    }
    // Connecting waits only while the node's queue is full.
    MC_ASSIGN_OR_RETURN(env::UnixSocket unix_socket,
                        env::UnixSocket::Connect(address_, bounds.deadline, &made));
    return env::StreamSocket(std::move(unix_socket));
  }();
  if (!socket.ok()) return socket.status();
  connection_ = std::make_unique<Connection>(std::move(made), *std::move(socket));
  return OkStatus();
}

Result<StreamNodeChannel::Answer> StreamNodeChannel::Exchange(const std::string& bytes,
                                                              uint64_t request_id,
                                                              const CallBounds& bounds) {
  env::StreamSocket& socket = connection_->socket;
  Result<env::Frame> frame = [&]() -> Result<env::Frame> {
    const std::stop_callback give_up(
        bounds.cancel, [interrupter = &connection_->interrupter] { interrupter->Interrupt(); });
    MC_RETURN_IF_ERROR(socket.SendFrame(bytes, bounds.deadline));
    return socket.ReceiveReply(bounds.deadline);
  }();
  if (!frame.ok()) return frame.status();
  Answer answer;
  if (!answer.reply.ParseFromString(frame->bytes)) {
    return Internal(fmt::format("a frame of {} bytes is no NodeReply", frame->bytes.size()));
  }
  if (answer.reply.request_id() != request_id) {
    return Internal(fmt::format("expected the reply to request {}, got {}", request_id,
                                answer.reply.request_id()));
  }
  answer.fds = std::move(frame->fds);
  // Given up when the answer was there already: the next caller did not give up.
  if (bounds.cancel.stop_requested()) connection_.reset();
  return answer;
}

Result<std::shared_ptr<NodeChannel>> SocketNodeConnector::Connect(const v1::NodeAddress& address,
                                                                  const CallBounds& bounds) {
  const bool same_host = address.host_id() == host_id_;
  const std::string name = fmt::format("node {} of host {}", address.node_id(), address.host_id());
  if (same_host && address.socket_path().empty()) {
    return InvalidArgument(name + " has no socket path");
  }
  if (!same_host && address.tcp_address().empty()) {
    return Unsupported(
        fmt::format("{} serves no clients of other hosts, as this one ({}): it was "
                    "started without a TCP address",
                    name, host_id_));
  }
  Result<std::shared_ptr<StreamNodeChannel>> channel =
      same_host ? StreamNodeChannel::ConnectUnix(address.socket_path(), bounds)
                : StreamNodeChannel::ConnectTcp(address.tcp_address(), bounds);
  if (!channel.ok()) return channel.status().WithContext(name);
  return std::shared_ptr<NodeChannel>(*std::move(channel));
}

}  // namespace mooncake::rpc
