// Brings payloads into extents: every replica of every object of a put, node by node.
//
//   1. Writes are grouped by node; groups run at once.
//   2. A node of this host reads the pieces from this process's memory (pull) where that is worth a
//      call; what is small, and all that goes elsewhere, travels in the request, in chunks.
//   3. A node that answers UNSUPPORTED to a pull gets the same writes by content, and is not asked
//      again; so does, once, a write whose memory the node may not read.
//   4. A write whose extent is BUSY (something of older objects in it is still being read or
//   filled)
//      waits while the others go on, and is repeated, cut as it was, for as long as a request is:
//      retry_ms.
// A write that failed otherwise is not continued; the others are.
// Threads: one call of Write is one thread's; several may run at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "client/object_session.h"

namespace mooncake::client {

// One replica's share of an object's payload.
struct ExtentFill {
  v1::ExtentPermit permit;
  const v1::NodeAddress* node = nullptr;
  uint64_t at = 0;  // in the payload, where `pieces` begin
  std::span<const ConstPiece> pieces;
  bool last = true;              // the payload is whole with this
  std::optional<uint64_t> xxh3;  // with `last`
  bool zero_rest = false;        // with `last`: bytes that nobody brought are zeros
  Status status;                 // the first failure
};

void WriteExtents(ObjectSession& session, std::span<ExtentFill> fills);

}  // namespace mooncake::client
