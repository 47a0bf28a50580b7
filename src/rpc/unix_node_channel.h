// A node of this host, asked over its Unix socket.
//
// One connection, one call at a time. Every call is idempotent at the node, so one that finds its
// connection dead (the node restarted, or closed it) connects and asks once more. Threads: any;
// calls wait for each other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "env/deadline.h"
#include "env/unix_socket.h"
#include "mooncake/v1/node.pb.h"
#include "rpc/node_channel.h"

namespace mooncake::rpc {

struct UnixNodeChannelOptions {
  int connect_timeout_ms = 5'000;
  // One whole call: the node may have to sync a few hundred MiB for SealImport.
  int call_timeout_ms = 60'000;
};

class UnixNodeChannel final : public NodeChannel {
 public:
  // UNAVAILABLE when nobody listens at the path.
  static Result<std::shared_ptr<UnixNodeChannel>> Connect(const std::string& socket_path,
                                                          UnixNodeChannelOptions options = {});

  Result<env::UniqueFd> OpenArena(const v1::Grant& grant) override;
  Status WriteMetadata(const v1::Grant& grant, std::string_view name,
                       std::string_view content) override;
  Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name) override;
  Status SealImport(const v1::Grant& grant) override;

 private:
  struct Answer {
    v1::NodeReply reply;
    std::vector<env::UniqueFd> fds;
  };

  UnixNodeChannel(std::string socket_path, UnixNodeChannelOptions options)
      : socket_path_(std::move(socket_path)), options_(options) {}

  // The node's refusal is the Status; `request` gets its id.
  Result<Answer> Call(v1::NodeRequest* request);
  Status EnsureConnected();
  Result<Answer> Exchange(const std::string& bytes, uint64_t request_id, env::Deadline deadline);

  const std::string socket_path_;
  const UnixNodeChannelOptions options_;
  std::mutex mutex_;
  std::optional<env::UnixSocket> socket_;
  uint64_t next_request_id_ = 1;
};

// Connects by NodeAddress::socket_path.
class UnixNodeConnector final : public NodeConnector {
 public:
  explicit UnixNodeConnector(UnixNodeChannelOptions options = {}) : options_(options) {}

  Result<std::shared_ptr<NodeChannel>> Connect(const v1::NodeAddress& address) override;

 private:
  const UnixNodeChannelOptions options_;
};

}  // namespace mooncake::rpc
