// The Master and the nodes as simulated processes reach them: the production interfaces over the
// simulated network, every message serialised and parsed as on a real wire.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rpc/async_master.h"
#include "rpc/node_channel.h"
#include "rpc/node_handler.h"
#include "sim/network.h"

namespace mooncake::sim {

inline constexpr const char* kMasterAddress = "master";
inline std::string NodeAddressOf(const std::string& node_id) { return "node/" + node_id; }

// A MasterApi for the processes of `host`. One call is one attempt, of at most `timeout_ms`.
std::shared_ptr<rpc::MasterApi> ConnectMaster(Network& network, std::string host,
                                              int64_t timeout_ms = 3'000);

// What kMasterAddress does with a request; `master` returns null while there is none.
Network::Handler ServeMaster(std::function<std::shared_ptr<rpc::AsyncMaster>()> master);

std::shared_ptr<rpc::NodeConnector> ConnectNodes(Network& network, std::string host);

Network::Handler ServeNode(std::function<std::shared_ptr<rpc::NodeHandler>()> node);

}  // namespace mooncake::sim
