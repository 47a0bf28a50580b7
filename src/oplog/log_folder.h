// What a Master keeps in its folder: log.db and snapshots/.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "oplog/snapshot_store.h"
#include "oplog/sqlite_log.h"

namespace mooncake::oplog {

class LogFolder {
 public:
  // NOT_FOUND: there is no log, and none was to be created.
  static Result<std::unique_ptr<LogFolder>> Open(const std::string& folder, bool create = true) {
    MC_ASSIGN_OR_RETURN(std::unique_ptr<SqliteLog> log,
                        SqliteLog::Open(folder + "/log.db", {.create = create}));
    return std::unique_ptr<LogFolder>(new LogFolder(folder, std::move(log)));
  }

  SqliteLog& log() { return *log_; }
  SnapshotStore& snapshots() { return snapshots_; }

  // The same log, for one thread that only reads.
  Result<std::unique_ptr<LogStore>> OpenReader() const {
    MC_ASSIGN_OR_RETURN(std::unique_ptr<SqliteLog> log,
                        SqliteLog::Open(folder_ + "/log.db", {.read_only = true}));
    return std::unique_ptr<LogStore>(std::move(log));
  }

 private:
  LogFolder(const std::string& folder, std::unique_ptr<SqliteLog> log)
      : folder_(folder), log_(std::move(log)), snapshots_(folder + "/snapshots") {}

  const std::string folder_;
  const std::unique_ptr<SqliteLog> log_;
  FolderSnapshots snapshots_;
};

}  // namespace mooncake::oplog
