#include "env/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>

#include "env/errno_status.h"

namespace mooncake::env {
namespace {

// Where the kernel maps memory by its huge pages, if it has any there.
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// mmap of a shared file at an address from which its huge pages can be mapped whole: the kernel
// chooses such addresses only where its own settings favour huge pages.
void* MapAligned(int fd, uint64_t offset, uint64_t bytes, int protection, int flags) {
  const uint64_t reserved = bytes + kHugePageBytes;
  void* reservation =
      ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) return MAP_FAILED;
  auto* begin = static_cast<std::byte*>(reservation);
  const uint64_t lead =
      (offset - reinterpret_cast<uint64_t>(begin)) % kHugePageBytes;  // wraps by a multiple
  void* address =
      ::mmap(begin + lead, bytes, protection, flags | MAP_FIXED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) {
    const int error = errno;
    ::munmap(reservation, reserved);
    errno = error;
    return MAP_FAILED;
  }
  const long page = ::sysconf(_SC_PAGESIZE);
  const uint64_t end = (lead + bytes + page - 1) / page * page;
  if (lead > 0) ::munmap(begin, lead);
  if (end < reserved) ::munmap(begin + end, reserved - end);
  return address;
}

Result<std::byte*> MapMemory(int fd, uint64_t offset, uint64_t bytes, int protection, int flags,
                             MapOptions options) {
  const std::string attempted = "map " + std::to_string(bytes) + " bytes at offset " +
                                std::to_string(offset) +
                                (fd >= 0 ? " of descriptor " + std::to_string(fd) : "");
  if (bytes > static_cast<uint64_t>(std::numeric_limits<off_t>::max()) - offset) {
    return InvalidArgument("cannot " + attempted + ": beyond the largest offset");
  }
  // Populating comes after the advice, or the pages would be small already.
  if (options.populate && !options.huge_pages) flags |= MAP_POPULATE;
  void* address = fd >= 0 && bytes >= kHugePageBytes
                      ? MapAligned(fd, offset, bytes, protection, flags)
                      : ::mmap(nullptr, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return ErrnoStatus(errno, attempted);
  if (options.huge_pages) {
    // A hint: refusal changes speed, not meaning.
    (void)::madvise(address, bytes, MADV_HUGEPAGE);
    if (options.populate) {
#ifdef MADV_POPULATE_READ
      (void)::madvise(address, bytes,
                      (protection & PROT_WRITE) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
    }
  }
  return static_cast<std::byte*>(address);
}

}  // namespace

Result<Mapping> Mapping::Map(int fd, uint64_t offset, uint64_t bytes, MapAccess access,
                             MapOptions options) {
  if (bytes == 0) return Mapping();
  const int protection = access == MapAccess::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  MC_ASSIGN_OR_RETURN(std::byte * data,
                      MapMemory(fd, offset, bytes, protection, MAP_SHARED, options));
  return Mapping(data, bytes);
}

Result<Mapping> Mapping::Anonymous(uint64_t bytes, MapOptions options) {
  if (bytes == 0) return Mapping();
  MC_ASSIGN_OR_RETURN(std::byte * data, MapMemory(-1, 0, bytes, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, options));
  return Mapping(data, bytes);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::Unmap() {
  if (data_ != nullptr) MC_CHECK(::munmap(data_, bytes_) == 0);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace mooncake::env
