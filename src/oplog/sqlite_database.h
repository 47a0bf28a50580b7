// SQLite with this project's errors: a connection and its prepared statements, closed with their
// owner.
//
// Every error text carries the file, what was attempted, SQLite's own words and its extended code.
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace mooncake::oplog {

class SqliteDatabase;

// One prepared statement; bind, Step until it says false, Reset.
class SqliteStatement {
 public:
  SqliteStatement() = default;

  // Text and blobs are borrowed until the next Reset.
  void BindInt(int index, int64_t value);
  void BindText(int index, std::string_view text);
  void BindBlob(int index, std::string_view bytes);

  // true: a row is there; false: done.
  Result<bool> Step();
  void Reset();

  int64_t Int(int column) const;
  // Borrowed until the next Step or Reset. Empty when NULL.
  std::string_view Blob(int column) const;

 private:
  friend class SqliteDatabase;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  SqliteStatement(SqliteDatabase* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}

  SqliteDatabase* database_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

class SqliteDatabase {
 public:
  enum class Mode { kReadWrite, kReadOnly };

  // kReadWrite creates the file; kReadOnly changes nothing in its folder but
  // SQLite's index of a write-ahead file (-shm).
  // `vfs`: SQLite's name of the file system; null: its default.
  static Result<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, Mode mode,
                                                      int busy_timeout_ms,
                                                      const char* vfs = nullptr);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // Statements of this kind must be gone before the database is.
  Result<SqliteStatement> Prepare(std::string_view sql);
  // Runs one or more statements that return nothing of interest.
  Status Execute(const char* sql);
  // First column of the first row, as text; "" when there is none.
  Result<std::string> QueryText(std::string_view sql);
  Result<int64_t> QueryInt(std::string_view sql);

  // What SQLite says of `code`, the result of the last call, as a Status.
  Status Error(int code, std::string_view attempted) const;

  const std::string& path() const { return path_; }

 private:
  SqliteDatabase(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}

  std::string path_;
  sqlite3* handle_;
};

}  // namespace mooncake::oplog
