// Keeps a second process (and a second owner in this one) out of a folder: flock(2) on the file
// LOCK inside it, which also holds the owner's process id as text.
//
// The kernel drops the lock when its owner dies, however it dies. A child that was forked without
// exec shares it: it lives until both are gone, unless the owner releases it first.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "env/unique_fd.h"

namespace mooncake::env {

class FolderLock {
 public:
  // The folder must exist. UNAVAILABLE, naming the folder and the holder's process id, when it is
  // taken.
  static Result<FolderLock> Acquire(const std::string& folder);

  // The process id (as text) of who holds it; absent: nobody does. Writes nothing; it asks by
  // taking the lock for a moment, in which an owner that starts is refused.
  static Result<std::optional<std::string>> HolderOf(const std::string& folder);

  FolderLock(FolderLock&&) = default;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock() { Release(); }

 private:
  FolderLock(UniqueFd fd, int owner_pid) : fd_(std::move(fd)), owner_pid_(owner_pid) {}
  void Release();

  UniqueFd fd_;
  int owner_pid_;
};

}  // namespace mooncake::env
