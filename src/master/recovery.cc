#include "master/recovery.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "mooncake/v1/log.pb.h"

namespace mooncake::master {
namespace {

constexpr std::string_view kClusterIdKey = "cluster_id";
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

Result<ReplicatedState> Replay(oplog::LogStore& log) {
  MC_ASSIGN_OR_RETURN(const uint64_t last, log.LastSequence());
  ReplicatedState state;
  MC_RETURN_IF_ERROR(log.Scan(
      1, [&state](const oplog::LogRecordView& record) { return state.ApplyRecord(record); }));
  if (state.sequence != last) {
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

Result<ReplicatedState> ReplayAndTakeOver(oplog::LogStore& log, int64_t wall_ms) {
  Result<ReplicatedState> replayed = Replay(log);
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
