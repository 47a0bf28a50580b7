#include "oplog/memory_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace mooncake::oplog {

std::unique_ptr<MemoryLog> MemoryLog::CopyOf(const MemoryLog& other, size_t records) {
  auto copy = std::make_unique<MemoryLog>();
  std::lock_guard lock(other.mutex_);
  MC_CHECK(records <= other.records_.size());
  copy->records_.assign(other.records_.begin(), other.records_.begin() + records);
  copy->dropped_ = std::min(other.dropped_, records);
  copy->meta_ = other.meta_;
  return copy;
}

Status MemoryLog::AppendAll(std::span<const LogRecordView> records) {
  if (records.empty()) return OkStatus();
  std::function<void(size_t)> hook;
  size_t count = 0;
  Status answer;
  {
    std::lock_guard lock(mutex_);
    const size_t before = records_.size();
    for (const LogRecordView& record : records) {
      const Status follows = CheckFollows(record);
      if (!follows.ok()) {
        records_.resize(before);
        return follows;
      }
      records_.push_back(
          {record.sequence, record.term, record.time_ms, std::string(record.payload)});
    }
    if (faults_left_ > 0) {
      --faults_left_;
      answer =
          fault_status_.WithContext(fmt::format("append of sequence {}", records.back().sequence));
      if (fault_ == AppendFault::kLost) {
        records_.resize(before);
        return answer;
      }
    }
    count = records_.size();
    hook = on_append_;
  }
  if (hook) hook(count);
  return answer;
}

Status MemoryLog::CheckFollows(const LogRecordView& record) const {
  if (record.sequence != records_.size() + 1) {
    return Conflict(
        fmt::format("expected sequence {}, got {}", records_.size() + 1, record.sequence));
  }
  if (records_.empty()) return OkStatus();
  if (record.term < records_.back().term) {
    return Conflict(
        fmt::format("expected term {} or more, got {}", records_.back().term, record.term));
  }
  if (record.time_ms < records_.back().time_ms) {
    return Conflict(fmt::format("expected time {} ms or later, got {}", records_.back().time_ms,
                                record.time_ms));
  }
  return OkStatus();
}

Status MemoryLog::Scan(uint64_t sequence, const Visitor& visit) {
  MC_CHECK(sequence > 0);
  for (uint64_t next = sequence;; ++next) {
    Record record;
    {
      std::lock_guard lock(mutex_);
      MC_RETURN_IF_ERROR(read_status_);
      if (next > records_.size()) return OkStatus();
      if (next <= dropped_) {
        return Corrupt(
            fmt::format("hole in the log: expected sequence {}, got {}", next, dropped_ + 1));
      }
      record = records_[next - 1];
    }
    MC_RETURN_IF_ERROR(visit({record.sequence, record.term, record.time_ms, record.payload}));
  }
}

Result<uint64_t> MemoryLog::LastSequence() {
  std::lock_guard lock(mutex_);
  MC_RETURN_IF_ERROR(read_status_);
  return uint64_t{records_.size()};
}

Result<uint64_t> MemoryLog::FirstSequence() {
  std::lock_guard lock(mutex_);
  MC_RETURN_IF_ERROR(read_status_);
  return records_.empty() ? uint64_t{0} : uint64_t{dropped_ + 1};
}

Result<bool> MemoryLog::DropBefore(uint64_t sequence, uint64_t records_max) {
  std::lock_guard lock(mutex_);
  const uint64_t last = records_.size();
  const uint64_t wanted = std::min(sequence, std::max<uint64_t>(last, 1)) - 1;
  for (; dropped_ < wanted && records_max > 0; --records_max) records_[dropped_++].payload.clear();
  return dropped_ < wanted;
}

Result<std::optional<std::string>> MemoryLog::ReadMeta(std::string_view key) {
  std::lock_guard lock(mutex_);
  auto found = meta_.find(key);
  if (found == meta_.end()) return std::optional<std::string>();
  return std::optional<std::string>(found->second);
}

Status MemoryLog::WriteMeta(std::string_view key, std::string_view value) {
  std::lock_guard lock(mutex_);
  meta_.insert_or_assign(std::string(key), std::string(value));
  return OkStatus();
}

Status MemoryLog::Close() { return OkStatus(); }

void MemoryLog::FailAppends(AppendFault fault, int count, Status why) {
  std::lock_guard lock(mutex_);
  fault_status_ = std::move(why);
  fault_ = fault;
  faults_left_ = count;
}

Status MemoryLog::CheckSpace() {
  std::lock_guard lock(mutex_);
  return space_status_;
}

void MemoryLog::FailSpace(Status status) {
  std::lock_guard lock(mutex_);
  space_status_ = std::move(status);
}

void MemoryLog::FailReads(Status status) {
  std::lock_guard lock(mutex_);
  read_status_ = std::move(status);
}

void MemoryLog::OnAppend(std::function<void(size_t)> hook) {
  std::lock_guard lock(mutex_);
  on_append_ = std::move(hook);
}

size_t MemoryLog::size() const {
  std::lock_guard lock(mutex_);
  return records_.size();
}

MemoryLog::Record MemoryLog::At(size_t index) const {
  std::lock_guard lock(mutex_);
  MC_CHECK(index < records_.size());
  return records_[index];
}

void MemoryLog::Damage(size_t index, std::string payload) {
  std::lock_guard lock(mutex_);
  MC_CHECK(index < records_.size());
  records_[index].payload = std::move(payload);
}

}  // namespace mooncake::oplog
