// Files that say who may do what, or that are secrets themselves: read only when nobody else can
// have written them, or read them.
//
// Of the kernel's disk alone; a simulated disk has none. Threads: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace mooncake::env {

// What tells one content of a path from another without reading it.
struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // its mode and its links, too

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Of what the path names, links followed. NOT_FOUND: nothing.
Result<FileStamp> StampOf(const std::string& path);

enum class Guard : uint8_t {
  kWriting,  // only its owner may write it; anybody may read it
  kReading,  // its group may read it at most, others nothing
};

struct GuardedFile {
  FileStamp stamp;  // of this very content
  std::string content;
};

// INVALID_ARGUMENT, with the mode or owner found, unless the file is a regular one of this user or
// root and as guarded as asked for. NOT_FOUND; EXHAUSTED: more than `bytes_max`.
Result<GuardedFile> ReadGuardedFile(const std::string& path, Guard guard, uint64_t bytes_max);

}  // namespace mooncake::env
