#include "env/disk_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "env/errno_status.h"
#include "env/file.h"
#include "env/unique_fd.h"

namespace mooncake::env {

Status DiskReserve::Keep() {
  if (kept_ || bytes_ == 0) return OkStatus();
  struct stat info {};
  const bool is_there = ::stat(path_.c_str(), &info) == 0;
  const uint64_t taken = is_there ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
  if (taken < bytes_) {
    // As much again must stay: a reserve that is the disk's last space would be given back at once.
    MC_ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeDiskBytes(FolderOf(path_)));
    if (free_bytes + taken < 2 * bytes_) {
      return Exhausted("the disk of " + path_ + " is full: a reserve of " + std::to_string(bytes_) +
                       " bytes needs " + std::to_string(2 * bytes_) + " free, " +
                       std::to_string(free_bytes + taken) + " are");
    }
    const UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return ErrnoStatus(errno, "create " + path_);
    int error = EINTR;
    while (error == EINTR) error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes_));
    if (error != 0) {
      ::unlink(path_.c_str());
      return ErrnoStatus(error, "allocate " + std::to_string(bytes_) + " bytes for " + path_);
    }
  }
  kept_ = true;
  return OkStatus();
}

bool DiskReserve::Release() {
  kept_ = false;
  // One that an earlier process kept counts too.
  return bytes_ != 0 && ::unlink(path_.c_str()) == 0;
}

}  // namespace mooncake::env
