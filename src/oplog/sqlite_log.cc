#include "oplog/sqlite_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/digest.h"
#include "base/log.h"
#include "env/file.h"
#include "oplog/wal_check.h"

namespace mooncake::oplog {
namespace {

// "MCWL" in SQLite's header field for the owner of a file. On disk: never change.
constexpr int64_t kApplicationId = 0x4d43574c;

// Pages in the write-ahead file before SQLite moves them into the main file: 16 MiB, so that the
// cost of a checkpoint is spread over many appends.
constexpr int kCheckpointPages = 4096;

constexpr const char* kCreateTables =
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE log (sequence INTEGER PRIMARY KEY, term INTEGER NOT NULL, time_ms INTEGER NOT "
    "NULL,"
    " payload BLOB NOT NULL, checksum BLOB NOT NULL) STRICT;";

constexpr std::string_view kSchemaVersionKey = "schema_version";
// Of the first row that was not dropped; absent: 1. So that a row missing in front is seen.
constexpr std::string_view kFirstSequenceKey = "first_sequence";

// XXH3-128 over sequence, term and time as little-endian 64-bit words and the XXH3-128 of the
// payload.
BlockDigest ChecksumOf(const LogRecordView& record) {
  const BlockDigest payload = BlockDigestOf(record.payload.data(), record.payload.size());
  const uint64_t words[3] = {record.sequence, record.term, static_cast<uint64_t>(record.time_ms)};
  std::array<uint8_t, sizeof words + sizeof payload.bytes> text;
  for (size_t i = 0; i < sizeof words; ++i) {
    text[i] = static_cast<uint8_t>(words[i / 8] >> (8 * (i % 8)));
  }
  std::copy(payload.bytes.begin(), payload.bytes.end(), text.begin() + sizeof words);
  return BlockDigestOf(text.data(), text.size());
}

std::string_view ViewOf(const BlockDigest& digest) {
  return {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()};
}

}  // namespace

SqliteLog::SqliteLog(std::string path, SqliteLogOptions options)
    : path_(std::move(path)),
      options_(options),
      reserve_(path_ + "-reserve", options.read_only ? 0 : options.reserve_bytes) {}

SqliteLog::~SqliteLog() { Disconnect(); }

Result<std::unique_ptr<SqliteLog>> SqliteLog::Open(const std::string& path,
                                                   SqliteLogOptions options) {
  std::unique_ptr<SqliteLog> log(new SqliteLog(path, options));
  MC_RETURN_IF_ERROR(log->EnsureOpen());
  if (const Status kept = log->reserve_.Keep(); !kept.ok()) Log().warn("log: {}", kept.ToString());
  return log;
}

Status SqliteLog::EnsureOpen() {
  MC_CHECK(!closed_);
  if (database_ != nullptr) return OkStatus();
  Status status = OpenFile();
  if (!status.ok()) Disconnect();
  // Opening writes, too: a write-ahead file, and its index.
  if (status.code() == Code::kExhausted && reserve_.Release()) {
    status = OpenFile();
    if (!status.ok()) Disconnect();
  }
  return status;
}

Status SqliteLog::MakeRoom(const Status& failure) {
  if (failure.code() != Code::kExhausted || !reserve_.Release()) return failure;
  Log().warn("log: the reserve of {} is given back: {}", path_, failure.ToString());
  Disconnect();
  return EnsureOpen();
}

Status SqliteLog::CheckSpace() { return reserve_.Keep(); }

// SQLite takes a missing file for an empty one, and throws away what lies in the write-ahead file
// of an empty one: so this comes before it.
Status SqliteLog::CheckIsThere() const {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path_, error);
  if (error == std::errc::no_such_file_or_directory) return NotFound("there is no log " + path_);
  if (error) return Unavailable(fmt::format("size of {}: {}", path_, error.message()));
  return bytes > 0 ? OkStatus() : NotFound(fmt::format("the log {} has 0 bytes", path_));
}

Status SqliteLog::OpenFile() {
  if (!options_.create) MC_RETURN_IF_ERROR(CheckIsThere());
  if (!options_.read_only) MC_RETURN_IF_ERROR(CheckWriteAhead());
  const auto mode =
      options_.read_only ? SqliteDatabase::Mode::kReadOnly : SqliteDatabase::Mode::kReadWrite;
  MC_ASSIGN_OR_RETURN(database_,
                      SqliteDatabase::Open(path_, mode, options_.busy_timeout_ms, options_.vfs));
  // Before anything is written: the file may be someone else's.
  MC_ASSIGN_OR_RETURN(const bool fresh, CheckOwner());
  if (fresh && !options_.create) return NotFound(fmt::format("the log {} has no tables", path_));
  if (!options_.read_only) MC_RETURN_IF_ERROR(SetDurability());
  if (fresh) MC_RETURN_IF_ERROR(CreateSchema());
  MC_RETURN_IF_ERROR(CheckSchemaVersion());
  MC_RETURN_IF_ERROR(Verify());
  if (options_.read_only) return OkStatus();
  MC_ASSIGN_OR_RETURN(insert_, database_->Prepare("INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5)"));
  return env::SyncFolder(env::FolderOf(path_));
}

// While nobody writes: a reader beside its Master may meet it half overwritten.
Status SqliteLog::CheckWriteAhead() const {
  const std::string path = path_ + "-wal";
  const Result<std::string> file = env::ReadFile(path);
  if (file.ok()) return CheckWriteAheadFile(*file).WithContext(path);
  if (file.status().code() == Code::kNotFound) return OkStatus();
  return file.status();
}

Status SqliteLog::SetDurability() {
  MC_ASSIGN_OR_RETURN(std::string mode, database_->QueryText("PRAGMA journal_mode=WAL"));
  if (mode != "wal") {
    return Unsupported(fmt::format("{}: expected journal mode wal, got {}", path_, mode));
  }
  MC_RETURN_IF_ERROR(database_->Execute("PRAGMA synchronous=FULL"));
  MC_RETURN_IF_ERROR(WriteAnew());
  return database_->Execute(fmt::format("PRAGMA wal_autocheckpoint={}", kCheckpointPages).c_str());
}

// After a failed fsync Linux takes the pages that it could not write for clean: they still read as
// they should, no later fsync writes them, and a power loss takes them. So nothing is appended
// behind what the write-ahead file held at the start: its pages go into the main file, which is
// synced, and it begins empty.
Status SqliteLog::WriteAnew() {
  MC_ASSIGN_OR_RETURN(const int64_t busy, database_->QueryInt("PRAGMA wal_checkpoint(TRUNCATE)"));
  if (busy == 0) return OkStatus();
  return Unavailable(
      fmt::format("{}: a reader keeps the write-ahead file from being emptied", path_));
}

Status SqliteLog::CreateSchema() {
  MC_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  MC_RETURN_IF_ERROR(
      database_->Execute(fmt::format("PRAGMA application_id={}", kApplicationId).c_str()));
  MC_RETURN_IF_ERROR(database_->Execute(kCreateTables));
  MC_ASSIGN_OR_RETURN(SqliteStatement insert,
                      database_->Prepare("INSERT INTO meta VALUES (?1, ?2)"));
  const std::string version = std::to_string(kLogSchemaVersion);
  insert.BindText(1, kSchemaVersionKey);
  insert.BindBlob(2, version);
  MC_RETURN_IF_ERROR(insert.Step().status());
  insert.Reset();
  return database_->Execute("COMMIT");
}

Result<bool> SqliteLog::CheckOwner() {
  MC_ASSIGN_OR_RETURN(int64_t application, database_->QueryInt("PRAGMA application_id"));
  MC_ASSIGN_OR_RETURN(int64_t tables, database_->QueryInt("SELECT count(*) FROM sqlite_schema"));
  if (tables == 0 && application == 0 && !options_.read_only) return true;
  if (application == kApplicationId) return false;
  return InvalidArgument(fmt::format("{}: not a Mooncake log: expected application id {}, got {}",
                                     path_, kApplicationId, application));
}

Status SqliteLog::CheckSchemaVersion() {
  MC_ASSIGN_OR_RETURN(std::optional<std::string> version, ReadMeta(kSchemaVersionKey));
  if (!version) return Corrupt(fmt::format("{}: no schema version", path_));
  if (*version != std::to_string(kLogSchemaVersion)) {
    return Unsupported(
        fmt::format("{}: expected schema version {}, got {}", path_, kLogSchemaVersion, *version));
  }
  return OkStatus();
}

Status SqliteLog::Verify() {
  tail_ = {};
  MC_ASSIGN_OR_RETURN(const uint64_t first, ReadFirst());
  return ScanRows(first, [this](const LogRecordView& record) {
    tail_ = {record.sequence, record.term, record.time_ms};
    return OkStatus();
  });
}

Status SqliteLog::ScanRows(uint64_t sequence, const Visitor& visit) {
  MC_ASSIGN_OR_RETURN(
      SqliteStatement select,
      database_->Prepare("SELECT sequence, term, time_ms, payload, checksum FROM log"
                         " WHERE sequence >= ?1 ORDER BY sequence"));
  select.BindInt(1, static_cast<int64_t>(sequence));
  Tail previous{sequence - 1, 0, std::numeric_limits<int64_t>::min()};
  for (;;) {
    Result<bool> row = select.Step();
    if (!row.ok()) {
      return row.status().WithContext(fmt::format("log sequence {}", previous.sequence + 1));
    }
    if (!*row) return OkStatus();
    const LogRecordView record{static_cast<uint64_t>(select.Int(0)),
                               static_cast<uint64_t>(select.Int(1)), select.Int(2), select.Blob(3)};
    if (record.sequence != previous.sequence + 1) {
      return Corrupt(fmt::format("{}: hole in the log: expected sequence {}, got {}", path_,
                                 previous.sequence + 1, record.sequence));
    }
    const BlockDigest checksum = ChecksumOf(record);
    if (select.Blob(4) != ViewOf(checksum)) {
      return Corrupt(fmt::format("{}: log sequence {} is damaged: expected checksum {}, got {}",
                                 path_, record.sequence, HexOf(select.Blob(4)),
                                 HexOf(ViewOf(checksum))));
    }
    if (record.term < previous.term || record.time_ms < previous.time_ms) {
      return Corrupt(fmt::format(
          "{}: log sequence {} runs back: expected term >= {} and time >= {} ms, got {} and {}",
          path_, record.sequence, previous.term, previous.time_ms, record.term, record.time_ms));
    }
    MC_RETURN_IF_ERROR(visit(record));
    previous = {record.sequence, record.term, record.time_ms};
  }
}

Status SqliteLog::CheckFollows(std::span<const LogRecordView> records) const {
  Tail before = tail_;
  for (const LogRecordView& record : records) {
    if (record.sequence != before.sequence + 1) {
      return Conflict(fmt::format("{}: expected sequence {}, got {}", path_, before.sequence + 1,
                                  record.sequence));
    }
    if (record.term < before.term) {
      return Conflict(
          fmt::format("{}: expected term {} or more, got {}", path_, before.term, record.term));
    }
    if (before.sequence > 0 && record.time_ms < before.time_ms) {
      return Conflict(fmt::format("{}: expected time {} ms or later, got {}", path_, before.time_ms,
                                  record.time_ms));
    }
    before = {record.sequence, record.term, record.time_ms};
  }
  return OkStatus();
}

Status SqliteLog::AppendAll(std::span<const LogRecordView> records) {
  if (options_.read_only) return InvalidArgument(fmt::format("{}: opened read-only", path_));
  if (records.empty()) return OkStatus();
  MC_RETURN_IF_ERROR(EnsureOpen());
  MC_RETURN_IF_ERROR(CheckFollows(records));
  const LogRecordView& last = records.back();
  Status status = InsertAll(records);
  if (!status.ok()) {
    status = MakeRoom(status);
    // What was opened anew says whether the records are there after all: all, or none.
    if (status.ok() && tail_.sequence < last.sequence) status = InsertAll(records);
  }
  if (!status.ok()) {
    Disconnect();
    return status.WithContext(fmt::format("append of log sequence {}", last.sequence));
  }
  tail_ = {last.sequence, last.term, last.time_ms};
  return OkStatus();
}

Status SqliteLog::InsertAll(std::span<const LogRecordView> records) {
  if (records.size() == 1) return Insert(records.front());
  MC_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  for (const LogRecordView& record : records) MC_RETURN_IF_ERROR(Insert(record));
  return database_->Execute("COMMIT");
}

Status SqliteLog::Insert(const LogRecordView& record) {
  const BlockDigest checksum = ChecksumOf(record);
  insert_.BindInt(1, static_cast<int64_t>(record.sequence));
  insert_.BindInt(2, static_cast<int64_t>(record.term));
  insert_.BindInt(3, record.time_ms);
  insert_.BindBlob(4, record.payload);
  insert_.BindBlob(5, ViewOf(checksum));
  // Outside of any transaction the statement commits by itself, synced, when Step says done.
  Status status = insert_.Step().status();
  insert_.Reset();
  return status;
}

Status SqliteLog::Scan(uint64_t sequence, const Visitor& visit) {
  MC_CHECK(sequence > 0);
  MC_RETURN_IF_ERROR(EnsureOpen());
  return ScanRows(sequence, visit);
}

Result<uint64_t> SqliteLog::LastSequence() {
  MC_RETURN_IF_ERROR(EnsureOpen());
  // A read-only log follows what its Master appends.
  if (!options_.read_only) return tail_.sequence;
  MC_ASSIGN_OR_RETURN(int64_t last, database_->QueryInt("SELECT max(sequence) FROM log"));
  return static_cast<uint64_t>(last);
}

Result<uint64_t> SqliteLog::ReadFirst() {
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadMeta(kFirstSequenceKey));
  if (!text) return uint64_t{1};
  uint64_t first = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), first);
  if (error != std::errc() || end != text->data() + text->size() || first == 0) {
    return Corrupt(fmt::format("{}: {} is \"{}\"", path_, kFirstSequenceKey, *text));
  }
  return first;
}

