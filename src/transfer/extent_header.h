// What lies in front of the payload of every replica of an ordinary object, in its slab: who the
// bytes belong to, so that a reader who comes too late sees that they are no longer what it wants.
//
// 64 bytes, little-endian, at an offset that is a multiple of 64; the payload follows.
//   0   u64  object_id: of the object whose payload this is; 0: none, or not whole yet
//   8   u64  payload bytes
//   16  u64  XXH3-64 of the payload (when flags has kHasChecksum)
//   24  u32  magic "MCX1"
//   28  u32  flags
//   32  32 bytes of zeros
// Protocol, of the one writer (the node) and any number of readers that map the slab:
//   1. the writer sets object_id to 0 in every header that the new extent overlaps, the new one's
//      included, then a fence;
//   2. it fills the payload and the other fields, then sets object_id (release);
//   3. a reader sees its object_id (acquire), copies, and sees it again behind a fence: then what
//   it
//      copied is that object's. Ids are never used twice, so that there is no way around.
#pragma once

#include <atomic>
#include <cstdint>

namespace mooncake::transfer {

struct ExtentHeader {
  std::atomic<uint64_t> object_id;
  uint64_t payload_bytes;
  uint64_t xxh3;
  uint32_t magic;
  uint32_t flags;
  uint64_t zeros[4];

  static constexpr uint32_t kMagic = 0x3158434d;  // "MCX1"
  static constexpr uint32_t kHasChecksum = 1;
};
static_assert(sizeof(ExtentHeader) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Extents begin at multiples of this.
inline constexpr uint64_t kExtentAlignment = 64;

}  // namespace mooncake::transfer
