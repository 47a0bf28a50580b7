// What one WriteExtents or ReadExtents may be, so that it and its reply fit into a frame, and what
// a reply must be to be an answer.
//
// Pure. Both ends ask: a client before it sends, a node before it does anything.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "env/stream_socket.h"
#include "mooncake/v1/node.pb.h"

namespace mooncake::rpc {

// Of one request; what is said about so many is some ten MB.
inline constexpr int kExtentsPerRequestMax = 65'536;
// Payload in one frame; what is said about it (permits, pieces, statuses) has the rest.
inline constexpr uint64_t kExtentContentBytesMax = env::kFrameBytesMax - (uint64_t{32} << 20);

// INVALID_ARGUMENT, naming both values: no write or too many, pieces that do not add up to the
// content (or content beside `pull`), too much content.
Status CheckExtentWrites(const v1::WriteExtents& request);
// INVALID_ARGUMENT likewise: no read or too many, too many bytes in all.
Status CheckExtentReads(const v1::ReadExtents& request);

// INTERNAL unless `reply` has a result and a checksum for each read, and the bytes of the OK ones.
Status CheckExtentsRead(const v1::ReadExtents& request, const v1::NodeReply& reply);

}  // namespace mooncake::rpc
