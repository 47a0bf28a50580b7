// A Master's log and snapshots as text, for people and tools: offline, read-only, nothing applied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace mooncake::master {

struct LogBatchText {
  uint64_t sequence = 0;
  uint64_t term = 0;
  uint64_t bytes = 0;  // as stored
  // {"time": "2026-01-01T00:00:00.000Z", "events": [{"kind": "REVISION", "version": 1, "body":
  // {..}}]} with the field names of proto/mooncake/v1/log.proto; bytes fields are base64.
  std::string json;
};

// Batches `first` .. of the log file, at most `limit` of them (0: all). Every record's checksum is
// checked. What snapshots made superfluous is not there: the first batch that is comes first.
// NOT_FOUND: no such file; CORRUPT: what oplog/sqlite_log.h calls so, or a record that is
// no batch of events. An event of an unknown kind is shown with its kind's number and its body as
// base64.
Result<std::vector<LogBatchText>> ReadLogText(const std::string& path, uint64_t first,
                                              uint64_t limit);

struct SnapshotRecordText {
  std::string section;
  uint64_t bytes = 0;  // as stored
  // With the field names of proto/mooncake/v1/snapshot.proto; bytes fields are base64.
  std::string json;
};

// Every record of a snapshot file, the header first. The state is restored and compared with what
// the header says of it before anything is returned: CORRUPT, UNSUPPORTED as DecodeSnapshot.
// NOT_FOUND: no such file.
Result<std::vector<SnapshotRecordText>> ReadSnapshotText(const std::string& path);

}  // namespace mooncake::master
