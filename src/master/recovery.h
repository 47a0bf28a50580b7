// How a Master's state comes out of its log.
#pragma once

#include "base/status.h"
#include "master/replicated_state.h"
#include "oplog/log_store.h"

namespace mooncake::master {

// Replays the whole log and checks the outcome: every record applies, the catalogues agree with
// themselves and with each other, every id counter is above every id in use. CORRUPT (and
// UNSUPPORTED) name the sequence or what differs.
Result<ReplicatedState> Replay(oplog::LogStore& log);

// Replays and then appends one record without events under the next term, at the same logged time
// (an empty log begins at `wall_ms`). It shows that the log can be written, and ends all doubt
// about an append that failed before: what was not replayed can no longer appear.
Result<ReplicatedState> ReplayAndTakeOver(oplog::LogStore& log, int64_t wall_ms);

}  // namespace mooncake::master
