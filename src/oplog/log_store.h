// The Master's log as its sequencer sees it: opaque records, numbered from 1 without holes, each
// durable before Append returns. What a snapshot has made superfluous is dropped from the front.
//
// A LogStore never looks into a payload and never decides anything. Implementations: SqliteLog (one
// machine), MemoryLog (tests and simulation).
//
// Invariants: sequences are contiguous; term and time_ms never run back; a record once read is
// never different at a later read. A store that finds otherwise answers CORRUPT and names the
// sequence.
//
// After a failed Append nobody knows yet whether the record is there. The caller drops what it
// derived from it and reads LastSequence again: what that says is the truth from then on, and the
// next Append ends the doubt for good (a record that was not seen then can no longer appear).
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake::oplog {

// `payload` is borrowed: from the caller in Append, from the store (until the visitor returns) in
// Scan.
struct LogRecordView {
  uint64_t sequence = 0;
  uint64_t term = 0;
  int64_t time_ms = 0;
  std::string_view payload;
};

class LogStore {
 public:
  using Visitor = std::function<Status(const LogRecordView& record)>;

  virtual ~LogStore() = default;

  // OK: the records are durable. They are written as one: all of them or none. CONFLICT: a
  // `sequence` is not the one before plus 1, or term or time_ms runs back; nothing was written. Any
  // other code: outcome unknown, see above.
  virtual Status AppendAll(std::span<const LogRecordView> records) = 0;
  Status Append(const LogRecordView& record) { return AppendAll({&record, 1}); }

  // Calls `visit` for every record from `sequence` on, in order; stops at its first error and
  // returns it. CORRUPT: `sequence` was dropped.
  virtual Status Scan(uint64_t sequence, const Visitor& visit) = 0;

  // 0: the log is empty.
  virtual Result<uint64_t> LastSequence() = 0;
  // Of the first record that is there. 0: the log is empty.
  virtual Result<uint64_t> FirstSequence() = 0;

  // Drops records from the front that are below `sequence`, at most `records_max` of them, never
  // the last of all. True: there is more to drop.
  virtual Result<bool> DropBefore(uint64_t sequence, uint64_t records_max) = 0;

  // Whether the log has room for more than what must go on whatever happens (reads, removals).
  // EXHAUSTED, naming the cause: it does not, and who would only fill the store should be refused.
  virtual Status CheckSpace() = 0;

  // A few small values beside the log (the cluster's id, the address bound first). Durable when OK.
  virtual Result<std::optional<std::string>> ReadMeta(std::string_view key) = 0;
  virtual Status WriteMeta(std::string_view key, std::string_view value) = 0;

  // Nothing but the destructor may be called afterwards. Idempotent.
  virtual Status Close() = 0;
};

}  // namespace mooncake::oplog
