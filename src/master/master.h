// The Store Master: one sequencer over an engine and a log.
//
// How one batch runs (Step):
//   1. take what is queued, within the batch's limits;
//   2. run each request, as far as its caller may ask it (caller_check.h), against the live state;
//      what it decides is applied at once and added to the
//      batch, the outcome of a command with it; then the upkeep;
//   3. append the batch to the log: one record, durable when that returns;
//   4. only then answer everybody who was in the batch, queries too: they may have seen what it
//   did.
//      (A query that ran before the batch's first event is answered at once. So is everybody of a
//      batch that has relaxed events alone: its record is queued and written with the next one, or
//      some milliseconds later.)
// When the append fails nobody knows whether the record is there. So: commands get
// DURABILITY_FAILED, queries UNAVAILABLE, the state is dropped and read from the log again, and
// service goes on; the same command id then gets the outcome that the log has, if it has one. While
// the log cannot be read and written every call gets UNAVAILABLE (a full disk: EXHAUSTED) with the
// reason, and that is tried again now and then.
//
// Threads: requests may come from any thread, and are answered on the sequencer's. With Start there
// is one sequencer thread; without it the owner calls Step (tests, the simulation) from one thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "env/clock.h"
#include "env/random.h"
#include "env/sync.h"
#include "master/engine.h"
#include "master/logged_clock.h"
#include "master/options.h"
#include "master/snapshotter.h"
#include "oplog/log_store.h"
#include "rpc/async_master.h"

namespace mooncake::master {

// The Master's doors to the world; all must outlive it.
struct MasterSeams {
  oplog::LogStore& log;
  const env::Clock& clock;
  env::RandomSource& random;  // for the cluster's id
  SnapshotSeams snapshots = {};
};

class Master final : public rpc::AsyncMaster {
 public:
  // Replays the log and takes it over. INVALID_ARGUMENT: options; else what the log says.
  static Result<std::unique_ptr<Master>> Open(const MasterOptions& options, MasterSeams seams);
  // Stops.
  ~Master() override;

  // Begins the sequencer's thread.
  void Start();
  // Ends it; requests that are still queued, and later ones, get UNAVAILABLE. Idempotent.
  void Stop();

  // Takes a snapshot now, on the calling thread, and returns its sequence. Not while the own thread
  // may take one. UNSUPPORTED: without seams.
  Result<uint64_t> TakeSnapshot();

  // Without Start: runs one batch. True: there was something to do (or more is due now).
  bool Step();

#define MOONCAKE_DECLARE(Name)                                                                   \
  void Name(const rpc::Caller& caller, const v1::Name##Request& request, v1::Name##Reply* reply, \
            Done done) override;
  MOONCAKE_MASTER_RPCS(MOONCAKE_DECLARE)
#undef MOONCAKE_DECLARE

  const std::string& cluster_id() const { return cluster_id_; }
  // Not while the sequencer's thread runs.
  const ReplicatedState& state() const { return engine_.state(); }

 private:
  // One request on its way.
  class Call;
  template <class Request, class Reply>
  class CallOf;
  using Calls = std::deque<std::unique_ptr<Call>>;

  Master(const MasterOptions& options, MasterSeams seams, std::string cluster_id);

  template <class Request, class Reply>
  void Submit(const char* method, const rpc::Caller& caller, const Request& request, Reply* reply,
              Done done);

  void Loop();
  Calls TakeQueued();
  // Leaves in `calls` those that did not fit into the batch.
  std::vector<std::unique_ptr<Call>> RunCalls(Calls& calls, Batch& batch);
  // Puts the batch's record behind those that wait. It may wait, too, if nothing in it must be
  // durable and neither time nor bytes have run out.
  Status Flush(const Batch& batch);
  Status FlushWaiting();
  bool WaitingIsDue(int64_t now_ms) const;
  // Of MasterOptions::clients_end_with_master.
  Status EndClients();
  void VerifyReplay(const oplog::LogRecordView& record);
  // True: more of the log is superfluous.
  bool DropSuperfluousLog();
  // After a failure: reads the log again, or remembers why it could not.
  void Rebuild();
  void Adopt(ReplicatedState state);

  const MasterOptions options_;
  const MasterSeams seams_;
  const std::string cluster_id_;

  // The sequencer's.
  Engine engine_;
  LoggedClock clock_;
  Calls waiting_;    // taken from the queue, for a later batch
  Status refusing_;  // why nothing can be served; OK otherwise
  int64_t rebuild_at_ms_ = 0;
  std::unique_ptr<ReplicatedState> replayed_;  // beside the live state, when verify_replay_every
  bool more_due_ = false;
  Snapshotter snapshotter_;
  uint64_t dropped_before_ = 0;  // of the log
  // Records that the log does not have yet.
  struct WaitingRecord {
    oplog::LogRecordView view;
    std::string payload;
  };
  std::deque<WaitingRecord> unwritten_;
  size_t unwritten_bytes_ = 0;

  env::Mutex mutex_;
  env::CondVar wake_;
  Calls queue_;
  bool stopping_ = false;
  env::Thread thread_;
};

}  // namespace mooncake::master
