#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>

#include "base/check.h"
#include "env/disk.h"
#include "env/errno_status.h"
#include "env/unique_fd.h"
#include "env/world.h"

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

class KernelDisk final : public Disk {
 public:
  Result<std::string> Read(const std::string& path, uint64_t bytes_max) override {
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

  Status Write(const std::string& path, std::string_view bytes) override {
    MC_ASSIGN_OR_RETURN(const UniqueFd fd,
                        OpenPath(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
    MC_RETURN_IF_ERROR(WriteAll(fd.get(), bytes, path));
    if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync " + path);
    return OkStatus();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return OkStatus();
    return ErrnoStatus(errno, "rename " + from + " to " + to);
  }

  Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
    return ErrnoStatus(errno, "remove " + path);
  }

  Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoStatus(error.value(), "remove the folder " + path);
    return OkStatus();
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
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

  Status MakeFolder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return OkStatus();
    return ErrnoStatus(errno, "create the folder " + path);
  }

  Status SyncFolder(const std::string& path) override {
    MC_ASSIGN_OR_RETURN(const UniqueFd fd, OpenPath(path, O_RDONLY | O_DIRECTORY));
    if (::fsync(fd.get()) != 0) return ErrnoStatus(errno, "fsync the folder " + path);
    return OkStatus();
  }

  Result<bool> Exists(const std::string& path) override {
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    return ErrnoStatus(errno, "stat " + path);
  }

  Result<bool> IsFolder(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0) return S_ISDIR(info.st_mode);
    return ErrnoStatus(errno, "stat " + path);
  }

  Result<uint64_t> FreeBytes(const std::string& path) override {
    struct statvfs info {};
    if (::statvfs(path.c_str(), &info) != 0)
      return ErrnoStatus(errno, "look at the disk of " + path);
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }

  Result<uint64_t> BytesBelow(const std::string& folder) override {
    MC_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(folder));
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
      const Result<uint64_t> below = BytesBelow(path);
      if (below.ok()) {
        bytes += *below;
      } else if (below.status().code() != Code::kNotFound) {
        return below;
      }
    }
    return bytes;
  }
};

}  // namespace

Disk& Disk::Current() {
  static KernelDisk kernel;
  World* world = World::Current();
  return world == nullptr ? static_cast<Disk&>(kernel) : world->disk();
}

}  // namespace mooncake::env
