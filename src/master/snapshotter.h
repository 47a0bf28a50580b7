// Takes snapshots of the Master's state, so that its log stays short and a start quick.
//
// The state is not copied from the sequencer, which goes on undisturbed: the newest snapshot and
// the log after it are replayed beside it, by a reader of its own, and become the next snapshot. So
// each one is also a proof that the one before and the log can be read. It costs a second copy of
// the state while it is made.
//
// Of snapshots the newest two stay, and of the log what comes after the older one: a damaged
// newest loses nothing. Threads: NoteAppended and drop_before from the sequencer's; its own makes
// the snapshots.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "env/sync.h"
#include "oplog/log_store.h"
#include "oplog/snapshot_store.h"

namespace mooncake::master {

struct SnapshotSeams {
  oplog::SnapshotStore* snapshots = nullptr;  // null: none are taken
  // A second reader of the Master's log, for one use by another thread.
  std::function<Result<std::unique_ptr<oplog::LogStore>>()> open_log;
};

struct SnapshotDue {
  uint64_t records = 0;  // of the log since the last snapshot; 0: never
  uint64_t bytes = 0;    // likewise
};

class Snapshotter {
 public:
  static constexpr size_t kKept = 2;

  Snapshotter(SnapshotSeams seams, SnapshotDue due, std::string cluster_id);
  ~Snapshotter();

  // Begins the thread. The log ends at `sequence`; what no snapshot holds yet counts as new.
  void Start(uint64_t sequence);
  // Ends it, after the snapshot that is being made. Idempotent.
  void Stop();

  void NoteAppended(uint64_t records, uint64_t bytes);

  // Makes one now and returns its sequence. Nothing new since the last one: that one's.
  Result<uint64_t> Take();

  // Records of the log below this sequence are needed no more.
  uint64_t drop_before() const { return drop_before_; }

 private:
  bool Due() const {
    return (due_.records > 0 && records_ >= due_.records) ||
           (due_.bytes > 0 && bytes_ >= due_.bytes);
  }
  void Run(const std::stop_token& stop);
  // Removes what is older than the newest kKept good ones.
  Status RemoveOld();

  const SnapshotSeams seams_;
  const SnapshotDue due_;
  const std::string cluster_id_;
  std::atomic<uint64_t> drop_before_{0};

  env::Mutex mutex_;
  env::CondVar wake_;
  uint64_t records_ = 0;  // since the last snapshot
  uint64_t bytes_ = 0;
  env::Thread thread_;
};

}  // namespace mooncake::master
