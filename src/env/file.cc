#include "env/file.h"

#include <unistd.h>

#include <atomic>

#include "base/digest.h"
#include "env/disk.h"
#include "env/world.h"

namespace mooncake::env {
namespace {

std::string TemporaryPathBeside(const std::string& path) {
  // Not derived from the file's name, which may already be as long as a name can be.
  static std::atomic<uint64_t> next{0};
  World* world = World::Current();
  const std::string unique =
      world != nullptr ? HexOf(world->RandomBytes(8))
                       : std::to_string(::getpid()) + "-" + std::to_string(next.fetch_add(1));
  return FolderOf(path) + "/" + std::string(kTemporaryPrefix) + unique;
}

// Of a folder's path, which may end in slashes.
std::string ParentOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return FolderOf(path);
}

}  // namespace

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::string> ReadFile(const std::string& path, uint64_t bytes_max) {
  return Disk::Current().Read(path, bytes_max);
}

Status WriteFileDurably(const std::string& path, std::string_view bytes) {
  Disk& disk = Disk::Current();
  const std::string temporary = TemporaryPathBeside(path);
  Status status = disk.Write(temporary, bytes);
  if (status.ok()) status = disk.Rename(temporary, path);
  if (!status.ok()) {
    // What it leaves, RemoveTemporaries removes.
    (void)disk.Remove(temporary);
    return status.WithContext("durable write of " + path);
  }
  return disk.SyncFolder(FolderOf(path));
}

Status RemoveTemporaries(const std::string& folder) {
  MC_ASSIGN_OR_RETURN(const auto names, ListFolder(folder));
  for (const std::string& name : names) {
    if (name.starts_with(kTemporaryPrefix)) MC_RETURN_IF_ERROR(RemoveFile(folder + "/" + name));
  }
  return OkStatus();
}

Status RenamePath(const std::string& from, const std::string& to) {
  return Disk::Current().Rename(from, to);
}

Status RemoveFile(const std::string& path) { return Disk::Current().Remove(path); }

Status RemoveFolderTree(const std::string& path) { return Disk::Current().RemoveTree(path); }

Result<std::vector<std::string>> ListFolder(const std::string& path) {
  return Disk::Current().List(path);
}

Status MakeFolders(const std::string& path) {
  if (path.empty()) return InvalidArgument("cannot create a folder with an empty path");
  Disk& disk = Disk::Current();
  const Result<bool> is_folder = disk.IsFolder(path);
  if (is_folder.ok()) {
    // Whoever made it may have died, or failed, before its name was durable.
    if (*is_folder) {
      const Status synced = disk.SyncFolder(ParentOf(path));
      // A parent that this user may not open was made by somebody else, long ago.
      return synced.code() == Code::kInvalidArgument ? OkStatus() : synced;
    }
    return InvalidArgument("cannot create the folder " + path + ": exists and is not a folder");
  }
  if (is_folder.status().code() != Code::kNotFound) return is_folder.status();
  const std::string parent = ParentOf(path);
  MC_RETURN_IF_ERROR(MakeFolders(parent));
  MC_RETURN_IF_ERROR(disk.MakeFolder(path));
  return disk.SyncFolder(parent);
}

Status SyncFolder(const std::string& path) { return Disk::Current().SyncFolder(path); }

Result<bool> PathExists(const std::string& path) { return Disk::Current().Exists(path); }

Result<uint64_t> FreeDiskBytes(const std::string& path) { return Disk::Current().FreeBytes(path); }

Result<uint64_t> DiskBytesBelow(const std::string& folder) {
  return Disk::Current().BytesBelow(folder);
}

}  // namespace mooncake::env
