// Where snapshots of the Master's state lie, each under the sequence of the last log record in it.
//
// A SnapshotStore never looks into one. Implementations: FolderSnapshots (files), MemorySnapshots
// (tests and simulation). Threads: every method from any thread; one writer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "env/sync.h"

namespace mooncake::oplog {

inline constexpr uint64_t kSnapshotBytesMax = uint64_t{64} << 30;

class SnapshotStore {
 public:
  virtual ~SnapshotStore() = default;

  // Ascending.
  virtual Result<std::vector<uint64_t>> List() = 0;
  virtual Result<std::string> Read(uint64_t sequence) = 0;
  // Durable when OK; never there in part.
  virtual Status Write(uint64_t sequence, std::string_view bytes) = 0;
  // Absence is OK.
  virtual Status Remove(uint64_t sequence) = 0;
  // For messages.
  virtual std::string Describe(uint64_t sequence) const = 0;
};

// Files <folder>/<sequence, 20 digits>.snapshot; the folder is made when it is missing.
class FolderSnapshots final : public SnapshotStore {
 public:
  explicit FolderSnapshots(std::string folder) : folder_(std::move(folder)) {}

  Result<std::vector<uint64_t>> List() override;
  Result<std::string> Read(uint64_t sequence) override;
  Status Write(uint64_t sequence, std::string_view bytes) override;
  Status Remove(uint64_t sequence) override;
  std::string Describe(uint64_t sequence) const override;

 private:
  const std::string folder_;
};

class MemorySnapshots final : public SnapshotStore {
 public:
  Result<std::vector<uint64_t>> List() override;
  Result<std::string> Read(uint64_t sequence) override;
  Status Write(uint64_t sequence, std::string_view bytes) override;
  Status Remove(uint64_t sequence) override;
  std::string Describe(uint64_t sequence) const override;

  // The next Write answers this, once, and writes nothing.
  void FailWrite(Status status);
  // Replaces the bytes of a snapshot that is there, as damage would.
  void Damage(uint64_t sequence, std::string bytes);

 private:
  env::Mutex mutex_;
  std::map<uint64_t, std::string> snapshots_;
  Status write_status_;
};

}  // namespace mooncake::oplog
