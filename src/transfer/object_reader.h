// Reads regions out of stored objects, block by block: a block's digest is compared before any of
// its bytes is copied. Any blocks may be read at once by different threads. Used by the CopyEngine,
// which gives it the threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "transfer/copy_engine.h"
#include "transfer/copy_kernels.h"
#include "transfer/strided_walk.h"

namespace mooncake::transfer {

class ObjectReader {
 public:
  // `reads` must outlive the reader.
  static Result<ObjectReader> Prepare(std::span<const ObjectRead> reads, Verify verify,
                                      const CopyEngineOptions& options);

  // Blocks of all objects, one object after the other, from the first to the last that has a wanted
  // byte.
  uint64_t blocks() const { return block_begins_.back(); }

  // Verifies and copies blocks [begin, end).
  Status ReadBlocks(uint64_t begin, uint64_t end, const TransferControl& control) const;

  // Every region, until one visit fails.
  template <class Visit>
  Status ForEachWalk(Visit visit) const {
    for (const Object& object : objects_) {
      for (const Region& region : object.regions) MC_RETURN_IF_ERROR(visit(region.walk));
    }
    return OkStatus();
  }

 private:
  struct Region {
    StridedWalk walk;  // by source
    WalkAxis axis;
    uint64_t begin = 0;  // the hull in the object
    uint64_t end = 0;
  };
  struct Object {
    const ObjectRead* read = nullptr;
    std::vector<Region> regions;       // by begin
    std::vector<uint64_t> latest_end;  // largest end of the regions up to this one
    uint64_t first_block = 0;
  };
  // A whole block that was verified and waits to be streamed beside the next one's verification.
  struct Verified {
    const std::byte* source = nullptr;
    std::byte* target = nullptr;
  };

  Status AddObject(const ObjectRead& read, Verify verify);
  static Result<Region> MakeRegion(const ObjectRead& read, size_t index);
  void CollectParts(const Object& object, uint64_t begin, uint64_t end,
                    std::vector<StridedWalk>* parts) const;
  Status VerifyBlock(const Object& object, uint64_t block, uint64_t bytes, Verified* waiting) const;
  void Flush(Verified* waiting) const;

  const CopyKernels* kernels_ = &KernelsOfThisCpu();
  bool stream_ = false;
  std::vector<Object> objects_;
  std::vector<uint64_t> block_begins_{0};
};

}  // namespace mooncake::transfer
