// A store node as catalogues, Master and clients name it.
#pragma once

#include <string>

namespace mooncake::model {

struct NodeAddress {
  std::string node_id;      // persists in the node's folder
  std::string instance_id;  // of the process (embedded: of the folder)
  std::string host_id;      // equal means same host
  std::string socket_path;  // Unix socket; empty for an embedded node
  std::string tcp_address;  // host:port for other hosts; empty: it serves none

  friend bool operator==(const NodeAddress&, const NodeAddress&) = default;
};

}  // namespace mooncake::model
