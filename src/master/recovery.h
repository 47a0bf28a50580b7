// How a Master's state comes out of its log.
#pragma once

#include <string_view>

#include "base/status.h"
#include "master/replicated_state.h"
#include "oplog/log_store.h"
#include "oplog/snapshot_store.h"

namespace mooncake::master {

// Of the log's meta values.
inline constexpr std::string_view kClusterIdKey = "cluster_id";

// The newest snapshot that can be read, if there is one, and the log after it; then checks the
// outcome: every record applies, the catalogues agree with themselves and with each other, every id
// counter is above every id in use. CORRUPT (and UNSUPPORTED) name the snapshot, the sequence, or
// what differs; so do a log that begins too late or ends too early for the snapshot, and one of
// another cluster.
Result<ReplicatedState> Replay(oplog::LogStore& log, oplog::SnapshotStore* snapshots = nullptr);

// Replays and then appends one record without events under the next term, at the same logged time
// (an empty log begins at `wall_ms`). It shows that the log can be written, and ends all doubt
// about an append that failed before: what was not replayed can no longer appear.
Result<ReplicatedState> ReplayAndTakeOver(oplog::LogStore& log, oplog::SnapshotStore* snapshots,
                                          int64_t wall_ms);

}  // namespace mooncake::master
