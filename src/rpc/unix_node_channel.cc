#include "rpc/unix_node_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "rpc/status_proto.h"

namespace mooncake::rpc {

Result<std::shared_ptr<UnixNodeChannel>> UnixNodeChannel::Connect(const std::string& socket_path,
                                                                  const CallBounds& bounds) {
  std::shared_ptr<UnixNodeChannel> channel(new UnixNodeChannel(socket_path));
  std::lock_guard lock(channel->mutex_);
  MC_RETURN_IF_ERROR(channel->EnsureConnected(bounds));
  return channel;
}

UnixNodeChannel::Turn::~Turn() {
  if (channel_ == nullptr) return;
  {
    std::lock_guard lock(channel_->mutex_);
    channel_->taken_ = false;
  }
  channel_->free_.notify_one();
}

Result<UnixNodeChannel::Turn> UnixNodeChannel::TakeTurn(const CallBounds& bounds) {
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

Result<UnixNodeChannel::Answer> UnixNodeChannel::Call(v1::NodeRequest* request,
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

Status UnixNodeChannel::EnsureConnected(const CallBounds& bounds) {
  if (connection_ != nullptr && !connection_->IsForeign()) return OkStatus();
  MC_ASSIGN_OR_RETURN(env::Interrupter made, env::Interrupter::Create());
  // Connecting waits only while the node's queue is full.
  MC_ASSIGN_OR_RETURN(env::UnixSocket socket,
                      env::UnixSocket::Connect(socket_path_, bounds.deadline));
  connection_ = std::make_unique<Connection>(std::move(made), std::move(socket));
  return OkStatus();
}

Result<UnixNodeChannel::Answer> UnixNodeChannel::Exchange(const std::string& bytes,
                                                          uint64_t request_id,
                                                          const CallBounds& bounds) {
  env::UnixSocket& socket = connection_->socket;
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

Result<std::shared_ptr<NodeChannel>> UnixNodeConnector::Connect(const v1::NodeAddress& address,
                                                                const CallBounds& bounds) {
  if (address.socket_path().empty()) {
    return InvalidArgument(fmt::format("node {} has no socket path", address.node_id()));
  }
  Result<std::shared_ptr<UnixNodeChannel>> channel =
      UnixNodeChannel::Connect(address.socket_path(), bounds);
  if (!channel.ok()) {
    return channel.status().WithContext(
        fmt::format("node {} of host {}", address.node_id(), address.host_id()));
  }
  return std::shared_ptr<NodeChannel>(*std::move(channel));
}

}  // namespace mooncake::rpc
