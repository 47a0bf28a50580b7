// A LogStore in memory, with failures on demand: tests and the simulation.
//
// Threads: every method takes a lock, so that a test may look on while a sequencer appends.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/sync.h"
#include "oplog/log_store.h"

namespace mooncake::oplog {

class MemoryLog final : public LogStore {
 public:
  struct Record {
    uint64_t sequence = 0;
    uint64_t term = 0;
    int64_t time_ms = 0;
    std::string payload;
  };

  enum class AppendFault {
    kLost,              // answers UNAVAILABLE, the record is not there
    kDurableButUnclear  // answers UNAVAILABLE, the record is there
  };

  MemoryLog() = default;
  // A log as a crash left it: the first `records` records that `other` ever had (less those that it
  // dropped), and its meta values.
  static std::unique_ptr<MemoryLog> CopyOf(const MemoryLog& other, size_t records);

  Status AppendAll(std::span<const LogRecordView> records) override;
  Status Scan(uint64_t sequence, const Visitor& visit) override;
  Result<uint64_t> LastSequence() override;
  Result<uint64_t> FirstSequence() override;
  Result<bool> DropBefore(uint64_t sequence, uint64_t records_max) override;
  Result<std::optional<std::string>> ReadMeta(std::string_view key) override;
  Status WriteMeta(std::string_view key, std::string_view value) override;
  Status CheckSpace() override;
  Status Close() override;

  // The next `count` appends fail as told.
  void FailAppends(AppendFault fault, int count = 1, Status why = Unavailable("injected fault"));
  // Until called again with OK, Scan and LastSequence answer this.
  void FailReads(Status status);
  // Until called again with OK, CheckSpace answers this.
  void FailSpace(Status status);
  // Called after each durable append, outside the lock, with the number of records.
  void OnAppend(std::function<void(size_t records)> hook);

  size_t size() const;  // dropped ones included
  Record At(size_t index) const;
  // Replaces the payload of a record, as damage would.
  void Damage(size_t index, std::string payload);

 private:
  Status CheckFollows(const LogRecordView& record) const;

  mutable env::Mutex mutex_;
  std::vector<Record> records_;  // [0, dropped_) are empty
  size_t dropped_ = 0;
  std::map<std::string, std::string, std::less<>> meta_;
  AppendFault fault_ = AppendFault::kLost;
  int faults_left_ = 0;
  Status fault_status_;
  Status read_status_;
  Status space_status_;
  std::function<void(size_t)> on_append_;
};

}  // namespace mooncake::oplog
