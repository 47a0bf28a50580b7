#include "node/prepared_memory.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "env/sync.h"

namespace mooncake::node {
namespace {

// Of a file's size; less than that is made in a moment when it is needed.
constexpr uint64_t kWorthwhileShare = 4;
constexpr int64_t kShortOfMemoryPauseMs = 10'000;

}  // namespace

PreparedMemory::PreparedMemory(Options options, uint64_t room_bytes)
    : options_(options), room_bytes_(room_bytes) {
  if (options_.target_bytes < options_.file_bytes) return;
  maker_ = env::Thread([this](const std::stop_token& stop) { Run(stop); });
}

PreparedMemory::~PreparedMemory() = default;

std::optional<env::MemoryFile> PreparedMemory::Take(uint64_t bytes) {
  if (bytes > options_.file_bytes || bytes < options_.file_bytes / kWorthwhileShare) return {};
  std::optional<env::MemoryFile> taken;
  {
    std::lock_guard lock(mutex_);
    ++takes_;
    changed_.notify_all();
    if (ready_.empty()) return {};
    taken = std::move(ready_.back());
    ready_.pop_back();
  }
  if (const Status status = taken->SealAt(bytes); !status.ok()) {
    Log().warn("node: prepared memory is of no use: {}", status.ToString());
    return {};
  }
  return taken;
}

void PreparedMemory::SetRoom(uint64_t room_bytes) {
  std::vector<env::MemoryFile> freed;
  std::lock_guard lock(mutex_);
  room_bytes_ = room_bytes;
  while (ready_.size() > FilesWanted()) {
    freed.push_back(std::move(ready_.back()));
    ready_.pop_back();
  }
  changed_.notify_all();
}

uint64_t PreparedMemory::ready_bytes() const {
  std::lock_guard lock(mutex_);
  return ready_.size() * options_.file_bytes;
}

uint64_t PreparedMemory::FilesWanted() const {
  return std::min(options_.target_bytes, room_bytes_) / options_.file_bytes;
}

bool PreparedMemory::WaitUntilWanted(std::unique_lock<env::Mutex>& lock,
                                     const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    changed_.wait(lock, stop, [this] { return ready_.size() < FilesWanted(); });
    const uint64_t takes = takes_;
    const bool disturbed =
        changed_.wait_for(lock, stop, std::chrono::milliseconds(options_.quiet_ms),
                          [&] { return takes_ != takes || ready_.size() >= FilesWanted(); });
    if (!disturbed && !stop.stop_requested()) return true;
  }
  return false;
}

void PreparedMemory::Run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (WaitUntilWanted(lock, stop)) {
    const uint64_t takes = takes_;
    // Until the next Take: one file after the other without another pause.
    while (ready_.size() < FilesWanted() && takes_ == takes && !stop.stop_requested()) {
      lock.unlock();
      Result<env::MemoryFile> made =
          env::MemoryFile::PrepareAnonymous("mooncake-arena", options_.file_bytes);
      lock.lock();
      if (!made.ok()) {
        Log().info("node: no memory is prepared: {}", made.status().ToString());
        changed_.wait_for(lock, stop, std::chrono::milliseconds(kShortOfMemoryPauseMs),
                          [] { return false; });
        break;
      }
      if (ready_.size() >= FilesWanted()) {
        // The room was taken meanwhile.
        lock.unlock();
        made = Cancelled("not wanted any more");
        lock.lock();
        break;
      }
      ready_.push_back(*std::move(made));
    }
  }
}

}  // namespace mooncake::node
