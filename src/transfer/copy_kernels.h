// The inner loops of the copy engine, one set per instruction set, chosen by the CPU at run time:
// one binary runs on any x86-64 and builds for other machines (there the portable set is the only
// one).
//
// Kernels check nothing: their callers pass sizes and pointers that are right.
// Threads: pure functions of their arguments and the memory behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace mooncake::transfer {

// rows x columns runs of `inner_bytes` >= 1 bytes; strides in bytes, negative ones allowed.
struct RunGrid {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  uint64_t inner_bytes = 0;
  uint64_t rows = 1;
  uint64_t columns = 1;
  int64_t source_row_stride = 0;
  int64_t target_row_stride = 0;
  int64_t source_column_stride = 0;
  int64_t target_column_stride = 0;
};

struct CopyKernels {
  std::string_view name;  // "portable", "avx2", "avx512"

  // Copies the grid; the target's lines end in the cache.
  void (*copy)(const RunGrid& grid);

  // Copies the grid with non-temporal stores where they win. Weakly ordered: FenceStreams before
  // the bytes are handed to another thread.
  void (*stream)(const RunGrid& grid);

  // Digest of one whole block of kDigestBlockBytes; equal to BlockDigestOf.
  BlockDigest (*hash_block)(const std::byte* block);

  // Digest of the whole block `block`, while kDigestBlockBytes bytes are streamed from `source` to
  // `target` in the same loop. `source` may be `block` itself (a write) or a block verified before
  // (a read runs one block behind its verification). Never overlaps the target with either.
  BlockDigest (*hash_and_stream)(const std::byte* block, const std::byte* source,
                                 std::byte* target);
};

// The fastest set that this CPU runs.
const CopyKernels& KernelsOfThisCpu();

// All sets that this CPU runs, for tests and benchmarks.
std::vector<const CopyKernels*> AllKernelsOfThisCpu();

// Makes all earlier streamed stores of this thread visible before its later ones.
void FenceStreams();

namespace detail {
// nullptr where the build or the CPU lacks the instruction set.
const CopyKernels* PortableKernels();
const CopyKernels* Avx2Kernels();
const CopyKernels* Avx512Kernels();
}  // namespace detail

}  // namespace mooncake::transfer
