#include "rpc/unix_node_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {
namespace {

// Connections beyond the limit that may be open at once, just long enough to be told so.
constexpr size_t kRefusalsMax = 16;
constexpr int kRefusalMs = 1000;
// Out of descriptors: the connection stays queued and poll(2) would say "ready" at once.
constexpr int kBackOffMs = 50;

}  // namespace

Result<std::unique_ptr<UnixNodeServer>> UnixNodeServer::Start(const std::string& path,
                                                              NodeHandler& handler,
                                                              UnixNodeServerOptions options) {
  MC_ASSIGN_OR_RETURN(env::Interrupter interrupter, env::Interrupter::Create());
  std::unique_ptr<UnixNodeServer> server(
      new UnixNodeServer(std::move(interrupter), handler, std::move(options)));
  MC_RETURN_IF_ERROR(server->Listen(path));
  server->acceptor_ = std::thread([raw = server.get()] { raw->AcceptLoop(); });
  return server;
}

UnixNodeServer::UnixNodeServer(env::Interrupter interrupter, NodeHandler& handler,
                               UnixNodeServerOptions options)
    : interrupter_(std::move(interrupter)), handler_(handler), options_(std::move(options)) {}

UnixNodeServer::~UnixNodeServer() { Stop(); }

Status UnixNodeServer::Listen(const std::string& path) {
  MC_ASSIGN_OR_RETURN(env::UnixListener listener,
                      env::UnixListener::Listen(path, &interrupter_, options_.socket_mode));
  listener_ = std::make_unique<env::UnixListener>(std::move(listener));
  return OkStatus();
}

size_t UnixNodeServer::connection_count() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [](const Connection& c) { return !c.finished; }));
}

void UnixNodeServer::Stop() {
  if (!acceptor_.joinable()) return;
  interrupter_.Interrupt();
  acceptor_.join();
  // Nobody adds connections any more.
  for (Connection& connection : connections_) connection.thread.join();
  connections_.clear();
}

void UnixNodeServer::AcceptLoop() {
  while (!interrupter_.interrupted()) {
    Result<env::UnixSocket> accepted = listener_->Accept(env::Deadline::Infinite());
    Reap();
    if (accepted.ok()) {
      Begin(*std::move(accepted));
      continue;
    }
    if (accepted.status().code() == Code::kCancelled) return;
    Log().warn("node: accept on {}: {}", path(), accepted.status().ToString());
    pollfd stop{.fd = interrupter_.fd(), .events = POLLIN, .revents = 0};
    (void)::poll(&stop, 1, kBackOffMs);
  }
}

void UnixNodeServer::Begin(env::UnixSocket socket) {
  std::lock_guard lock(mutex_);
  if (connections_.size() >= options_.max_connections + kRefusalsMax) return;
  const bool over_limit = connections_.size() >= options_.max_connections;
  Connection& connection = connections_.emplace_back(std::move(socket));
  connection.thread =
      std::thread([this, &connection, over_limit] { Serve(&connection, over_limit); });
}

void UnixNodeServer::Reap() {
  std::list<Connection> ended;
  {
    std::lock_guard lock(mutex_);
    for (auto at = connections_.begin(); at != connections_.end();) {
      const auto next = std::next(at);
      if (at->finished) ended.splice(ended.end(), connections_, at);
      at = next;
    }
  }
  for (Connection& connection : ended) connection.thread.join();
}

void UnixNodeServer::Serve(Connection* connection, bool over_limit) {
  env::UnixSocket& socket = connection->socket;
  const Result<env::PeerCredentials> peer = socket.Peer();
  const Status admitted = peer.ok() ? Admit(*peer, over_limit) : peer.status();
  Status status;
  do {
    Result<std::optional<env::Frame>> frame = socket.ReceiveFrame(
        admitted.ok() ? env::Deadline::Infinite() : env::Deadline::AfterMs(kRefusalMs));
    if (frame.ok() && !frame->has_value()) break;  // the peer is done
    status = frame.ok()
                 ? Answer(socket, peer.ok() ? *peer : env::PeerCredentials{}, admitted, **frame)
                 : frame.status();
  } while (status.ok() && admitted.ok());
  if (!status.ok() && status.code() != Code::kCancelled) {
    Log().info("node: connection of pid {} on {} ends: {}", peer.ok() ? peer->pid : 0, path(),
               status.ToString());
  }
  socket.Shutdown();
  std::lock_guard lock(mutex_);
  connection->finished = true;
}

Status UnixNodeServer::Admit(const env::PeerCredentials& peer, bool over_limit) const {
  const bool allowed =
      peer.uid == ::geteuid() || peer.uid == 0 ||
      std::count(options_.allowed_uids.begin(), options_.allowed_uids.end(), peer.uid);
  if (!allowed) {
    return InvalidArgument(fmt::format("user {} (pid {}) may not use {}: expected user {} or root",
                                       peer.uid, peer.pid, path(), ::geteuid()));
  }
  if (over_limit) {
    return Exhausted(
        fmt::format("{} has {} connections already", path(), options_.max_connections));
  }
  return OkStatus();
}

Status UnixNodeServer::Answer(env::UnixSocket& socket, const env::PeerCredentials& peer,
                              const Status& admitted, const env::Frame& frame) {
  v1::NodeRequest request;
  if (!request.ParseFromString(frame.bytes)) {
    return InvalidArgument(
        fmt::format("a frame of {} bytes is no NodeRequest", frame.bytes.size()));
  }
  v1::NodeReply reply;
  env::UniqueFd fd;
  if (admitted.ok()) {
    reply = handler_.Handle(request, peer, &fd);
  } else {
    SetStatus(reply.mutable_status(), admitted);
  }
  reply.set_request_id(request.request_id());
  const int fds[1] = {fd.get()};
  return socket.SendFrame(reply.SerializeAsString(),
                          env::Deadline::AfterMs(options_.send_timeout_ms),
                          std::span<const int>(fds, fd.valid() ? 1 : 0));
}

}  // namespace mooncake::rpc
