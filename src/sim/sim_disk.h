// A disk of the simulated world: what is written is there at once, and survives a crash of its host
// for certain only once it was synced.
//
// Owns folders and files, as they are and as they would be found after a crash:
//   - a file's writes since its last sync survive one by one, or in part (a torn write keeps whole
//     sectors), or not at all;
//   - creations, renames and removals of names since their folder was synced survive up to some
//     one of them;
//   - after a failed sync the writes it was for are gone from what later syncs make durable, though
//     reads still show them, as with the page cache of Linux.
// Faults come when its knobs say so. Nothing of a process that is cut off arrives. Threads: all on
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "env/disk.h"
#include "oplog/device_vfs.h"
#include "sim/simulation.h"

namespace mooncake::sim {

struct DiskFaults {
  // Per million operations.
  uint32_t write_fails = 0;
  uint32_t sync_fails = 0;
  uint32_t read_fails = 0;
  uint32_t slow_sync = 0;  // takes up to slow_ns_max
  int64_t slow_ns_max = 2 * kSecond;
  bool full = false;  // nothing new fits
};

class SimDisk final : public env::Disk, public oplog::FileDevice {
 public:
  SimDisk(Simulation& simulation, std::string name);
  ~SimDisk() override;

  DiskFaults faults;

  // Its host lost power, or only the process that used it died: unsynced writes may go either way
  // in the first case, and stay in the second.
  void LosePower();
  // Changes one bit of a synced file that `wanted` picks by its path. False: there is none.
  bool FlipBit(const std::function<bool(std::string_view path)>& wanted);

  // ---- env::Disk ----
  Result<std::string> Read(const std::string& path, uint64_t bytes_max) override;
  Status Write(const std::string& path, std::string_view bytes) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status Remove(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Result<std::vector<std::string>> List(const std::string& folder) override;
  Status MakeFolder(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;
  Result<bool> Exists(const std::string& path) override;
  Result<bool> IsFolder(const std::string& path) override;
  Result<uint64_t> FreeBytes(const std::string& path) override;
  Result<uint64_t> BytesBelow(const std::string& folder) override;

  // ---- oplog::FileDevice ----
  Result<std::unique_ptr<oplog::DeviceFile>> OpenFile(const std::string& path,
                                                      bool create) override;
  Status DeleteFile(const std::string& path, bool sync_folder) override;
  Status SyncNameOf(const std::string& path) override;
  Result<bool> FileExists(const std::string& path) override;
  std::string RandomBytes(size_t bytes) override;

 private:
  struct Inode;
  class OpenedFile;
  using InodePtr = std::shared_ptr<Inode>;  // null: a folder
  using Names = std::map<std::string, InodePtr>;
  // A new name, a removed one, or both at once: a rename.
  struct NameChange {
    std::string removed;  // empty: none
    std::string added;    // empty: none
    InodePtr inode;       // of `added`
    bool In(const std::string& folder) const;
    void Redo(Names& names) const;
  };

  // The door: cut off, faults, time. `sync`: the operation waits for the platter.
  Status Pass(const char* what, const std::string& path, uint32_t fails, bool sync = false);
  void Change(NameChange change);
  Status WriteAt(Inode& inode, uint64_t offset, std::string_view bytes);
  Status SyncFile(Inode& inode, const std::string& path);

  Simulation& simulation_;
  const std::string name_;
  Names names_;                      // by path, folders too
  Names synced_names_;               // what is found after a crash, but for what is pending
  std::vector<NameChange> pending_;  // in order
};

}  // namespace mooncake::sim
