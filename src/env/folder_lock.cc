#include "env/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>

#include "env/errno_status.h"
#include "env/world.h"

namespace mooncake::env {
namespace {

// Empty until the holder has written it: the lock comes first.
std::string HolderPid(int fd) {
  std::array<char, 32> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  std::string pid;
  for (ssize_t i = 0; i < got && std::isdigit(static_cast<unsigned char>(text[i])); ++i) {
    pid += text[i];
  }
  return pid;
}

}  // namespace

Result<FolderLock> FolderLock::Acquire(const std::string& folder) {
  // The processes of a World have a disk each.
  if (World::Current() != nullptr) return FolderLock(UniqueFd(), ::getpid());
  const std::string path = folder + "/LOCK";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "open the lock file " + path);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "lock " + path);
    const std::string pid = HolderPid(fd.get());
    return Unavailable("the folder " + folder + " is in use by process " +
                       (pid.empty() ? "(id not yet written)" : pid));
  }
  // Written over what the holder before left, and cut then: a full disk has no room for more. It is
  // only for people, so a disk that takes nothing at all does not keep the owner out.
  const std::string pid = std::to_string(::getpid()) + "\n";
  const bool written =
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
  [[maybe_unused]] const int cut =
      ::ftruncate(fd.get(), written ? static_cast<off_t>(pid.size()) : 0);
  return FolderLock(std::move(fd), ::getpid());
}

Result<std::optional<std::string>> FolderLock::HolderOf(const std::string& folder) {
  const std::string path = folder + "/LOCK";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() && errno == ENOENT) return std::optional<std::string>();
  if (!fd.valid()) return ErrnoStatus(errno, "open the lock file " + path);
  int failed = 0;
  while ((failed = ::flock(fd.get(), LOCK_SH | LOCK_NB)) != 0 && errno == EINTR) {
  }
  if (failed == 0) return std::optional<std::string>();
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, "look at the lock of " + path);
  const std::string pid = HolderPid(fd.get());
  return std::optional<std::string>(pid.empty() ? "(id not yet written)" : pid);
}

FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  if (this != &other) {
    Release();
    fd_ = std::move(other.fd_);
    owner_pid_ = other.owner_pid_;
  }
  return *this;
}

void FolderLock::Release() {
  // Unlocked by name, not only closed: a forked child may hold a copy of the descriptor. The child
  // itself must not take the lock away from its parent.
  if (fd_.valid() && owner_pid_ == ::getpid()) ::flock(fd_.get(), LOCK_UN);
  fd_.Reset();
}

}  // namespace mooncake::env
