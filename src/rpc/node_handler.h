// What a node does with one request of a client; implemented by src/node, called by NodeServer and
// by the embedded store's in-process channel.
#pragma once

#include <string>

#include "env/peer_memory.h"
#include "env/unique_fd.h"
#include "mooncake/v1/node.pb.h"

namespace mooncake::rpc {

// Who asks, as the kernel and the server know it; nothing of it comes from a message.
struct NodePeer {
  std::string name = "a process of this host";  // for messages
  bool same_host = true;                        // descriptors can go with a reply
  // Whose memory may be read when it asks for that; null: nobody's.
  const env::PeerProcess* process = nullptr;
};

class NodeHandler {
 public:
  virtual ~NodeHandler() = default;

  // May block on disk. A descriptor left in `fd_out` travels with the reply. The caller echoes the
  // request_id. Threads: called from many at once.
  virtual v1::NodeReply Handle(const v1::NodeRequest& request, const NodePeer& peer,
                               env::UniqueFd* fd_out) = 0;
};

}  // namespace mooncake::rpc
