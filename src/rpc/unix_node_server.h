// Serves a NodeHandler over a Unix socket, to clients of the same host.
//
// One accepting thread and one thread per connection, of which there are at most max_connections; a
// connection over that number gets EXHAUSTED for its first request and is closed, as is one of a
// user that may not ask (INVALID_ARGUMENT). Requests of one connection are answered in order.
// Threads: Start and Stop from one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "env/interrupter.h"
#include "env/unix_socket.h"
#include "rpc/node_handler.h"

namespace mooncake::rpc {

struct UnixNodeServerOptions {
  size_t max_connections = 256;
  // Whose processes may ask, besides this process's own user and root.
  std::vector<uid_t> allowed_uids;
  // Permission bits of the socket file; others than 0600 only make sense with allowed_uids.
  mode_t socket_mode = 0600;
  // How long a client may take to read a reply.
  int send_timeout_ms = 30'000;
};

class UnixNodeServer {
 public:
  // `handler` must outlive the server.
  static Result<std::unique_ptr<UnixNodeServer>> Start(const std::string& path,
                                                       NodeHandler& handler,
                                                       UnixNodeServerOptions options = {});
  ~UnixNodeServer();

  const std::string& path() const { return listener_->path(); }
  size_t connection_count() const;

  // Requests being handled are finished; their replies may be lost. Idempotent.
  void Stop();

 private:
  struct Connection {
    explicit Connection(env::UnixSocket s) : socket(std::move(s)) {}
    env::UnixSocket socket;
    std::thread thread;
    bool finished = false;
  };

  UnixNodeServer(env::Interrupter interrupter, NodeHandler& handler, UnixNodeServerOptions options);
  Status Listen(const std::string& path);

  void AcceptLoop();
  void Begin(env::UnixSocket socket);
  // Joins the threads of connections that ended.
  void Reap();
  void Serve(Connection* connection, bool over_limit);
  // Why this peer gets no answer but this one.
  Status Admit(const env::PeerCredentials& peer, bool over_limit) const;
  Status Answer(env::UnixSocket& socket, const env::PeerCredentials& peer, const Status& admitted,
                const env::Frame& frame);

  const env::Interrupter interrupter_;
  NodeHandler& handler_;
  const UnixNodeServerOptions options_;
  std::unique_ptr<env::UnixListener> listener_;
  std::thread acceptor_;

  mutable std::mutex mutex_;
  std::list<Connection> connections_;
};

}  // namespace mooncake::rpc
