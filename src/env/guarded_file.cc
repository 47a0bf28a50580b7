#include "env/guarded_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "env/errno_status.h"
#include "env/unique_fd.h"

namespace mooncake::env {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;
// May write: group, others. May read besides: others (and execute, which says the same of intent).
constexpr mode_t kWritable = 0022;
constexpr mode_t kOpen = 0027;

FileStamp Of(const struct stat& found) {
  return {found.st_dev, found.st_ino, static_cast<uint64_t>(found.st_size),
          found.st_mtim.tv_sec * kNanoseconds + found.st_mtim.tv_nsec,
          found.st_ctim.tv_sec * kNanoseconds + found.st_ctim.tv_nsec};
}

Status CheckGuarded(const std::string& path, const struct stat& found, Guard guard) {
  if (!S_ISREG(found.st_mode)) return InvalidArgument(path + " is no regular file");
  if (found.st_uid != ::geteuid() && found.st_uid != 0) {
    return InvalidArgument(fmt::format("{} is user {}'s: expected user {}'s or root's", path,
                                       found.st_uid, ::geteuid()));
  }
  const mode_t mode = found.st_mode & 0777;
  const mode_t refused = guard == Guard::kReading ? kOpen : kWritable;
  if ((mode & refused) == 0) return OkStatus();
  return InvalidArgument(
      fmt::format("{} has mode {:04o}, which lets others {} it: expected {:04o} or less (chmod)",
                  path, mode, guard == Guard::kReading ? "read or write" : "write",
                  guard == Guard::kReading ? 0640 : 0755));
}

}  // namespace

Result<FileStamp> StampOf(const std::string& path) {
  struct stat found;
  if (::stat(path.c_str(), &found) != 0) return ErrnoStatus(errno, "look at " + path);
  return Of(found);
}

Result<GuardedFile> ReadGuardedFile(const std::string& path, Guard guard, uint64_t bytes_max) {
  // Not blocking: a pipe of that name is told to be none, and not waited for.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat found;
  if (::fstat(fd.get(), &found) != 0) return ErrnoStatus(errno, "look at " + path);
  MC_RETURN_IF_ERROR(CheckGuarded(path, found, guard));
  GuardedFile file{Of(found), {}};
  char buffer[16 * 1024];
  while (true) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read " + path);
    if (got == 0) return file;
    file.content.append(buffer, static_cast<size_t>(got));
    if (file.content.size() > bytes_max) {
      return Exhausted(fmt::format("{} has more than {} bytes", path, bytes_max));
    }
  }
}

}  // namespace mooncake::env
