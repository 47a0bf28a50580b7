// A Node behind its wire protocol (proto/mooncake/v1/node.proto): turns requests into calls of the
// Node.
//
// Never judges: a grant is the Node's to check, a peer's user the server's. Threads: any.
#pragma once

#include "node/node.h"
#include "rpc/node_handler.h"

namespace mooncake::node {

class NodeService final : public rpc::NodeHandler {
 public:
  // `node` must outlive it.
  explicit NodeService(Node& node) : node_(node) {}

  v1::NodeReply Handle(const v1::NodeRequest& request, const rpc::NodePeer& peer,
                       env::UniqueFd* fd_out) override;

 private:
  Status Dispatch(const v1::NodeRequest& request, const rpc::NodePeer& peer, v1::NodeReply* reply,
                  env::UniqueFd* fd_out);

  Node& node_;
};

}  // namespace mooncake::node
