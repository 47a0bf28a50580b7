#include "oplog/sqlite_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <array>
#include <cerrno>

#include "base/url_encode.h"
#include "env/errno_status.h"
#include "env/file.h"

namespace mooncake::oplog {
namespace {

// The primary result codes' names; SQLite does not export them.
constexpr std::array<std::string_view, 29> kCodeNames = {
    "SQLITE_OK",       "SQLITE_ERROR",   "SQLITE_INTERNAL", "SQLITE_PERM",     "SQLITE_ABORT",
    "SQLITE_BUSY",     "SQLITE_LOCKED",  "SQLITE_NOMEM",    "SQLITE_READONLY", "SQLITE_INTERRUPT",
    "SQLITE_IOERR",    "SQLITE_CORRUPT", "SQLITE_NOTFOUND", "SQLITE_FULL",     "SQLITE_CANTOPEN",
    "SQLITE_PROTOCOL", "SQLITE_EMPTY",   "SQLITE_SCHEMA",   "SQLITE_TOOBIG",   "SQLITE_CONSTRAINT",
    "SQLITE_MISMATCH", "SQLITE_MISUSE",  "SQLITE_NOLFS",    "SQLITE_AUTH",     "SQLITE_FORMAT",
    "SQLITE_RANGE",    "SQLITE_NOTADB",  "SQLITE_NOTICE",   "SQLITE_WARNING"};

Code CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return Code::kExhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_PROTOCOL:
      return Code::kUnavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return Code::kCorrupt;
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_TOOBIG:
      return Code::kInvalidArgument;
    case SQLITE_CONSTRAINT:
      return Code::kConflict;
    default:
      return Code::kInternal;
  }
}

Status ErrorOf(const std::string& path, int code, std::string_view attempted,
               std::string_view words) {
  const size_t primary = static_cast<size_t>(code & 0xff);
  const std::string_view name = primary < kCodeNames.size() ? kCodeNames[primary] : "SQLITE";
  return {CodeOf(code), fmt::format("{}: {}: {} ({} {})", path, attempted, words, name, code)};
}

// Only for a file that nobody has open and whose folder may not be written: SQLite then needs to be
// told that it may do without its shared-memory file.
std::string ImmutableUri(const std::string& path) {
  std::string encoded;
  for (char c : path) encoded += c == '/' ? std::string("/") : UrlEncode(std::string_view(&c, 1));
  return "file:" + encoded + "?immutable=1";
}

}  // namespace

void SqliteStatement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void SqliteStatement::BindInt(int index, int64_t value) {
  MC_CHECK(sqlite3_bind_int64(statement_.get(), index, value) == SQLITE_OK);
}

void SqliteStatement::BindText(int index, std::string_view text) {
  MC_CHECK(sqlite3_bind_text64(statement_.get(), index, text.data(), text.size(), SQLITE_STATIC,
                               SQLITE_UTF8) == SQLITE_OK);
}

void SqliteStatement::BindBlob(int index, std::string_view bytes) {
  // A null pointer would bind NULL; an empty blob needs any other address.
  const char* data = bytes.empty() ? "" : bytes.data();
  MC_CHECK(sqlite3_bind_blob64(statement_.get(), index, data, bytes.size(), SQLITE_STATIC) ==
           SQLITE_OK);
}

Result<bool> SqliteStatement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->Error(code, sqlite3_sql(statement_.get()));
}

void SqliteStatement::Reset() {
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
}

int64_t SqliteStatement::Int(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string_view SqliteStatement::Blob(int column) const {
  const void* data = sqlite3_column_blob(statement_.get(), column);
  if (data == nullptr) return {};
  return {static_cast<const char*>(data),
          static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))};
}

Result<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path, Mode mode,
                                                             int busy_timeout_ms, const char* vfs) {
  std::string name = path;
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (mode == Mode::kReadOnly) {
    flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_READONLY;
    // Without a write-ahead file the last owner closed cleanly and the main file is all there is;
    // reading it so creates no file beside it.
    MC_ASSIGN_OR_RETURN(bool has_wal, env::PathExists(path + "-wal"));
    if (!has_wal) {
      name = ImmutableUri(path);
      flags |= SQLITE_OPEN_URI;
    }
  }
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &handle, flags, vfs);
  if (handle == nullptr) return ErrorOf(path, code, "open", sqlite3_errstr(code));
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(path, handle));
  sqlite3_extended_result_codes(handle, 1);
  if (code != SQLITE_OK) return database->Error(sqlite3_extended_errcode(handle), "open");
  sqlite3_busy_timeout(handle, busy_timeout_ms);
  MC_RETURN_IF_ERROR(database->Execute("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;"));
  return database;
}

SqliteDatabase::~SqliteDatabase() {
  // Fails only when a statement is still alive.
  MC_CHECK(sqlite3_close(handle_) == SQLITE_OK);
}

Result<SqliteStatement> SqliteDatabase::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Error(code, sql);
  return SqliteStatement(this, statement);
}

Status SqliteDatabase::Execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? OkStatus() : Error(code, sql);
}

Result<std::string> SqliteDatabase::QueryText(std::string_view sql) {
  MC_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  MC_ASSIGN_OR_RETURN(bool row, statement.Step());
  return row ? std::string(statement.Blob(0)) : std::string();
}

Result<int64_t> SqliteDatabase::QueryInt(std::string_view sql) {
  MC_ASSIGN_OR_RETURN(SqliteStatement statement, Prepare(sql));
  MC_ASSIGN_OR_RETURN(bool row, statement.Step());
  return row ? statement.Int(0) : 0;
}

Status SqliteDatabase::Error(int code, std::string_view attempted) const {
  Status status = ErrorOf(path_, code, attempted, sqlite3_errmsg(handle_));
  // A full disk is SQLITE_FULL where SQLite writes a page, and an I/O error wherever else it meets
  // one.
  const int primary = code & 0xff;
  const int cause = sqlite3_system_errno(handle_);
  const bool no_space = cause == ENOSPC || cause == EDQUOT;
  if (!no_space || (primary != SQLITE_IOERR && primary != SQLITE_CANTOPEN)) return status;
  return env::ErrnoStatus(cause, "write: " + status.message());
}

}  // namespace mooncake::oplog
