// Serves a NodeHandler over a Unix socket, to clients of the same host.
//
// One accepting thread and one thread per connection, of which at most max_connections are served.
// A client that comes then takes the place of the one that has been idle longest, whose connection
// is closed (its channel connects again when it has a request); where all are busy it waits its
// turn in the socket's queue, as long as its own bounds last. A connection that is idle for long is
// closed, too. A user that may not ask gets INVALID_ARGUMENT for its first request and is closed.
// Requests of one connection are answered in order.
// Threads: Start and Stop from one thread.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
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
  // How long a client may have no request.
  int idle_timeout_ms = 60'000;
  // How long the bytes of one request may take to arrive.
  int receive_timeout_ms = 30'000;
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
    // Under mutex_.
    bool busy = true;       // has a request, or is new: nobody connects without one
    bool closing = false;   // counts no more
    bool finished = false;  // its thread is about to end
    int64_t idle_since_ms = 0;
  };

  UnixNodeServer(env::Interrupter interrupter, NodeHandler& handler, UnixNodeServerOptions options);
  Status Listen(const std::string& path);

  void AcceptLoop();
  void Begin(env::UnixSocket socket);
  // Joins the threads of connections that ended.
  void Reap();
  // Under mutex_: whether another connection may be served now; closes an idle one for it.
  bool MakeRoom();
  void Serve(Connection* connection);
  // Serves one request that comes within `wait_ms`. False: the connection ends, `why` says why
  // unless the peer closed it.
  bool ServeOne(Connection* connection, const NodePeer& peer, const Status& admitted, int wait_ms,
                Status* why);
  // False: it was closed meanwhile, to make room.
  bool SetBusy(Connection* connection, bool busy);
  // Why this peer gets no answer but this one.
  Status Admit(const env::PeerCredentials& peer) const;
  Status Answer(env::UnixSocket& socket, const NodePeer& peer, const Status& admitted,
                const env::Frame& frame);

  const env::Interrupter interrupter_;
  NodeHandler& handler_;
  const UnixNodeServerOptions options_;
  std::unique_ptr<env::UnixListener> listener_;
  std::thread acceptor_;

  mutable std::mutex mutex_;
  std::condition_variable room_;  // a connection became idle or ended, or the server stops
  bool stopping_ = false;
  std::list<Connection> connections_;
};

}  // namespace mooncake::rpc
