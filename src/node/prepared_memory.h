// Memory made ahead of need, so that a publish writes to pages that are there already: making them
// takes longer than filling them.
//
// Owns anonymous files of file_bytes each, never handed to anyone before (recycled memory could
// show one revision's bytes to a process that still maps another's), and the thread that makes
// them. Makes new ones only after a while without a Take, so as not to compete with the publish
// that it serves. Never holds more than target_bytes, nor than the room it was told of.
// Threads: every method from any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "env/memory_file.h"
#include "env/sync.h"

namespace mooncake::node {

class PreparedMemory {
 public:
  struct Options {
    uint64_t target_bytes = 0;  // less than one file: nothing is ever prepared
    uint64_t file_bytes = uint64_t{256} << 20;
    int64_t quiet_ms = 500;
  };

  // `room_bytes`: what SetRoom would be told now.
  PreparedMemory(Options options, uint64_t room_bytes);
  ~PreparedMemory();
  PreparedMemory(const PreparedMemory&) = delete;
  PreparedMemory& operator=(const PreparedMemory&) = delete;

  // A sealed file of exactly `bytes`, all zeros. Absent: none is ready, or one would be wasted on
  // so few bytes or is too small.
  std::optional<env::MemoryFile> Take(uint64_t bytes);

  // How much of the node's capacity nothing uses. What is held beyond it is freed before return.
  void SetRoom(uint64_t room_bytes);

  uint64_t ready_bytes() const;

 private:
  uint64_t FilesWanted() const;
  void Run(const std::stop_token& stop);
  // Waits until a file is wanted and it was quiet for long enough; false: stopping.
  bool WaitUntilWanted(std::unique_lock<env::Mutex>& lock, const std::stop_token& stop);

  const Options options_;
  mutable env::Mutex mutex_;  // guards what follows; never held while memory is made or freed
  env::CondVar changed_;
  uint64_t room_bytes_;
  uint64_t takes_ = 0;
  std::vector<env::MemoryFile> ready_;
  env::Thread maker_;  // last: it uses all of the above
};

}  // namespace mooncake::node
