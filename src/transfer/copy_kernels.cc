#include "transfer/copy_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mooncake::transfer {
namespace detail {
namespace {

#define MC_KERNEL_WIDTH 16
#include "transfer/copy_kernels_body.inc"

}  // namespace

const CopyKernels* PortableKernels() {
  static constexpr CopyKernels kKernels = {"portable", CopyGrid, StreamGrid, HashBlock,
                                           HashAndStream};
  return &kKernels;
}

}  // namespace detail

std::vector<const CopyKernels*> AllKernelsOfThisCpu() {
  std::vector<const CopyKernels*> all = {detail::PortableKernels()};
  for (const CopyKernels* kernels : {detail::Avx2Kernels(), detail::Avx512Kernels()}) {
    if (kernels != nullptr) all.push_back(kernels);
  }
  return all;
}

const CopyKernels& KernelsOfThisCpu() {
  static const CopyKernels* const kernels = AllKernelsOfThisCpu().back();
  return *kernels;
}

void FenceStreams() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace mooncake::transfer
