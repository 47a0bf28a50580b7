// What a store's folder says of its health: `mooncake doctor`. Offline and read-only, by the
// readers that a start uses; nothing is repaired, and nothing is written but SQLite's index beside
// a write-ahead file (log.db-shm).
//
// A folder in use by a running process is read all the same; only what would compare two things
// that change meanwhile is left out, and said to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake::cluster {

enum class Severity { kOk, kNote, kWarning, kError };
// "ok", "note", "warning", "error".
std::string_view Name(Severity severity);

struct Finding {
  Severity severity = Severity::kOk;
  std::string what;
  std::string where;   // a path
  std::string advice;  // empty: nothing is to be done
};

struct FolderReport {
  std::string kind;  // "Master folder", "node folder", "embedded store"
  std::vector<Finding> findings;
};

// INVALID_ARGUMENT: no store's folder. Whatever is wrong inside of one is a finding.
Result<FolderReport> ExamineFolder(const std::string& folder);

}  // namespace mooncake::cluster
