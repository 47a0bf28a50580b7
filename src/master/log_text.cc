#include "master/log_text.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <memory>

#include "env/clock.h"
#include "env/file.h"
#include "master/snapshot.h"
#include "mooncake/v1/log.pb.h"
#include "oplog/snapshot_frames.h"
#include "oplog/snapshot_store.h"
#include "oplog/sqlite_log.h"

namespace mooncake::master {
namespace {

std::unique_ptr<google::protobuf::Message> BodyOf(uint32_t kind) {
  switch (kind) {
    case v1::EVENT_KIND_OBJECT:
      return std::make_unique<v1::ObjectEvent>();
    case v1::EVENT_KIND_ARENA:
      return std::make_unique<v1::ArenaEvent>();
    case v1::EVENT_KIND_NODE:
      return std::make_unique<v1::NodeEvent>();
    case v1::EVENT_KIND_SLAB:
      return std::make_unique<v1::SlabEvent>();
    case v1::EVENT_KIND_PUT:
      return std::make_unique<v1::PutEvent>();
    case v1::EVENT_KIND_TENANT:
      return std::make_unique<v1::TenantEvent>();
    case v1::EVENT_KIND_REVISION:
      return std::make_unique<v1::RevisionEvent>();
    case v1::EVENT_KIND_LEASE:
      return std::make_unique<v1::LeaseEvent>();
    case v1::EVENT_KIND_TOMBSTONE:
      return std::make_unique<v1::TombstoneEvent>();
    case v1::EVENT_KIND_COMMAND_OUTCOME:
      return std::make_unique<v1::CommandOutcome>();
    default:
      return nullptr;
  }
}

std::unique_ptr<google::protobuf::Message> RecordOf(std::string_view section) {
  if (section == kSnapshotHeader) return std::make_unique<v1::SnapshotHeader>();
  if (section == kSnapshotObjects) return std::make_unique<v1::ObjectsRecord>();
  if (section == kSnapshotWeights) return std::make_unique<v1::WeightsRecord>();
  if (section == kSnapshotPool) return std::make_unique<v1::PoolRecord>();
  if (section == kSnapshotCommands) return std::make_unique<v1::CommandsRecord>();
  return nullptr;
}

Result<std::string> ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!printed.ok()) return Corrupt(std::string(printed.message()));
  return json;
}

std::string KindName(uint32_t kind) {
  constexpr std::string_view kPrefix = "EVENT_KIND_";
  if (!v1::EventKind_IsValid(static_cast<int>(kind))) return std::to_string(kind);
  return v1::EventKind_Name(static_cast<v1::EventKind>(kind)).substr(kPrefix.size());
}

Result<std::string> EventJson(const v1::LogEvent& event) {
  const std::unique_ptr<google::protobuf::Message> body = BodyOf(event.kind());
  std::string text;
  if (body == nullptr) {
    MC_ASSIGN_OR_RETURN(text, ToJson(event));
  } else if (!body->ParseFromString(event.body())) {
    return Corrupt(fmt::format("an event of kind {} cannot be read", KindName(event.kind())));
  } else {
    MC_ASSIGN_OR_RETURN(text, ToJson(*body));
  }
  return fmt::format(R"({{"kind": "{}", "version": {}, "body": {}}})", KindName(event.kind()),
                     event.version(), text);
}

Result<LogBatchText> TextOf(const oplog::LogRecordView& record) {
  v1::LogBatch batch;
  if (!batch.ParseFromArray(record.payload.data(), static_cast<int>(record.payload.size()))) {
    return Corrupt(fmt::format("log sequence {} is no batch of events", record.sequence));
  }
  std::string events;
  for (const v1::LogEvent& event : batch.events()) {
    Result<std::string> json = EventJson(event);
    if (!json.ok()) {
      return json.status().WithContext(fmt::format("log sequence {}", record.sequence));
    }
    if (!events.empty()) events += ", ";
    events += *json;
  }
  return LogBatchText{
      record.sequence, record.term, record.payload.size(),
      fmt::format(R"({{"time": "{}", "events": [{}]}})", env::Iso8601Utc(record.time_ms), events)};
}

}  // namespace

Result<std::vector<LogBatchText>> ReadLogText(const std::string& path, uint64_t first,
                                              uint64_t limit) {
  MC_ASSIGN_OR_RETURN(const bool exists, env::PathExists(path));
  if (!exists) return NotFound("no such log: " + path);
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<oplog::SqliteLog> log,
                      oplog::SqliteLog::Open(path, {.read_only = true}));
  MC_ASSIGN_OR_RETURN(const uint64_t last, log->LastSequence());
  MC_ASSIGN_OR_RETURN(const uint64_t kept, log->FirstSequence());
  std::vector<LogBatchText> batches;
  const Status scanned = log->Scan(std::max<uint64_t>({first, kept, 1}),
                                   [&](const oplog::LogRecordView& record) -> Status {
                                     if (limit != 0 && batches.size() == limit)
                                       return Cancelled("enough");
                                     MC_ASSIGN_OR_RETURN(LogBatchText text, TextOf(record));
                                     batches.push_back(std::move(text));
                                     return OkStatus();
                                   });
  const bool enough = limit != 0 && batches.size() == limit;
  if (!scanned.ok() && !(enough && scanned.code() == Code::kCancelled)) return scanned;
  if (first > last + 1) {
    return InvalidArgument(fmt::format("the log ends at batch {}, asked from {}", last, first));
  }
  return batches;
}

Result<std::vector<SnapshotRecordText>> ReadSnapshotText(const std::string& path) {
  MC_ASSIGN_OR_RETURN(const std::string file, env::ReadFile(path, oplog::kSnapshotBytesMax));
  if (const auto decoded = DecodeSnapshot(file); !decoded.ok()) {
    return decoded.status().WithContext(path);
  }
  std::vector<SnapshotRecordText> records;
  MC_RETURN_IF_ERROR(oplog::ReadSnapshotFrames(
      file, [&records](std::string_view section, std::string_view bytes) -> Status {
        const std::unique_ptr<google::protobuf::Message> record = RecordOf(section);
        if (record == nullptr ||
            !record->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
          return Corrupt(fmt::format("a record of section {} cannot be read", section));
        }
        MC_ASSIGN_OR_RETURN(std::string json, ToJson(*record));
        records.push_back({std::string(section), bytes.size(), std::move(json)});
        return OkStatus();
      }));
  return records;
}

}  // namespace mooncake::master
