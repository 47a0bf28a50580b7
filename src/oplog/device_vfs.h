// SQLite over files that somebody else keeps: a file system of SQLite's (a "VFS") made of a
// FileDevice, for a simulated disk.
//
// Owns SQLite's locks and shared memory of those files: one process, any number of connections.
// Not the files. Threads: all on one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake::oplog {

class DeviceFile {
 public:
  virtual ~DeviceFile() = default;
  // Fewer bytes than asked for: the file ends there.
  virtual Result<size_t> Read(uint64_t offset, std::span<char> into) = 0;
  virtual Status Write(uint64_t offset, std::string_view bytes) = 0;
  virtual Status Truncate(uint64_t bytes) = 0;
  virtual Status Sync() = 0;
  virtual Result<uint64_t> Size() = 0;
};

class FileDevice {
 public:
  virtual ~FileDevice() = default;
  // NOT_FOUND: it is not there and was not to be created.
  virtual Result<std::unique_ptr<DeviceFile>> OpenFile(const std::string& path, bool create) = 0;
  virtual Status DeleteFile(const std::string& path, bool sync_folder) = 0;
  // What the file is called is found after a crash from now on.
  virtual Status SyncNameOf(const std::string& path) = 0;
  virtual Result<bool> FileExists(const std::string& path) = 0;
  virtual std::string RandomBytes(size_t bytes) = 0;
};

class DeviceVfs {
 public:
  // `name` is what SqliteLogOptions::vfs calls it; not taken by another one.
  DeviceVfs(std::string name, FileDevice& device);
  // No connection is left.
  ~DeviceVfs();
  DeviceVfs(const DeviceVfs&) = delete;
  DeviceVfs& operator=(const DeviceVfs&) = delete;

 private:
  struct Parts;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace mooncake::oplog
