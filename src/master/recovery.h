// How a Master's state comes out of its log.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "env/random.h"
#include "master/replicated_state.h"
#include "oplog/log_store.h"
#include "oplog/snapshot_store.h"

namespace mooncake::master {

// Of the log's meta values.
inline constexpr std::string_view kClusterIdKey = "cluster_id";

// The id of the cluster that the log is of: made by its first Master, never changed. Absent: the
// log is new.
Result<std::optional<std::string>> ReadClusterId(oplog::LogStore& log);
Result<std::string> ReadOrMakeClusterId(oplog::LogStore& log, env::RandomSource& random);

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
