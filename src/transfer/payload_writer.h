// Writes payload objects block by block, each block hashed in the pass that copies it. Any blocks
// may be written at once by different threads. Used by the CopyEngine, which gives it the threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "transfer/copy_engine.h"
#include "transfer/copy_kernels.h"
#include "transfer/piece_pool.h"
#include "transfer/strided_walk.h"

namespace mooncake::transfer {

class PayloadWriter {
 public:
  static Result<PayloadWriter> Prepare(std::span<const PayloadWrite> writes,
                                       const CopyEngineOptions& options);

  // Digest blocks of all objects, one object after the other.
  uint64_t blocks() const { return block_begins_.back(); }

  // Writes blocks [begin, end) and keeps their digests; returns their bytes.
  uint64_t WriteBlocks(uint64_t begin, uint64_t end, Staging* staging);

  // Per object, in the order of `writes`.
  std::vector<std::vector<BlockDigest>> TakeDigests() && { return std::move(digests_); }

 private:
  struct Object {
    std::byte* target = nullptr;
    std::vector<StridedWalk> sources;  // the target of each is unused
    std::vector<uint64_t> begins{0};   // of each source in the object, and the end
    uint64_t bytes() const { return begins.back(); }
  };

  Status AddObject(size_t index, const PayloadWrite& write);
  BlockDigest WriteBlock(const Object& object, uint64_t begin, uint64_t bytes, Staging* staging);

  const CopyKernels* kernels_ = &KernelsOfThisCpu();
  bool stream_ = false;
  std::vector<Object> objects_;
  std::vector<uint64_t> block_begins_{0};
  std::vector<std::vector<BlockDigest>> digests_;
};

}  // namespace mooncake::transfer
