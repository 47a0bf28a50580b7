#include "rpc/node_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "env/clock.h"
#include "env/tcp_socket.h"
#include "env/unix_socket.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {
namespace {

// How long a new client has to ask, and one that may not ask to be told so.
constexpr int kFirstRequestMs = 5000;
constexpr int kRefusalMs = 1000;
// Out of descriptors: the connection stays queued and poll(2) would say "ready" at once.
constexpr int kBackOffMs = 50;

}  // namespace

Result<std::unique_ptr<NodeServer>> NodeServer::Make(NodeHandler& handler,
                                                     NodeServerOptions options) {
  MC_ASSIGN_OR_RETURN(env::Interrupter interrupter, env::Interrupter::Create());
  return std::unique_ptr<NodeServer>(
      new NodeServer(std::move(interrupter), handler, std::move(options)));
}

void NodeServer::BeginToAccept() {
  acceptor_ = std::thread([this] { AcceptLoop(); });
}

Result<std::unique_ptr<NodeServer>> NodeServer::StartUnix(const std::string& path,
                                                          NodeHandler& handler,
                                                          NodeServerOptions options) {
  MC_ASSIGN_OR_RETURN(std::unique_ptr<NodeServer> server, Make(handler, std::move(options)));
  MC_RETURN_IF_ERROR(server->ListenUnix(path));
  server->BeginToAccept();
  return server;
}

Result<std::unique_ptr<NodeServer>> NodeServer::StartTcp(const std::string& listen,
                                                         const std::string& advertise,
                                                         NodeHandler& handler,
                                                         NodeServerOptions options) {
  MC_ASSIGN_OR_RETURN(std::unique_ptr<NodeServer> server, Make(handler, std::move(options)));
  MC_RETURN_IF_ERROR(server->ListenTcp(listen, advertise));
  server->BeginToAccept();
  return server;
}

NodeServer::NodeServer(env::Interrupter interrupter, NodeHandler& handler,
                       NodeServerOptions options)
    : interrupter_(std::move(interrupter)), handler_(handler), options_(std::move(options)) {}

NodeServer::~NodeServer() { Stop(); }

Status NodeServer::ListenUnix(const std::string& path) {
  MC_ASSIGN_OR_RETURN(env::UnixListener listener,
                      env::UnixListener::Listen(path, &interrupter_, options_.socket_mode));
  listener_ = std::make_unique<env::UnixListener>(std::move(listener));
  address_ = listener_->address();
  return OkStatus();
}

Status NodeServer::ListenTcp(const std::string& listen, const std::string& advertise) {
  MC_ASSIGN_OR_RETURN(env::TcpListener listener, env::TcpListener::Listen(listen, &interrupter_));
  if (listener.wildcard() && advertise.empty()) {
    return InvalidArgument(listen +
                           " is every address of this host: say which one clients are told");
  }
  address_ =
      advertise.empty() ? listener.address() : advertise + ":" + std::to_string(listener.port());
  listener_ = std::make_unique<env::TcpListener>(std::move(listener));
  return OkStatus();
}

size_t NodeServer::connection_count() const {
  std::lock_guard lock(mutex_);
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                           [](const Connection& c) { return !c.closing; }));
}

void NodeServer::Stop() {
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

void NodeServer::AcceptLoop() {
  while (!interrupter_.interrupted()) {
    Result<env::StreamSocket> accepted = listener_->Accept(env::Deadline::Infinite());
    Reap();
    if (accepted.ok()) {
      Begin(*std::move(accepted));
      continue;
    }
    if (accepted.status().code() == Code::kCancelled) return;
    Log().warn("node: accept on {}: {}", address_, accepted.status().ToString());
    pollfd stop{.fd = interrupter_.fd(), .events = POLLIN, .revents = 0};
    (void)::poll(&stop, 1, kBackOffMs);
  }
}

void NodeServer::Begin(env::StreamSocket socket) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return stopping_ || MakeRoom(); });
  if (stopping_) return;
  Connection& connection = connections_.emplace_back(std::move(socket));
  connection.thread = std::thread([this, &connection] { Serve(&connection); });
}

bool NodeServer::MakeRoom() {
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

void NodeServer::Reap() {
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

void NodeServer::Serve(Connection* connection) {
  const Status admitted = Admit(connection->socket);
  NodePeer peer;
  peer.name = connection->socket.PeerName();
  peer.same_host = connection->socket.kind() == env::StreamKind::kUnix;
  std::optional<env::PeerProcess> process;
  if (peer.same_host) {
    Result<env::PeerProcess> known = env::PeerProcess::OfSocket(connection->socket.fd());
    if (known.ok()) peer.process = &process.emplace(*std::move(known));
  }
  Status why;
  int wait_ms = admitted.ok() ? kFirstRequestMs : kRefusalMs;
  while (ServeOne(connection, peer, admitted, wait_ms, &why)) {
    SetBusy(connection, false);
    wait_ms = options_.idle_timeout_ms;
  }
  if (!why.ok() && why.code() != Code::kCancelled) {
    Log().info("node: connection of {} on {} ends: {}", peer.name, address_, why.ToString());
  }
  connection->socket.Shutdown();
  {
    std::lock_guard lock(mutex_);
    connection->closing = true;
    connection->finished = true;
  }
  room_.notify_all();
}

bool NodeServer::ServeOne(Connection* connection, const NodePeer& peer, const Status& admitted,
                          int wait_ms, Status* why) {
  env::StreamSocket& socket = connection->socket;
  // A client that was idle for so long hears it when it has a request: its connection is gone.
  if (!socket.WaitReadable(env::Deadline::AfterMs(wait_ms)).ok()) return false;
  if (!SetBusy(connection, true)) return false;
  Result<std::optional<env::Frame>> frame =
      socket.ReceiveFrame(env::Deadline::AfterMs(options_.receive_timeout_ms));
  if (frame.ok() && !frame->has_value()) return false;  // the peer is done
  *why = frame.ok() ? Answer(socket, peer, admitted, **frame) : frame.status();
  return why->ok() && admitted.ok();
}

bool NodeServer::SetBusy(Connection* connection, bool busy) {
  {
    std::lock_guard lock(mutex_);
    if (connection->closing) return false;
    connection->busy = busy;
    connection->idle_since_ms = env::SystemClock::Instance().MonotonicMs();
  }
  if (!busy) room_.notify_all();
  return true;
}

Status NodeServer::Admit(const env::StreamSocket& socket) const {
  if (socket.kind() == env::StreamKind::kTcp) return OkStatus();
  MC_ASSIGN_OR_RETURN(const env::PeerCredentials peer, socket.Peer());
  const bool allowed =
      peer.uid == ::geteuid() || peer.uid == 0 ||
      std::count(options_.allowed_uids.begin(), options_.allowed_uids.end(), peer.uid);
  if (!allowed) {
    return PermissionDenied(fmt::format(
        "user {} (pid {}) may not use {}: expected user {}, root, or one that is allowed "
        "(--allow-uid)",
        peer.uid, peer.pid, address_, ::geteuid()));
  }
  return OkStatus();
}

Status NodeServer::Answer(env::StreamSocket& socket, const NodePeer& peer, const Status& admitted,
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