Result<uint64_t> SqliteLog::FirstSequence() {
  MC_RETURN_IF_ERROR(EnsureOpen());
  MC_ASSIGN_OR_RETURN(const uint64_t last, LastSequence());
  if (last == 0) return uint64_t{0};
  return ReadFirst();
}

Result<bool> SqliteLog::DropBefore(uint64_t sequence, uint64_t records_max) {
  if (options_.read_only) return InvalidArgument(fmt::format("{}: opened read-only", path_));
  MC_RETURN_IF_ERROR(EnsureOpen());
  MC_ASSIGN_OR_RETURN(const uint64_t first, ReadFirst());
  // The last row says what may come next.
  const uint64_t end = std::min(sequence, tail_.sequence);
  if (first >= end) return false;
  const uint64_t step_end = end - first > records_max ? first + records_max : end;
  if (Status status = DropRows(step_end); !status.ok()) {
    // With it goes the transaction.
    Disconnect();
    return status.WithContext(fmt::format("dropping log sequences below {}", step_end));
  }
  return step_end < end;
}

Status SqliteLog::DropRows(uint64_t end) {
  MC_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  MC_ASSIGN_OR_RETURN(SqliteStatement drop,
                      database_->Prepare("DELETE FROM log WHERE sequence < ?1"));
  drop.BindInt(1, static_cast<int64_t>(end));
  MC_RETURN_IF_ERROR(drop.Step().status());
  drop.Reset();
  MC_RETURN_IF_ERROR(WriteMeta(kFirstSequenceKey, std::to_string(end)));
  return database_->Execute("COMMIT");
}

