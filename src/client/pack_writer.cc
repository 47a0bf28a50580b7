#include "client/pack_writer.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace mooncake::client {

PackWriter::PackWriter(std::byte* target, uint64_t nbytes)
    : target_(target), nbytes_(nbytes), blocks_(DigestBlockCount(nbytes)), missing_(nbytes) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].missing =
        static_cast<uint32_t>(std::min(kDigestBlockBytes, nbytes - i * kDigestBlockBytes));
  }
}

void PackWriter::Add(uint64_t offset, std::span<const std::byte> bytes) {
  MC_CHECK(offset <= nbytes_ && bytes.size() <= nbytes_ - offset);
  // One lock for all: a fragment of a pack is small, and its digest costs less than its copy.
  std::lock_guard lock(mutex_);
  while (!bytes.empty()) {
    const uint64_t index = offset / kDigestBlockBytes;
    const uint64_t begin = index * kDigestBlockBytes;
    const uint64_t block_bytes = std::min(kDigestBlockBytes, nbytes_ - begin);
    const uint64_t part = std::min<uint64_t>(bytes.size(), begin + block_bytes - offset);
    Block& block = blocks_[index];
    MC_CHECK(part <= block.missing);
    const std::byte* whole = target_ == nullptr ? nullptr : target_ + begin;
    if (target_ == nullptr) {
      if (part == block_bytes) {
        whole = bytes.data();
      } else {
        std::vector<std::byte>& staged = staged_[index];
        staged.resize(block_bytes);
        std::memcpy(staged.data() + (offset - begin), bytes.data(), part);
        whole = staged.data();
      }
    }
    block.missing -= static_cast<uint32_t>(part);
    missing_ -= part;
    if (block.missing == 0) {
      block.digest = BlockDigestOf(whole, block_bytes);
      if (target_ == nullptr) staged_.erase(index);
    }
    offset += part;
    bytes = bytes.subspan(part);
  }
}

bool PackWriter::complete() const {
  std::lock_guard lock(mutex_);
  return missing_ == 0;
}

std::vector<BlockDigest> PackWriter::digests() const {
  std::lock_guard lock(mutex_);
  MC_CHECK(missing_ == 0);
  std::vector<BlockDigest> digests;
  digests.reserve(blocks_.size());
  for (const Block& block : blocks_) digests.push_back(block.digest);
  return digests;
}

}  // namespace mooncake::client
