// The threads behind the copy engine: a batch is a number of pieces, which the calling thread and
// idle workers take in increasing order until none is left.
//
// Threads: Run may be called from any number of threads at once; workers serve the batches in the
// order they came. The caller does all the work itself when no worker is free, so a batch never
// waits for another one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "env/sync.h"

namespace mooncake::transfer {

// Scratch memory of one thread: one digest block, made at first use.
class Staging {
 public:
  // kDigestBlockBytes, on a page's boundary.
  std::byte* Block();

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> block_;
};

class PiecePool {
 public:
  // `threads` >= 1, the callers' own included.
  explicit PiecePool(int threads);
  ~PiecePool();
  PiecePool(const PiecePool&) = delete;
  PiecePool& operator=(const PiecePool&) = delete;

  // Does pieces 0..pieces-1 with `work`, on up to `threads` threads. After a failure no further
  // piece is begun, and the failure of the lowest piece is returned; all lower pieces were done.
  // All work, with its streamed stores, is visible to the caller when this returns.
  using Work = std::function<Status(uint64_t piece, Staging& staging)>;
  Status Run(uint64_t pieces, const Work& work);

 private:
  struct Batch {
    const Work* work = nullptr;
    uint64_t pieces = 0;
    std::atomic<uint64_t> next{0};
    env::Mutex failure_mutex;
    uint64_t failed_piece = 0;
    Status failure;
    int helpers = 0;  // workers inside; guarded by the pool's mutex
  };

  static void TakePieces(Batch* batch, Staging* staging);
  void Serve();
  bool InForkedChild() const;

  const pid_t owner_pid_;
  env::Mutex mutex_;
  env::CondVar work_came_;
  env::CondVar helper_left_;
  std::deque<Batch*> batches_;  // those that may still have pieces
  bool stopping_ = false;
  std::vector<env::Thread> workers_;
};

}  // namespace mooncake::transfer
