// The log of one machine: a SQLite file in WAL mode with synchronous=FULL, one row per record
// (docs/formats/log.md).
//
// Open reads and checks every row from the first one that was not dropped: contiguous sequences,
// checksums, terms and times that never run back; damage anywhere, the last row included, is
// CORRUPT and names the sequence. (A torn last record cannot occur: SQLite's write-ahead file drops
// it whole.)
//
// A failed Append closes the connection: the next call opens and checks the file anew, so that what
// it answers is what SQLite recovered; and what it recovered is written anew before anything is
// appended, since a disk that failed one sync may have lost what it says it has.
//
// Beside the file lies a reserve of disk space, <path>-reserve. When the disk is full it is given
// back and the write is made once more; until there is room to take it again, CheckSpace says so.
#pragma once

#include <memory>
#include <string>

#include "env/disk_reserve.h"
#include "oplog/log_store.h"
#include "oplog/sqlite_database.h"

namespace mooncake::oplog {

// On disk: never renumber. Bumped when a table changes; an older program refuses a newer file.
inline constexpr int kLogSchemaVersion = 1;

struct SqliteLogOptions {
  // Nothing is written, but for SQLite's index of a write-ahead file that is there (-shm), which
  // holds no data; Append, DropBefore and WriteMeta are INVALID_ARGUMENT. The log may be in use by
  // its Master.
  bool read_only = false;
  // false: a file that is missing, empty or without tables is NOT_FOUND, and nothing is written.
  bool create = true;
  uint64_t reserve_bytes = uint64_t{16} << 20;
  // How long a lock that another process holds on the file is waited for.
  int busy_timeout_ms = 5000;
  // SQLite's name of the file system that holds the file (device_vfs.h); null: the kernel's.
  const char* vfs = nullptr;
};

class SqliteLog final : public LogStore {
 public:
  // Creates the file unless told otherwise. INVALID_ARGUMENT: a file of something else.
  // UNSUPPORTED: a newer schema, or a file system without WAL. CORRUPT: see above.
  static Result<std::unique_ptr<SqliteLog>> Open(const std::string& path,
                                                 SqliteLogOptions options = {});
  ~SqliteLog() override;

  Status AppendAll(std::span<const LogRecordView> records) override;
  Status Scan(uint64_t sequence, const Visitor& visit) override;
  Result<uint64_t> LastSequence() override;
  Result<uint64_t> FirstSequence() override;
  Result<bool> DropBefore(uint64_t sequence, uint64_t records_max) override;
  Result<std::optional<std::string>> ReadMeta(std::string_view key) override;
  Status WriteMeta(std::string_view key, std::string_view value) override;
  Status CheckSpace() override;
  Status Close() override;

 private:
  struct Tail {
    uint64_t sequence = 0;
    uint64_t term = 0;
    int64_t time_ms = 0;
  };

  SqliteLog(std::string path, SqliteLogOptions options);

  // Opens the file if it is not open.
  Status EnsureOpen();
  Status CheckIsThere() const;
  Status OpenFile();
  // Whether the file is a new one.
  Result<bool> CheckOwner();
  Status SetDurability();
  Status WriteAnew();
  Status CheckWriteAhead() const;
  Status CreateSchema();
  Status CheckSchemaVersion();
  Status Verify();
  // The first sequence that was not dropped, whether it was appended already or not.
  Result<uint64_t> ReadFirst();
  Status DropRows(uint64_t end);
  Status ScanRows(uint64_t sequence, const Visitor& visit);
  Status CheckFollows(std::span<const LogRecordView> records) const;
  Status InsertAll(std::span<const LogRecordView> records);
  Status Insert(const LogRecordView& record);
  Status Upsert(std::string_view key, std::string_view value);
  // After a write that failed for want of space: closes, gives the reserve back and opens again.
  // Not OK: the same failure, there was no reserve.
  Status MakeRoom(const Status& failure);
  void Disconnect();

  const std::string path_;
  const SqliteLogOptions options_;
  bool closed_ = false;
  env::DiskReserve reserve_;
  std::unique_ptr<SqliteDatabase> database_;
  // Prepared on database_: gone before it.
  SqliteStatement insert_;
  Tail tail_;
};

}  // namespace mooncake::oplog
