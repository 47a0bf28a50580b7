// A node, asked over its Unix socket or TCP.
//
// One connection, one call at a time. Every call is idempotent at the node, so one that finds its
// connection dead (the node restarted, or closed it when it was idle) connects and asks once more.
// Threads: any; calls wait for each other, each within its own bounds.
#pragma once

#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/status.h"
#include "env/host_id.h"
#include "env/interrupter.h"
#include "env/stream_socket.h"
#include "rpc/wire_node_channel.h"

namespace mooncake::rpc {

class StreamNodeChannel final : public WireNodeChannel {
 public:
  // UNAVAILABLE when nobody listens there.
  static Result<std::shared_ptr<StreamNodeChannel>> ConnectUnix(const std::string& socket_path,
                                                                const CallBounds& bounds);
  static Result<std::shared_ptr<StreamNodeChannel>> ConnectTcp(const std::string& address,
                                                               const CallBounds& bounds);

 private:
  // Interrupted for good when a call of it is given up.
  struct Connection {
    Connection(env::Interrupter made, env::StreamSocket connected)
        : interrupter(std::move(made)), socket(std::move(connected)) {
      socket.Watch(interrupter);
    }
    // After a fork two processes have it, and the node would read the other one's memory.
    bool IsForeign() const { return pid != ::getpid(); }
    const pid_t pid = ::getpid();
    env::Interrupter interrupter;
    env::StreamSocket socket;
  };
  // One call at a time: whoever has it may use what is below `taken_`. Not a timed mutex, whose
  // wait the thread sanitizer of our compiler does not see.
  class Turn {
   public:
    explicit Turn(StreamNodeChannel* channel) : channel_(channel) {}
    Turn(Turn&& other) noexcept : channel_(std::exchange(other.channel_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    StreamNodeChannel* channel_;
  };

  StreamNodeChannel(env::StreamKind kind, std::string address)
      : kind_(kind), address_(std::move(address)) {}
  static Result<std::shared_ptr<StreamNodeChannel>> Connect(env::StreamKind kind,
                                                            const std::string& address,
                                                            const CallBounds& bounds);

  Result<Turn> TakeTurn(const CallBounds& bounds);
  Result<Answer> Call(v1::NodeRequest* request, const CallBounds& bounds) override;
  std::string Describe() const override { return "node at " + address_; }
  Status EnsureConnected(const CallBounds& bounds);
  Result<Answer> Exchange(const std::string& bytes, uint64_t request_id, const CallBounds& bounds);

  const env::StreamKind kind_;
  const std::string address_;
  std::mutex mutex_;  // guards taken_
  std::condition_variable_any free_;
  bool taken_ = false;
  std::unique_ptr<Connection> connection_;
  uint64_t next_request_id_ = 1;
};

// Nodes of the host `host_id` by their Unix socket, of other hosts by TCP.
class SocketNodeConnector final : public NodeConnector {
 public:
  explicit SocketNodeConnector(std::string host_id = env::HostId())
      : host_id_(std::move(host_id)) {}
  // INVALID_ARGUMENT: a node of this host without a socket path. UNSUPPORTED: one of another host
  // that serves this one's clients nothing.
  Result<std::shared_ptr<NodeChannel>> Connect(const v1::NodeAddress& address,
                                               const CallBounds& bounds) override;

 private:
  const std::string host_id_;
};

}  // namespace mooncake::rpc
