#include "transfer/piece_pool.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/digest.h"
#include "env/sync.h"
#include "transfer/copy_kernels.h"

namespace mooncake::transfer {

void Staging::Free::operator()(std::byte* memory) const { std::free(memory); }

std::byte* Staging::Block() {
  if (block_ == nullptr) {
    constexpr size_t kPageBytes = 4096;
    block_.reset(static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kDigestBlockBytes)));
    MC_CHECK(block_ != nullptr);
  }
  return block_.get();
}

PiecePool::PiecePool(int threads) : owner_pid_(::getpid()) {
  MC_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Serve(); });
}

PiecePool::~PiecePool() {
  if (InForkedChild()) {
    // The threads exist only in the parent: there is nothing to stop, and a join would never end.
    for (env::Thread& worker : workers_) worker.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_came_.notify_all();
  for (env::Thread& worker : workers_) worker.join();
}

bool PiecePool::InForkedChild() const { return ::getpid() != owner_pid_; }

void PiecePool::TakePieces(Batch* batch, Staging* staging) {
  while (true) {
    const uint64_t piece = batch->next.fetch_add(1);
    if (piece >= batch->pieces) break;
    Status status = (*batch->work)(piece, *staging);
    if (status.ok()) continue;
    // Pieces are taken in increasing order, so all lower ones are done or in other hands.
    batch->next.store(batch->pieces);
    const std::lock_guard lock(batch->failure_mutex);
    if (batch->failure.ok() || piece < batch->failed_piece) {
      batch->failure = std::move(status);
      batch->failed_piece = piece;
    }
    break;
  }
  FenceStreams();
}

Status PiecePool::Run(uint64_t pieces, const Work& work) {
  Batch batch;
  batch.work = &work;
  batch.pieces = pieces;
  Staging staging;
  // The mutex of a forked child may have been copied in a worker's hands.
  const bool alone = pieces <= 1 || workers_.empty() || InForkedChild();
  if (alone) {
    TakePieces(&batch, &staging);
    return batch.failure;
  }
  {
    const std::lock_guard lock(mutex_);
    batches_.push_back(&batch);
  }
  const uint64_t wanted = std::min<uint64_t>(pieces - 1, workers_.size());
  for (uint64_t i = 0; i < wanted; ++i) work_came_.notify_one();
  TakePieces(&batch, &staging);
  std::unique_lock lock(mutex_);
  std::erase(batches_, &batch);
  helper_left_.wait(lock, [&] { return batch.helpers == 0; });
  return batch.failure;
}

void PiecePool::Serve() {
  Staging staging;
  std::unique_lock lock(mutex_);
  while (true) {
    work_came_.wait(lock, [&] { return stopping_ || !batches_.empty(); });
    if (stopping_) return;
    Batch* batch = batches_.front();
    ++batch->helpers;
    lock.unlock();
    TakePieces(batch, &staging);
    lock.lock();
    // Nothing is left to take in it: the next worker goes to the next batch.
    std::erase(batches_, batch);
    if (--batch->helpers == 0) helper_left_.notify_all();
  }
}

}  // namespace mooncake::transfer
