// Reads many objects, or parts of them, wherever their replicas lie.
//
//   1. LookupObjects, with the lease renewed; the lease counts from before the request was sent.
//   2. `fit` is told each object's size and says what of it goes where.
//   3. Replicas of this host are read from the mapped slab (transfer/extent_header.h has the
//      protocol), those of other hosts by ReadExtents, in chunks.
//   4. An extent that holds another object, or none: past the lease, LEASE_EXPIRED. Else the object
//      was removed or replaced, or the replica is damaged: it is looked up once more. What is found
//      then is read; where the Master still names the same extent, it is told so
//      (ReportUnreadable) and another replica is read.
//   5. A wrong checksum is reported in the same way, and another replica is read; a node that
//   cannot
//      be reached is passed over.
// Threads: one call is one thread's; several may run at once. `fit` runs on the calling thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "client/object_session.h"

namespace mooncake::client {

// `bytes` of the object from `from` on, to `target`.
struct ReadSegment {
  uint64_t from = 0;
  std::byte* target = nullptr;
  uint64_t bytes = 0;
};

// What an answer to LookupObjects says about all of its entries.
struct LookedUp;

struct ReadTask {
  std::string_view key;
  bool whole = true;         // the segments are the object, in order: its checksum is looked at
  uint64_t expected_id = 0;  // not 0: an object of another id is none
  // The object's size, once it was found.
  ReadResult result;

  // The reader's own.
  std::shared_ptr<const LookedUp> found;
  uint64_t object_id = 0;
  std::vector<ReadSegment> segments;
  std::vector<v1::SlabExtent> replicas;  // not tried yet, the best one last
  int lookups = 0;
  Status failed;  // of the last replica
};

// Sets the segments, inside an object of `bytes`. A failure is the task's. Called again when the
// object was replaced while it was read.
using FitObject =
    std::function<Status(size_t task, uint64_t bytes, std::vector<ReadSegment>* segments)>;

void ReadObjects(ObjectSession& session, std::span<ReadTask> tasks, const FitObject& fit);

}  // namespace mooncake::client
