#include "rpc/unix_node_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "env/clock.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {
namespace {

// How long a new client has to ask, and one that may not ask to be told so.
constexpr int kFirstRequestMs = 5000;
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
                                           [](const Connection& c) { return !c.closing; }));
}

void UnixNodeServer::Stop() {
  if (!acceptor_.joinable()) return;
  interrupter_.Interrupt();
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  room_.notify_all();
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
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return stopping_ || MakeRoom(); });
  if (stopping_) return;
  Connection& connection = connections_.emplace_back(std::move(socket));
  connection.thread = std::thread([this, &connection] { Serve(&connection); });
}

bool UnixNodeServer::MakeRoom() {
  size_t open = 0;
  Connection* idle = nullptr;
  for (Connection& connection : connections_) {
    if (connection.closing) continue;
    ++open;
    if (connection.busy) continue;
    if (idle == nullptr || connection.idle_since_ms < idle->idle_since_ms) idle = &connection;
  }
  if (open < options_.max_connections) return true;
  if (idle == nullptr) return false;
  idle->closing = true;
  idle->socket.Shutdown();
  return true;
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

void UnixNodeServer::Serve(Connection* connection) {
  const Result<env::PeerCredentials> known = connection->socket.Peer();
  const Status admitted = known.ok() ? Admit(*known) : known.status();
  const Result<env::PeerProcess> process = env::PeerProcess::OfSocket(connection->socket.fd());
  NodePeer peer;
  if (known.ok()) peer.name = fmt::format("process {}", known->pid);
  if (process.ok()) peer.process = &*process;
  Status why;
  int wait_ms = admitted.ok() ? kFirstRequestMs : kRefusalMs;
  while (ServeOne(connection, peer, admitted, wait_ms, &why)) {
    SetBusy(connection, false);
    wait_ms = options_.idle_timeout_ms;
  }
  if (!why.ok() && why.code() != Code::kCancelled) {
    Log().info("node: connection of {} on {} ends: {}", peer.name, path(), why.ToString());
  }
  connection->socket.Shutdown();
  {
    std::lock_guard lock(mutex_);
    connection->closing = true;
    connection->finished = true;
  }
  room_.notify_all();
}

bool UnixNodeServer::ServeOne(Connection* connection, const NodePeer& peer, const Status& admitted,
                              int wait_ms, Status* why) {
  env::UnixSocket& socket = connection->socket;
  // A client that was idle for so long hears it when it has a request: its connection is gone.
  if (!socket.WaitReadable(env::Deadline::AfterMs(wait_ms)).ok()) return false;
  if (!SetBusy(connection, true)) return false;
  Result<std::optional<env::Frame>> frame =
      socket.ReceiveFrame(env::Deadline::AfterMs(options_.receive_timeout_ms));
  if (frame.ok() && !frame->has_value()) return false;  // the peer is done
  *why = frame.ok() ? Answer(socket, peer, admitted, **frame) : frame.status();
  return why->ok() && admitted.ok();
}

bool UnixNodeServer::SetBusy(Connection* connection, bool busy) {
  {
    std::lock_guard lock(mutex_);
    if (connection->closing) return false;
    connection->busy = busy;
    connection->idle_since_ms = env::SystemClock::Instance().MonotonicMs();
  }
  if (!busy) room_.notify_all();
  return true;
}

Status UnixNodeServer::Admit(const env::PeerCredentials& peer) const {
  const bool allowed =
      peer.uid == ::geteuid() || peer.uid == 0 ||
      std::count(options_.allowed_uids.begin(), options_.allowed_uids.end(), peer.uid);
  if (!allowed) {
    return InvalidArgument(fmt::format("user {} (pid {}) may not use {}: expected user {} or root",
                                       peer.uid, peer.pid, path(), ::geteuid()));
  }
  return OkStatus();
}

Status UnixNodeServer::Answer(env::UnixSocket& socket, const NodePeer& peer, const Status& admitted,
                              const env::Frame& frame) {
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
