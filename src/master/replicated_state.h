// ReplicatedState: everything that the log alone determines. Live it grows event by event as
// commands are decided; in replay the same events come from the log; both ways give equal digests.
//
// Never: knows time-outs, liveness, keys or callers. Single-threaded (the sequencer owns it).
#pragma once

#include <cstdint>

#include "base/digest.h"
#include "base/status.h"
#include "master/command_table.h"
#include "mooncake/v1/log.pb.h"
#include "objects/catalog.h"
#include "oplog/log_store.h"
#include "pool/catalog.h"
#include "weights/catalog.h"

namespace mooncake::master {

// The schema of CommandOutcome bodies that this build writes and understands.
inline constexpr uint32_t kOutcomeVersion = 1;

struct ReplicatedState {
  objects::Catalog objects;
  weights::Catalog weights;
  pool::Catalog pool;
  CommandTable commands;
  int64_t logged_ms = 0;  // of the last batch
  uint64_t sequence = 0;  // of the last record
  uint64_t term = 0;      // of the last record

  // Applies one record of the log. UNSUPPORTED: an event that this build is too old for. CORRUPT:
  // anything that does not fit. Both name the sequence; the state is of no use then.
  Status ApplyRecord(const oplog::LogRecordView& record);

  // Whether the catalogues agree with themselves and with each other: a group for every revision
  // that has one, with its counts and bytes, and no group without a revision. INTERNAL says what
  // differs.
  Status CheckInvariants() const;

  Sha256Digest Digest() const;
};

v1::LogEvent EncodeOutcome(const CommandOutcome& outcome);
Result<CommandOutcome> DecodeOutcome(const v1::LogEvent& logged);

}  // namespace mooncake::master
