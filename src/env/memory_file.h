// A file of fixed size that is meant to be mapped: anonymous memory that can be shared by
// descriptor (memfd), or a file in a folder that outlives the process.
//
// All its space is allocated at creation, so that a full disk or memory is an error here and never
// a SIGBUS in a copy. A memfd is sealed against growing and shrinking (a peer that holds the
// descriptor cannot cut it under a reader); writing stays possible, since a write seal would forbid
// punching. Threads: const methods from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "env/mapping.h"
#include "env/unique_fd.h"

namespace mooncake::env {

class MemoryFile {
 public:
  // `name` is for people (/proc/<pid>/maps). EXHAUSTED when memory is short.
  static Result<MemoryFile> CreateAnonymous(const std::string& name, uint64_t bytes);

  // The same in two steps, for memory that is made before it is known how much will be wanted:
  // until SealAt its size may still be cut.
  static Result<MemoryFile> PrepareAnonymous(const std::string& name, uint64_t bytes);
  // Cuts a prepared file to its first `bytes`, at most size(), and seals that size.
  Status SealAt(uint64_t bytes);

  // Creates `path` (mode 0600), which must not exist; EXHAUSTED when the disk is full, and then
  // nothing is left at `path`. Its name is durable after SyncFolder of its folder.
  static Result<MemoryFile> CreateFile(const std::string& path, uint64_t bytes);

  // An existing file made by CreateFile; its size is the file's. kReadOnly opens it O_RDONLY.
  static Result<MemoryFile> OpenFile(const std::string& path, MapAccess access);

  // A descriptor received from a peer or made by ReopenReadOnly. Refuses one whose size is not
  // `bytes`.
  static Result<MemoryFile> Adopt(UniqueFd fd, uint64_t bytes);

  int fd() const { return fd_.get(); }
  uint64_t size() const { return bytes_; }

  // Another descriptor of the same memory that cannot be mapped or written for writing, for
  // readers.
  Result<UniqueFd> ReopenReadOnly() const;
  // Another descriptor with this one's access, for writers.
  Result<UniqueFd> Duplicate() const;

  Result<Mapping> Map(MapAccess access, MapOptions options = {}) const {
    return Mapping::Map(fd(), 0, bytes_, access, options);
  }

  // Gives the pages of the range back; it reads as zeros afterwards, in every mapping. Whole pages
  // inside the range are freed, the rest of it is zeroed.
  Status PunchHole(uint64_t offset, uint64_t bytes) const;

  // fdatasync: also what was written through mappings is on disk when it returns OK.
  Status Sync() const;

 private:
  MemoryFile(UniqueFd fd, uint64_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}

  UniqueFd fd_;
  uint64_t bytes_;
};

}  // namespace mooncake::env
