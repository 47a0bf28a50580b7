// Reads one replica each of many objects: from mapped slabs of this host, and from nodes by
// ReadExtents. Which replica, and what comes next when it cannot be read, is object_reader's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "client/object_reader.h"
#include "client/object_session.h"

namespace mooncake::client {

// One replica of one object, and what is wanted of it.
struct ReplicaRead {
  enum class Outcome : uint8_t {
    kRead,
    kGone,         // the extent holds another object, or none
    kDamaged,      // the checksum differs
    kUnreachable,  // see `status`
  };

  const v1::SlabExtent* extent = nullptr;
  const v1::NodeAddress* node = nullptr;
  const v1::Grant* grant = nullptr;
  uint64_t object_id = 0;
  std::span<const ReadSegment> segments;
  bool verify = true;  // the segments are the whole payload, in order

  Outcome outcome = Outcome::kUnreachable;
  Status status;  // unless kRead
};

void ReadReplicas(ObjectSession& session, std::span<ReplicaRead> reads);

}  // namespace mooncake::client
