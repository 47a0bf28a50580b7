#include "rpc/unix_node_channel.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {

Result<std::shared_ptr<UnixNodeChannel>> UnixNodeChannel::Connect(const std::string& socket_path,
                                                                  UnixNodeChannelOptions options) {
  std::shared_ptr<UnixNodeChannel> channel(new UnixNodeChannel(socket_path, options));
  std::lock_guard lock(channel->mutex_);
  MC_RETURN_IF_ERROR(channel->EnsureConnected());
  return channel;
}

Result<env::UniqueFd> UnixNodeChannel::OpenArena(const v1::Grant& grant) {
  v1::NodeRequest request;
  *request.mutable_open_arena()->mutable_grant() = grant;
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&request));
  if (answer.reply.arena_bytes() != grant.arena_bytes()) {
    return Corrupt(fmt::format("node at {}: expected arena {} of {} bytes, got {}", socket_path_,
                               grant.arena_id(), grant.arena_bytes(), answer.reply.arena_bytes()));
  }
  if (answer.fds.size() != 1) {
    return Internal(fmt::format("node at {}: expected 1 descriptor with arena {}, got {}",
                                socket_path_, grant.arena_id(), answer.fds.size()));
  }
  return std::move(answer.fds.front());
}

Status UnixNodeChannel::WriteMetadata(const v1::Grant& grant, std::string_view name,
                                      std::string_view content) {
  v1::NodeRequest request;
  v1::WriteMetadata* write = request.mutable_write_metadata();
  *write->mutable_grant() = grant;
  write->set_name(name.data(), name.size());
  write->set_content(content.data(), content.size());
  const Sha256Digest sha256 = Sha256Of(content);
  write->set_sha256(sha256.data(), sha256.size());
  return Call(&request).status();
}

Result<std::string> UnixNodeChannel::ReadMetadata(const v1::Grant& grant, std::string_view name) {
  v1::NodeRequest request;
  *request.mutable_read_metadata()->mutable_grant() = grant;
  request.mutable_read_metadata()->set_name(name.data(), name.size());
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&request));
  return std::move(*answer.reply.mutable_content());
}

Status UnixNodeChannel::SealImport(const v1::Grant& grant) {
  v1::NodeRequest request;
  *request.mutable_seal_import()->mutable_grant() = grant;
  return Call(&request).status();
}

Result<UnixNodeChannel::Answer> UnixNodeChannel::Call(v1::NodeRequest* request) {
  std::lock_guard lock(mutex_);
  const uint64_t request_id = next_request_id_++;
  request->set_request_id(request_id);
  const std::string bytes = request->SerializeAsString();
  const env::Deadline deadline = env::Deadline::AfterMs(options_.call_timeout_ms);
  for (bool reused = socket_.has_value();; reused = false) {
    Status status = EnsureConnected();
    if (status.ok()) {
      Result<Answer> answer = Exchange(bytes, request_id, deadline);
      if (answer.ok()) {
        const Status refusal = StatusFromProto(answer->reply.status());
        if (refusal.ok()) return answer;
        return refusal;
      }
      status = answer.status();
      // Whatever is still on the stream belongs to nobody.
      socket_.reset();
    }
    const bool again = reused && status.code() == Code::kUnavailable && !deadline.Expired();
    if (!again) return status.WithContext("node at " + socket_path_);
  }
}

Status UnixNodeChannel::EnsureConnected() {
  if (socket_.has_value()) return OkStatus();
  MC_ASSIGN_OR_RETURN(
      env::UnixSocket socket,
      env::UnixSocket::Connect(socket_path_, env::Deadline::AfterMs(options_.connect_timeout_ms)));
  socket_.emplace(std::move(socket));
  return OkStatus();
}

Result<UnixNodeChannel::Answer> UnixNodeChannel::Exchange(const std::string& bytes,
                                                          uint64_t request_id,
                                                          env::Deadline deadline) {
  MC_RETURN_IF_ERROR(socket_->SendFrame(bytes, deadline));
  MC_ASSIGN_OR_RETURN(env::Frame frame, socket_->ReceiveReply(deadline));
  Answer answer;
  if (!answer.reply.ParseFromString(frame.bytes)) {
    return Internal(fmt::format("a frame of {} bytes is no NodeReply", frame.bytes.size()));
  }
  if (answer.reply.request_id() != request_id) {
    return Internal(fmt::format("expected the reply to request {}, got {}", request_id,
                                answer.reply.request_id()));
  }
  answer.fds = std::move(frame.fds);
  return answer;
}

Result<std::shared_ptr<NodeChannel>> UnixNodeConnector::Connect(const v1::NodeAddress& address) {
  if (address.socket_path().empty()) {
    return InvalidArgument(fmt::format("node {} has no socket path", address.node_id()));
  }
  Result<std::shared_ptr<UnixNodeChannel>> channel =
      UnixNodeChannel::Connect(address.socket_path(), options_);
  if (!channel.ok()) {
    return channel.status().WithContext(
        fmt::format("node {} of host {}", address.node_id(), address.host_id()));
  }
  return std::shared_ptr<NodeChannel>(*std::move(channel));
}

}  // namespace mooncake::rpc
