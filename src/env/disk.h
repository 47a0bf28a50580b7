// The operations of a file system that durable files are made of (file.h composes them): the
// kernel's, or, inside a World, the simulated disk's, which loses at a crash what was not synced.
//
// Failures as file.h has them. Threads: any, as safe as the kernel's own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake::env {

class Disk {
 public:
  virtual ~Disk() = default;

  virtual Result<std::string> Read(const std::string& path, uint64_t bytes_max) = 0;
  // The file's whole content from now on, synced; its name only after SyncFolder.
  virtual Status Write(const std::string& path, std::string_view bytes) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Absence is OK.
  virtual Status Remove(const std::string& path) = 0;
  virtual Status RemoveTree(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> List(const std::string& folder) = 0;
  // The parent is there. One that exists: OK.
  virtual Status MakeFolder(const std::string& path) = 0;
  virtual Status SyncFolder(const std::string& path) = 0;
  virtual Result<bool> Exists(const std::string& path) = 0;
  virtual Result<bool> IsFolder(const std::string& path) = 0;
  virtual Result<uint64_t> FreeBytes(const std::string& path) = 0;
  virtual Result<uint64_t> BytesBelow(const std::string& folder) = 0;

  // The one the calling thread's files are on.
  static Disk& Current();
};

}  // namespace mooncake::env
