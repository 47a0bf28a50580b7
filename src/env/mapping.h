// A range of memory mapped from a descriptor (shared) or made fresh (anonymous), unmapped with its
// owner.
//
// A Mapping does not keep its descriptor. Reading a page that its file lost (truncated, disk full)
// raises SIGBUS: memory files are allocated in full first and, as memfd, sealed against shrinking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"

namespace mooncake::env {

enum class MapAccess : uint8_t { kReadOnly, kReadWrite };

struct MapOptions {
  // MAP_POPULATE: page tables are filled now and not one fault at a time.
  bool populate = false;
  // MADV_HUGEPAGE; a hint that a kernel without it ignores.
  bool huge_pages = false;
};

class Mapping {
 public:
  // `offset` must be a multiple of the page size. 0 bytes give an empty Mapping.
  static Result<Mapping> Map(int fd, uint64_t offset, uint64_t bytes, MapAccess access,
                             MapOptions options = {});
  // Private zeroed memory.
  static Result<Mapping> Anonymous(uint64_t bytes, MapOptions options = {});

  Mapping() = default;
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { Unmap(); }

  // Writing through a read-only mapping is SIGSEGV.
  std::byte* data() const { return data_; }
  uint64_t size() const { return bytes_; }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  Mapping(std::byte* data, uint64_t bytes) : data_(data), bytes_(bytes) {}
  void Unmap();

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace mooncake::env
