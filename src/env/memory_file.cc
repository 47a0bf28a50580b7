#include "env/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "env/errno_status.h"

namespace mooncake::env {
namespace {

// A signal interrupts fallocate of a memfd and undoes the whole call; smaller steps always get on.
constexpr uint64_t kAllocateStepBytes = uint64_t{64} << 20;

Status AllocateAll(int fd, uint64_t bytes, const std::string& what) {
  if (bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
    return InvalidArgument("cannot allocate " + std::to_string(bytes) + " bytes for " + what +
                           ": beyond the largest file size");
  }
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t step = std::min(kAllocateStepBytes, bytes - done);
    const int error = ::posix_fallocate(fd, static_cast<off_t>(done), static_cast<off_t>(step));
    if (error == EINTR) continue;
    if (error != 0) {
      return ErrnoStatus(error, "allocate " + std::to_string(bytes) + " bytes for " + what +
                                    " (got " + std::to_string(done) + ")");
    }
    done += step;
  }
  return OkStatus();
}

// Makes huge pages of the anonymous file's memory, as far as the kernel has them to give; whatever
// it refuses stays unallocated. MADV_COLLAPSE (Linux 6.1) does so whatever the system's settings
// for shared memory are, costs no more than allocating the same memory page by page, and makes
// every later mapping a few hundred times cheaper.
void CollapseToHugePages(int fd, uint64_t bytes) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;
#endif
  constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
  const uint64_t whole = bytes / kHugePageBytes * kHugePageBytes;
  if (whole == 0) return;
  const Result<Mapping> mapping = Mapping::Map(fd, 0, whole, MapAccess::kReadWrite);
  if (!mapping.ok()) return;
  for (uint64_t begin = 0; begin < whole; begin += kAllocateStepBytes) {
    const uint64_t end = std::min(begin + kAllocateStepBytes, whole);
    for (uint64_t page = begin; page < end; page += kHugePageBytes) {
      // A range without any page is not collapsed. Allocated, not touched: running out of memory is
      // an error here and a signal there.
      if (::posix_fallocate(fd, static_cast<off_t>(page), 1) != 0) return;
    }
    if (::madvise(mapping->data() + begin, end - begin, kCollapse) != 0) return;
  }
}

Result<uint64_t> SizeOf(int fd, const std::string& what) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat " + what);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(what + " is not a regular file");
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

Result<MemoryFile> MemoryFile::CreateAnonymous(const std::string& name, uint64_t bytes) {
  MC_ASSIGN_OR_RETURN(MemoryFile file, PrepareAnonymous(name, bytes));
  MC_RETURN_IF_ERROR(file.SealAt(bytes));
  return file;
}

Result<MemoryFile> MemoryFile::PrepareAnonymous(const std::string& name, uint64_t bytes) {
  const std::string what = "the memory file " + name;
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "create " + what);
  if (bytes <= static_cast<uint64_t>(std::numeric_limits<off_t>::max()) &&
      ::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0) {
    CollapseToHugePages(fd.get(), bytes);
  }
  MC_RETURN_IF_ERROR(AllocateAll(fd.get(), bytes, what));
  // A memfd is born with mode 0777: a reader of another user could reopen its read-only descriptor
  // for writing through /proc.
  if (::fchmod(fd.get(), 0400) != 0) return ErrnoStatus(errno, "set the mode of " + what);
  return MemoryFile(std::move(fd), bytes);
}

Status MemoryFile::SealAt(uint64_t bytes) {
  const std::string what = "descriptor " + std::to_string(fd_.get());
  if (bytes > bytes_) {
    return InvalidArgument("cannot cut " + what + " of " + std::to_string(bytes_) + " bytes to " +
                           std::to_string(bytes));
  }
  if (bytes < bytes_ && ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoStatus(errno, "cut " + what + " to " + std::to_string(bytes) + " bytes");
  }
  bytes_ = bytes;
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "seal the size of " + what);
  }
  return OkStatus();
}

Result<MemoryFile> MemoryFile::CreateFile(const std::string& path, uint64_t bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "create " + path);
  if (Status status = AllocateAll(fd.get(), bytes, path); !status.ok()) {
    ::unlink(path.c_str());
    return status;
  }
  return MemoryFile(std::move(fd), bytes);
}

Result<MemoryFile> MemoryFile::OpenFile(const std::string& path, MapAccess access) {
  const int flags = access == MapAccess::kReadOnly ? O_RDONLY : O_RDWR;
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  MC_ASSIGN_OR_RETURN(const uint64_t bytes, SizeOf(fd.get(), path));
  return MemoryFile(std::move(fd), bytes);
}

Result<MemoryFile> MemoryFile::Adopt(UniqueFd fd, uint64_t bytes) {
  const std::string what = "descriptor " + std::to_string(fd.get());
  MC_ASSIGN_OR_RETURN(const uint64_t actual, SizeOf(fd.get(), what));
  if (actual != bytes) {
    return InvalidArgument("expected a memory file of " + std::to_string(bytes) + " bytes, " +
                           what + " has " + std::to_string(actual));
  }
  return MemoryFile(std::move(fd), bytes);
}

Result<UniqueFd> MemoryFile::ReopenReadOnly() const {
  const std::string link = "/proc/self/fd/" + std::to_string(fd_.get());
  UniqueFd reopened(::open(link.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reopened.valid()) return ErrnoStatus(errno, "reopen " + link + " read-only");
  return reopened;
}

Result<UniqueFd> MemoryFile::Duplicate() const {
  UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return ErrnoStatus(errno, "duplicate descriptor " + std::to_string(fd_.get()));
  }
  return copy;
}

Status MemoryFile::PunchHole(uint64_t offset, uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset) {
    return InvalidArgument("cannot punch [" + std::to_string(offset) + ", +" +
                           std::to_string(bytes) + ") out of a memory file of " +
                           std::to_string(bytes_) + " bytes");
  }
  if (bytes == 0) return OkStatus();
  while (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    return ErrnoStatus(errno, "punch [" + std::to_string(offset) + ", +" + std::to_string(bytes) +
                                  ") out of descriptor " + std::to_string(fd_.get()));
  }
  return OkStatus();
}

Status MemoryFile::Sync() const {
  if (::fdatasync(fd_.get()) == 0) return OkStatus();
  return ErrnoStatus(errno, "sync descriptor " + std::to_string(fd_.get()));
}

}  // namespace mooncake::env
