// Serves a NodeHandler to clients: of the same host over a Unix socket, of others over TCP.
//
// One accepting thread and one thread per connection, of which at most max_connections are served.
// A client that comes then takes the place of the one that has been idle longest, whose connection
// is closed (its channel connects again when it has a request); where all are busy it waits its
// turn in the socket's queue, as long as its own bounds last. A connection that is idle for long is
// closed, too. A user that may not ask gets PERMISSION_DENIED for its first request and is closed.
// Requests of one connection are answered in order.
//
// Over TCP nothing is known of who asks, and whoever reaches the port may. What protects the node's
// data there is that every request carries a grant or permit with the Master's MAC for this
// instance of the node (node/grant_check.h): without one nothing is read, written or made. What
// does not: nothing is encrypted, so that who can listen on the network sees content, and grants,
// which he may use as long as the instance lives. It is for networks whose hosts are trusted.
// Descriptors do not travel over TCP, and no process's memory is read for who asks there. Threads:
// Start and Stop from one thread.
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
#include "env/stream_socket.h"
#include "rpc/node_handler.h"

namespace mooncake::rpc {

struct NodeServerOptions {
  size_t max_connections = 256;
  // How long a client may have no request.
  int idle_timeout_ms = 60'000;
  // How long the bytes of one request may take to arrive.
  int receive_timeout_ms = 30'000;
  // Unix: whose processes may ask, besides this process's own user and root.
  std::vector<uid_t> allowed_uids;
  // Unix: permission bits of the socket file; others than 0600 only make sense with allowed_uids.
  mode_t socket_mode = 0600;
  // How long a client may take to read a reply.
  int send_timeout_ms = 30'000;
};

class NodeServer {
 public:
  // `handler` must outlive the server.
  static Result<std::unique_ptr<NodeServer>> StartUnix(const std::string& path,
                                                       NodeHandler& handler,
                                                       NodeServerOptions options = {});
  // `listen`: host:port, port 0 being assigned by the system. `advertise`: the host that clients
  // are told, empty where that is the one it listens on. INVALID_ARGUMENT: it listens on all
  // addresses of the host, and no host is told.
  static Result<std::unique_ptr<NodeServer>> StartTcp(const std::string& listen,
                                                      const std::string& advertise,
                                                      NodeHandler& handler,
                                                      NodeServerOptions options = {});
  ~NodeServer();

  // Where clients reach it: the path, or host:port.
  const std::string& address() const { return address_; }
  size_t connection_count() const;

  // Requests being handled are finished; their replies may be lost. Idempotent.
  void Stop();

 private:
  struct Connection {
    explicit Connection(env::StreamSocket s) : socket(std::move(s)) {}
    env::StreamSocket socket;
    std::thread thread;
    // Under mutex_.
    bool busy = true;       // has a request, or is new: nobody connects without one
    bool closing = false;   // counts no more
    bool finished = false;  // its thread is about to end
    int64_t idle_since_ms = 0;
  };

  NodeServer(env::Interrupter interrupter, NodeHandler& handler, NodeServerOptions options);
  Status ListenUnix(const std::string& path);
  Status ListenTcp(const std::string& listen, const std::string& advertise);
  static Result<std::unique_ptr<NodeServer>> Make(NodeHandler& handler, NodeServerOptions options);
  void BeginToAccept();

  void AcceptLoop();
  void Begin(env::StreamSocket socket);
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
  // Why who is at the other end gets no answer but this one.
  Status Admit(const env::StreamSocket& socket) const;
  Status Answer(env::StreamSocket& socket, const NodePeer& peer, const Status& admitted,
                const env::Frame& frame);

  const env::Interrupter interrupter_;
  NodeHandler& handler_;
  const NodeServerOptions options_;
  std::unique_ptr<env::StreamListener> listener_;
  std::string address_;
  std::thread acceptor_;

  mutable std::mutex mutex_;
  std::condition_variable room_;  // a connection became idle or ended, or the server stops
  bool stopping_ = false;
  std::list<Connection> connections_;
};

}  // namespace mooncake::rpc
