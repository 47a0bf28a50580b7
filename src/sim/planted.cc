#include "sim/planted.h"

#include <utility>

#include "sim/channels.h"

namespace mooncake::sim {
namespace {

// Shows every record to the judge before it is appended.
class WatchedLog : public oplog::LogStore {
 public:
  WatchedLog(std::unique_ptr<oplog::LogStore> inner, Judge& judge)
      : inner_(std::move(inner)), judge_(judge) {}

  Status Append(const oplog::LogRecordView& record) override {
    judge_.OnLogRecord(record.payload);
    return inner_->Append(record);
  }
  Status Scan(uint64_t sequence, const Visitor& visit) override {
    return inner_->Scan(sequence, visit);
  }
  Result<uint64_t> LastSequence() override { return inner_->LastSequence(); }
  Result<uint64_t> FirstSequence() override { return inner_->FirstSequence(); }
  Result<bool> DropBefore(uint64_t sequence, uint64_t records_max) override {
    return inner_->DropBefore(sequence, records_max);
  }
  Status CheckSpace() override { return inner_->CheckSpace(); }
  Result<std::optional<std::string>> ReadMeta(std::string_view key) override {
    return inner_->ReadMeta(key);
  }
  Status WriteMeta(std::string_view key, std::string_view value) override {
    return inner_->WriteMeta(key, value);
  }
  Status Close() override { return inner_->Close(); }

 private:
  const std::unique_ptr<oplog::LogStore> inner_;
  Judge& judge_;
};

}  // namespace

std::shared_ptr<void> Plant(PlantedBug, SimCluster& cluster, Judge& judge) {
  cluster.wrap_log = [&judge](std::unique_ptr<oplog::LogStore> log) {
    return std::unique_ptr<oplog::LogStore>(std::make_unique<WatchedLog>(std::move(log), judge));
  };
  return nullptr;
}

}  // namespace mooncake::sim
