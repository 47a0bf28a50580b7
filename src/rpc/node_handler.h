// What a node does with one request of a same-host client; implemented by src/node, called by
// UnixNodeServer and by the embedded store's in-process channel.
#pragma once

#include "env/unique_fd.h"
#include "env/unix_socket.h"
#include "mooncake/v1/node.pb.h"

namespace mooncake::rpc {

class NodeHandler {
 public:
  virtual ~NodeHandler() = default;

  // May block on disk. A descriptor left in `fd_out` travels with the reply. The caller echoes the
  // request_id. Threads: called from many at once.
  virtual v1::NodeReply Handle(const v1::NodeRequest& request, const env::PeerCredentials& peer,
                               env::UniqueFd* fd_out) = 0;
};

}  // namespace mooncake::rpc