Result<std::optional<std::string>> SqliteLog::ReadMeta(std::string_view key) {
  MC_RETURN_IF_ERROR(EnsureOpen());
  MC_ASSIGN_OR_RETURN(SqliteStatement select,
                      database_->Prepare("SELECT value FROM meta WHERE key = ?1"));
  select.BindText(1, key);
  MC_ASSIGN_OR_RETURN(bool row, select.Step());
  if (!row) return std::optional<std::string>();
  return std::optional<std::string>(select.Blob(0));
}

Status SqliteLog::WriteMeta(std::string_view key, std::string_view value) {
  if (options_.read_only) return InvalidArgument(fmt::format("{}: opened read-only", path_));
  MC_RETURN_IF_ERROR(EnsureOpen());
  Status status = Upsert(key, value);
  if (!status.ok()) {
    MC_RETURN_IF_ERROR(MakeRoom(status));
    status = Upsert(key, value);
  }
  return status;
}

Status SqliteLog::Upsert(std::string_view key, std::string_view value) {
  MC_ASSIGN_OR_RETURN(
      SqliteStatement upsert,
      database_->Prepare("INSERT INTO meta VALUES (?1, ?2)"
                         " ON CONFLICT (key) DO UPDATE SET value = excluded.value"));
  upsert.BindText(1, key);
  upsert.BindBlob(2, value);
  return upsert.Step().status();
}

Status SqliteLog::Close() {
  closed_ = true;
  Disconnect();
  return OkStatus();
}

void SqliteLog::Disconnect() {
  insert_ = {};
  database_.reset();
}

}  // namespace mooncake::oplog
