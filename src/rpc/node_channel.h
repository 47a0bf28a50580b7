// A node as a client sees it (proto/mooncake/v1/node.proto).
//
// Implementations: StreamNodeChannel (rpc/stream_node_channel.h) over the node's Unix socket or
// TCP; the embedded store's in-process one (cluster/). Every call carries a Grant that the Master
// gave, or an ExtentPermit. What needs a descriptor is UNSUPPORTED over TCP. Thread-safe: calls of
// one channel may be serialised, and the wait for each other counts.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "env/deadline.h"
#include "env/unique_fd.h"
#include "mooncake/v1/node.pb.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::rpc {

// How long a call may take, and how its caller gives it up. Past the deadline it is UNAVAILABLE,
// whatever the node does; given up, CANCELLED. A call that needs no wire may overlook both.
struct CallBounds {
  env::Deadline deadline;
  std::stop_token cancel;
};

class NodeChannel {
 public:
  virtual ~NodeChannel() = default;

  // READ grant: a read-only descriptor. WRITE grant: a read-write one, the arena being created when
  // this is its first open; refused (CONFLICT) once the import is sealed.
  virtual Result<env::UniqueFd> OpenArena(const v1::Grant& grant, const CallBounds& bounds) = 0;

  // WRITE grant. OK: opening the arena will not fail for want of space. EXHAUSTED: with the needed
  // and the free bytes. Only disks are asked: a node's memory is its capacity, which the Master
  // counts.
  virtual Status ReserveArena(const v1::Grant& grant, const CallBounds& bounds) = 0;

  // Stores a METADATA object durably (synced before the reply). Same name and content again: OK;
  // other content: CONFLICT.
  virtual Status WriteMetadata(const v1::Grant& grant, std::string_view name,
                               std::string_view content, const CallBounds& bounds) = 0;
  virtual Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name,
                                           const CallBounds& bounds) = 0;

  // No arena of the import is opened read-write afterwards; file-backed arenas are synced.
  // Idempotent.
  virtual Status SealImport(const v1::Grant& grant, const CallBounds& bounds) = 0;

  // ---- ordinary objects (messages: node.proto) ----

  // SLAB_READ grant: a read-only descriptor of the whole slab. UNSUPPORTED over TCP.
  virtual Result<env::UniqueFd> OpenSlab(const v1::Grant& grant, const CallBounds& bounds) = 0;
  // One Status per write. UNSUPPORTED (as the call's): `pull` from this process is not possible.
  virtual Result<std::vector<Status>> WriteExtents(v1::WriteExtents request,
                                                   const CallBounds& bounds) = 0;
  // `results`, `content` and `checksums` of the reply.
  virtual Result<v1::NodeReply> ReadExtents(v1::ReadExtents request, const CallBounds& bounds) = 0;
};

// Opens the channel to a node; the one thing a client needs from its surroundings besides
// MasterApi.
class NodeConnector {
 public:
  virtual ~NodeConnector() = default;
  virtual Result<std::shared_ptr<NodeChannel>> Connect(const v1::NodeAddress& address,
                                                       const CallBounds& bounds) = 0;
};

}  // namespace mooncake::rpc
