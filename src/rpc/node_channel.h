// A node as a same-host client sees it (proto/mooncake/v1/node.proto).
//
// Implementations: UnixNodeChannel (rpc/unix_node_channel.h) over the node's Unix socket; the
// embedded store's in-process one (cluster/). Every call carries a Grant that the Master gave.
// Thread-safe: calls of one channel may be serialised.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "env/unique_fd.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::rpc {

class NodeChannel {
 public:
  virtual ~NodeChannel() = default;

  // READ grant: a read-only descriptor. WRITE grant: a read-write one, the arena being created when
  // this is its first open; refused (CONFLICT) once the import is sealed.
  virtual Result<env::UniqueFd> OpenArena(const v1::Grant& grant) = 0;

  // Stores a METADATA object durably (synced before the reply). Same name and content again: OK;
  // other content: CONFLICT.
  virtual Status WriteMetadata(const v1::Grant& grant, std::string_view name,
                               std::string_view content) = 0;
  virtual Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name) = 0;

  // No arena of the import is opened read-write afterwards; file-backed arenas are synced.
  // Idempotent.
  virtual Status SealImport(const v1::Grant& grant) = 0;
};

// Opens the channel to a node; the one thing a client needs from its surroundings besides
// MasterApi.
class NodeConnector {
 public:
  virtual ~NodeConnector() = default;
  virtual Result<std::shared_ptr<NodeChannel>> Connect(const v1::NodeAddress& address) = 0;
};

}  // namespace mooncake::rpc
