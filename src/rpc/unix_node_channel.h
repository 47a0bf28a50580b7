// A node of this host, asked over its Unix socket.
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
#include "env/interrupter.h"
#include "env/unix_socket.h"
#include "rpc/wire_node_channel.h"

namespace mooncake::rpc {

class UnixNodeChannel final : public WireNodeChannel {
 public:
  // UNAVAILABLE when nobody listens at the path.
  static Result<std::shared_ptr<UnixNodeChannel>> Connect(const std::string& socket_path,
                                                          const CallBounds& bounds);

 private:
  // Interrupted for good when a call of it is given up.
  struct Connection {
    Connection(env::Interrupter made, env::UnixSocket connected)
        : interrupter(std::move(made)), socket(std::move(connected)) {
      socket.Watch(interrupter);
    }
    // After a fork two processes have it, and the node would read the other one's memory.
    bool IsForeign() const { return pid != ::getpid(); }
    const pid_t pid = ::getpid();
    env::Interrupter interrupter;
    env::UnixSocket socket;
  };
  // One call at a time: whoever has it may use what is below `taken_`. Not a timed mutex, whose
  // wait the thread sanitizer of our compiler does not see.
  class Turn {
   public:
    explicit Turn(UnixNodeChannel* channel) : channel_(channel) {}
    Turn(Turn&& other) noexcept : channel_(std::exchange(other.channel_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    UnixNodeChannel* channel_;
  };

  explicit UnixNodeChannel(std::string socket_path) : socket_path_(std::move(socket_path)) {}

  Result<Turn> TakeTurn(const CallBounds& bounds);
  Result<Answer> Call(v1::NodeRequest* request, const CallBounds& bounds) override;
  std::string Describe() const override { return "node at " + socket_path_; }
  Status EnsureConnected(const CallBounds& bounds);
  Result<Answer> Exchange(const std::string& bytes, uint64_t request_id, const CallBounds& bounds);

  const std::string socket_path_;
  std::mutex mutex_;  // guards taken_
  std::condition_variable_any free_;
  bool taken_ = false;
  std::unique_ptr<Connection> connection_;
  uint64_t next_request_id_ = 1;
};

// Connects by NodeAddress::socket_path.
class UnixNodeConnector final : public NodeConnector {
 public:
  Result<std::shared_ptr<NodeChannel>> Connect(const v1::NodeAddress& address,
                                               const CallBounds& bounds) override;
};

}  // namespace mooncake::rpc
