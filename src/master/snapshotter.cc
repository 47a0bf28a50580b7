#include "master/snapshotter.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "base/probe.h"
#include "env/sync.h"
#include "master/recovery.h"
#include "master/snapshot.h"

namespace mooncake::master {
namespace {

constexpr int64_t kRetryMs = 30'000;

}  // namespace

Snapshotter::Snapshotter(SnapshotSeams seams, SnapshotDue due, std::string cluster_id)
    : seams_(std::move(seams)), due_(due), cluster_id_(std::move(cluster_id)) {}

Snapshotter::~Snapshotter() { Stop(); }

void Snapshotter::Start(uint64_t sequence) {
  if (seams_.snapshots == nullptr || (due_.records == 0 && due_.bytes == 0)) return;
  const Result<std::vector<uint64_t>> taken = seams_.snapshots->List();
  const uint64_t newest = taken.ok() && !taken->empty() ? taken->back() : 0;
  NoteAppended(sequence - std::min(newest, sequence), 0);
  thread_ = env::Thread([this](const std::stop_token& stop) { Run(stop); });
}

void Snapshotter::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void Snapshotter::NoteAppended(uint64_t records, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  records_ += records;
  bytes_ += bytes;
  if (Due()) wake_.notify_all();
}

void Snapshotter::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  // A wait that was stopped still says whether one is due.
  while (wake_.wait(lock, stop, [this] { return Due(); }) && !stop.stop_requested()) {
    records_ = 0;
    bytes_ = 0;
    lock.unlock();
    const Result<uint64_t> taken = Take();
    if (taken.ok()) {
      MC_PROBE("master.snapshot_taken");
      Log().info("master: {} is taken", seams_.snapshots->Describe(*taken));
    } else {
      MC_PROBE("master.snapshot_failed");
      Log().error("master: no snapshot could be taken: {}", taken.status().ToString());
    }
    lock.lock();
    if (taken.ok()) continue;
    // The log grows meanwhile, and nothing is lost.
    wake_.wait_for(lock, stop, std::chrono::milliseconds(kRetryMs), [] { return false; });
    records_ += due_.records;
    bytes_ += due_.bytes;
  }
}

Result<uint64_t> Snapshotter::Take() {
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<oplog::LogStore> log, seams_.open_log());
  MC_ASSIGN_OR_RETURN(const ReplicatedState state, Replay(*log, seams_.snapshots));
  MC_RETURN_IF_ERROR(log->Close());
  MC_ASSIGN_OR_RETURN(const std::vector<uint64_t> sequences, seams_.snapshots->List());
  if (sequences.empty() || sequences.back() != state.sequence) {
    MC_RETURN_IF_ERROR(seams_.snapshots->Write(state.sequence, EncodeSnapshot(state, cluster_id_)));
  }
  MC_RETURN_IF_ERROR(RemoveOld());
  return state.sequence;
}

Status Snapshotter::RemoveOld() {
  MC_ASSIGN_OR_RETURN(std::vector<uint64_t> sequences, seams_.snapshots->List());
  // A damaged one counts as none.
  size_t good = 0;
  while (!sequences.empty() && good < kKept) {
    const uint64_t sequence = sequences.back();
    sequences.pop_back();
    MC_ASSIGN_OR_RETURN(const std::string file, seams_.snapshots->Read(sequence));
    if (const Status whole = CheckSnapshot(file); !whole.ok()) {
      Log().warn("master: {} is damaged: {}", seams_.snapshots->Describe(sequence),
                 whole.message());
      continue;
    }
    if (++good == kKept) drop_before_ = sequence + 1;
  }
  for (const uint64_t sequence : sequences) {
    MC_RETURN_IF_ERROR(seams_.snapshots->Remove(sequence));
  }
  return OkStatus();
}

}  // namespace mooncake::master
