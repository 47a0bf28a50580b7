// One put of many objects (proto/mooncake/v1/master.proto, "ordinary objects"):
//
//   1. PutStart, with a number of this client's own: the Master reserves extents. Repeated with the
//      same number while it cannot be reached, also over its restart.
//   2. Every replica of every object is filled (extent_writer.h), with the payload's checksum.
//   3. PutEnd for those whose replicas are all whole; PutRevoke for the others. NOT_FOUND at
//   PutEnd:
//      the Master gave the put up meanwhile, and nothing became readable.
// A request that would pass the limits is cut in several, each a put of its own, unless all are to
// be put or none.
#pragma once

#include <span>
#include <vector>

#include "client/object_session.h"

namespace mooncake::client {

std::vector<PutResult> PutObjects(ObjectSession& session, std::span<const PutItem> items,
                                  const PutOptions& options);

}  // namespace mooncake::client
