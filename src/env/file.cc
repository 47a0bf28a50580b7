#include "env/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "env/errno_status.h"
#include "env/unique_fd.h"

namespace mooncake::env {
namespace {

Result<UniqueFd> OpenPath(const std::string& path, int flags, mode_t mode = 0) {
  for (;;) {
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
    if (fd.valid()) return fd;
    if (errno != EINTR) return ErrnoStatus(errno, "open " + path);
  }
}

Status WriteAll(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write " + std::to_string(bytes.size()) + " bytes to " + path);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return OkStatus();
}

std::string TemporaryPathBeside(const std::string& path) {
  // Not derived from the file's name, which may already be as long as a name can be.
  static std::atomic<uint64_t> next{0};
  return FolderOf(path) + "/" + std::string(kTemporaryPrefix) + std::to_string(::getpid()) + "-" +
         std::to_string(next.fetch_add(1));
}

Status WriteTemporary(const std::string& temporary, std::string_view bytes) {
  MC_ASSIGN_OR_RETURN(const UniqueFd fd,
                      OpenPath(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
  MC_RETURN_IF_ERROR(WriteAll(fd.get(), bytes, temporary));
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync " + temporary);
  return OkStatus();
}

}  // namespace

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Result<std::string> ReadFile(const std::string& path, uint64_t bytes_max) {
  MC_ASSIGN_OR_RETURN(const UniqueFd fd, OpenPath(path, O_RDONLY));
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (!S_ISREG(info.st_mode))
    return InvalidArgument("cannot read " + path + ": not a regular file");
  const auto too_large = [&](uint64_t size) {
    return Exhausted("cannot read " + path + ": " + std::to_string(size) + " bytes, at most " +
                     std::to_string(bytes_max) + " allowed");
  };
  if (static_cast<uint64_t>(info.st_size) > bytes_max) {
    return too_large(static_cast<uint64_t>(info.st_size));
  }
  // One byte more than its size: a file that grows meanwhile is read on, not cut.
  std::string content(static_cast<size_t>(info.st_size) + 1, '\0');
  size_t filled = 0;
  for (;;) {
    if (filled == content.size()) content.resize(content.size() * 2);
    const ssize_t got = ::read(fd.get(), content.data() + filled, content.size() - filled);
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "read " + path);
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
    if (filled > bytes_max) return too_large(filled);
  }
  content.resize(filled);
  return content;
}

Status WriteFileDurably(const std::string& path, std::string_view bytes) {
  const std::string temporary = TemporaryPathBeside(path);
  Status status = WriteTemporary(temporary, bytes);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename " + temporary + " to " + path);
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status.WithContext("durable write of " + path);
  }
  return SyncFolder(FolderOf(path));
}

Status RemoveTemporaries(const std::string& folder) {
  MC_ASSIGN_OR_RETURN(const auto names, ListFolder(folder));
  for (const std::string& name : names) {
    if (name.starts_with(kTemporaryPrefix)) MC_RETURN_IF_ERROR(RemoveFile(folder + "/" + name));
  }
  return OkStatus();
}

Status RemoveFile(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
  return ErrnoStatus(errno, "remove " + path);
}

Status RemoveFolderTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return ErrnoStatus(error.value(), "remove the folder " + path);
  return OkStatus();
}

Result<std::vector<std::string>> ListFolder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(path.c_str()), ::closedir);
  if (folder == nullptr) return ErrnoStatus(errno, "list " + path);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());
    if (entry == nullptr) {
      if (errno != 0) return ErrnoStatus(errno, "list " + path);
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status MakeFolders(const std::string& path) {
  if (path.empty()) return InvalidArgument("cannot create a folder with an empty path");
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return OkStatus();
    return InvalidArgument("cannot create the folder " + path + ": exists and is not a folder");
  }
  if (errno != ENOENT) return ErrnoStatus(errno, "create the folder " + path);
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.back() == '/') trimmed.pop_back();
  const std::string parent = FolderOf(trimmed);
  MC_RETURN_IF_ERROR(MakeFolders(parent));
  if (::mkdir(trimmed.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, "create the folder " + trimmed);
  }
  return SyncFolder(parent);
}

Status SyncFolder(const std::string& path) {
  MC_ASSIGN_OR_RETURN(const UniqueFd fd, OpenPath(path, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync the folder " + path);
  return OkStatus();
}

Result<bool> PathExists(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return ErrnoStatus(errno, "stat " + path);
}

Result<uint64_t> FreeDiskBytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return ErrnoStatus(errno, "look at the disk of " + path);
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

Result<uint64_t> DiskBytesBelow(const std::string& folder) {
  MC_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFolder(folder));
  uint64_t bytes = 0;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) continue;
      return ErrnoStatus(errno, "stat " + path);
    }
    bytes += static_cast<uint64_t>(info.st_blocks) * 512;
    if (!S_ISDIR(info.st_mode)) continue;
    const Result<uint64_t> below = DiskBytesBelow(path);
    if (below.ok()) {
      bytes += *below;
    } else if (below.status().code() != Code::kNotFound) {
      return below;
    }
  }
  return bytes;
}

}  // namespace mooncake::env
