#include "master/recovery.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "master/snapshot.h"
#include "mooncake/v1/log.pb.h"

namespace mooncake::master {
namespace {

constexpr size_t kClusterIdBytes = 16;

}  // namespace

Result<std::optional<std::string>> ReadClusterId(oplog::LogStore& log) {
  return log.ReadMeta(kClusterIdKey);
}

Result<std::string> ReadOrMakeClusterId(oplog::LogStore& log, env::RandomSource& random) {
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> known, ReadClusterId(log));
  if (known) return *known;
  const std::string made = HexOf(random.RandomBytes(kClusterIdBytes));
  MC_RETURN_IF_ERROR(log.WriteMeta(kClusterIdKey, made));
  return made;
}

namespace {

// Whether `log` continues what the snapshot holds.
Status CheckContinues(oplog::LogStore& log, const v1::SnapshotHeader& header) {
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> cluster_id, log.ReadMeta(kClusterIdKey));
  if (cluster_id && *cluster_id != header.cluster_id()) {
    return Corrupt(fmt::format("the log is cluster {}'s, the snapshot cluster {}'s", *cluster_id,
                               header.cluster_id()));
  }
  MC_ASSIGN_OR_RETURN(const uint64_t last, log.LastSequence());
  if (last >= header.sequence()) return OkStatus();
  return Corrupt(fmt::format("the log ends at sequence {}, the snapshot was taken after {}", last,
                             header.sequence()));
}

}  // namespace

Result<ReplicatedState> Replay(oplog::LogStore& log, oplog::SnapshotStore* snapshots) {
  ReplicatedState state;
  if (snapshots != nullptr) {
    MC_ASSIGN_OR_RETURN(std::optional<DecodedSnapshot> newest, LoadNewestSnapshot(*snapshots));
    if (newest) {
      MC_RETURN_IF_ERROR(CheckContinues(log, newest->header));
      state = std::move(newest->state);
    }
  }
  MC_ASSIGN_OR_RETURN(const uint64_t last, log.LastSequence());
  MC_ASSIGN_OR_RETURN(const uint64_t first, log.FirstSequence());
  if (first > state.sequence + 1) {
    return Corrupt(
        fmt::format("the log begins at sequence {}, and no snapshot that can be read "
                    "holds what came before: the newest ends at {}",
                    first, state.sequence));
  }
  if (last > state.sequence) {
    MC_RETURN_IF_ERROR(log.Scan(state.sequence + 1, [&state](const oplog::LogRecordView& record) {
      return state.ApplyRecord(record);
    }));
  }
  // Read beside its Master, the log may have grown since.
  if (state.sequence < last) {
    return Corrupt(
        fmt::format("the log ends at sequence {}, {} were replayed", last, state.sequence));
  }
  const Status invariants = state.CheckInvariants();
  if (!invariants.ok()) {
    return Corrupt(fmt::format("the state after log sequence {} contradicts itself: {}", last,
                               invariants.message()));
  }
  return state;
}

Result<ReplicatedState> ReplayAndTakeOver(oplog::LogStore& log, oplog::SnapshotStore* snapshots,
                                          int64_t wall_ms) {
  Result<ReplicatedState> replayed = Replay(log, snapshots);
  if (!replayed.ok()) return replayed.status().WithContext("its log cannot be read");
  ReplicatedState state = *std::move(replayed);
  v1::LogBatch barrier;
  barrier.set_time_ms(state.sequence == 0 ? wall_ms : state.logged_ms);
  const std::string payload = barrier.SerializeAsString();
  const oplog::LogRecordView record{state.sequence + 1, state.term + 1, barrier.time_ms(), payload};
  MC_RETURN_IF_ERROR(log.Append(record).WithContext("its log cannot be written"));
  MC_RETURN_IF_ERROR(state.ApplyRecord(record));
  return state;
}

}  // namespace mooncake::master
