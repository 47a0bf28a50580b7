// Writes one pack: many small fragments at their offsets of one payload object, in any order, from
// any thread, with the digest of each block as soon as its last byte is there.
//
// With a target (the mapped pack) a block is digested from there while it is warm. Without one
// (only the fingerprint is wanted) bytes wait in staging until their block is whole: at most the
// blocks that are begun and not finished, never more than the pack. Ranges never overlap and
// together fill the pack: the upload plan's promise, which Add checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "env/sync.h"

namespace mooncake::client {

class PackWriter {
 public:
  // `target` holds `nbytes` bytes, or is null.
  PackWriter(std::byte* target, uint64_t nbytes);

  std::byte* target() const { return target_; }

  // The bytes at `offset` of the pack are these. With a target they are there already and `bytes`
  // is what was written.
  void Add(uint64_t offset, std::span<const std::byte> bytes);

  bool complete() const;
  // Of all blocks; only once complete.
  std::vector<BlockDigest> digests() const;

 private:
  struct Block {
    uint32_t missing = 0;
    BlockDigest digest;
  };

  std::byte* const target_;
  const uint64_t nbytes_;
  mutable env::Mutex mutex_;
  std::vector<Block> blocks_;
  uint64_t missing_ = 0;
  std::unordered_map<uint64_t, std::vector<std::byte>> staged_;  // by block
};

}  // namespace mooncake::client
