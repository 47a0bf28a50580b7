#include "transfer/copy_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "transfer/xxh3_block.h"

namespace mooncake::transfer::detail {
namespace {

#if !defined(__clang__)
// GCC 12's own AVX-512 header reads "undefined" registers (its bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx2")
#endif

#define MC_KERNEL_WIDTH 64
#include "transfer/copy_kernels_body.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

}  // namespace

const CopyKernels* Avx512Kernels() {
  static constexpr CopyKernels kKernels = {"avx512", CopyGrid, StreamGrid, HashBlock,
                                           HashAndStream};
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx2") ? &kKernels : nullptr;
}

}  // namespace mooncake::transfer::detail

#else

namespace mooncake::transfer::detail {
const CopyKernels* Avx512Kernels() { return nullptr; }
}  // namespace mooncake::transfer::detail

#endif
