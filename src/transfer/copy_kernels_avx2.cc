#include "transfer/copy_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "transfer/xxh3_block.h"

namespace mooncake::transfer::detail {
namespace {

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#define MC_KERNEL_WIDTH 32
#include "transfer/copy_kernels_body.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

}  // namespace

const CopyKernels* Avx2Kernels() {
  static constexpr CopyKernels kKernels = {"avx2", CopyGrid, StreamGrid, HashBlock, HashAndStream};
  return __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace mooncake::transfer::detail

#else

namespace mooncake::transfer::detail {
const CopyKernels* Avx2Kernels() { return nullptr; }
}  // namespace mooncake::transfer::detail

#endif
