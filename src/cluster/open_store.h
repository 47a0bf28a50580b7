// Opens a store by its URI and gives the clients for it.
//
//   mooncake://host:port   a running cluster: gRPC to the Master, Unix sockets to nodes of this
//   host,
//                          TCP to those of others
//   file:///folder         an embedded store: Master and node inside this process, durable in the
//                          folder, one process at a time
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "client/object_client.h"
#include "client/store_client.h"
#include "rpc/credentials.h"

namespace mooncake::cluster {

struct OpenOptions {
  client::StoreClientOptions client;
  client::ObjectClientOptions objects;
  // Of an embedded store's node; 0: half of what its file system has free or the store has taken,
  // rounded down to 1 GiB steps and at least 1 GiB.
  uint64_t capacity_bytes = 0;
  // Of a cluster's Master; what is not given comes from the environment (rpc/credentials.h). An
  // embedded store has none: given ones are INVALID_ARGUMENT.
  rpc::CredentialSource credentials;
};

// The clients and what they stand on; destroying it closes both, in that order.
class OpenedStore {
 public:
  virtual ~OpenedStore() = default;
  // Of weights, and of ordinary objects; each is made when it is first asked for. Threads: any.
  virtual client::StoreClient& client() = 0;
  virtual client::ObjectClient& objects() = 0;
  // Nodes, space, counts: v1.GetClusterReply as JSON (its field names; 64-bit numbers are strings).
  virtual Result<std::string> DescribeCluster() = 0;
};

// INVALID_ARGUMENT names the URI or the credentials and what is wrong with them. PERMISSION_DENIED:
// the Master knows no such token, or one side does not accept the other's certificate. UNAVAILABLE:
// nobody answers there within the client's retry time, or another process has the folder open (its
// pid is named).
Result<std::unique_ptr<OpenedStore>> OpenStore(std::string_view uri, const OpenOptions& options);

}  // namespace mooncake::cluster
