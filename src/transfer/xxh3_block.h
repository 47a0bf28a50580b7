// What XXH3-128 (seed 0, default secret) needs around its inner loop, for blocks of
// kDigestBlockBytes: the kernels run the loop themselves, so that one pass both copies and hashes.
//
// Algorithm, constants and secret: the XXH3 section of xxhash_spec.md (xxHash 0.8).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/digest.h"

namespace mooncake::transfer::xxh3 {

inline constexpr uint32_t kPrime32_1 = 0x9E3779B1u;
inline constexpr uint32_t kPrime32_2 = 0x85EBCA77u;
inline constexpr uint32_t kPrime32_3 = 0xC2B2AE3Du;
inline constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87u;
inline constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4Fu;
inline constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9u;
inline constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63u;
inline constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5u;
inline constexpr uint64_t kPrimeMx1 = 0x165667919E3779F9u;

inline constexpr size_t kStripeBytes = 64;
inline constexpr size_t kSecretBytes = 192;
// Stripes between two scrambles; the secret moves on by 8 bytes a stripe.
inline constexpr size_t kStripesPerRound = (kSecretBytes - kStripeBytes) / 8;
inline constexpr size_t kRoundBytes = kStripesPerRound * kStripeBytes;
inline constexpr size_t kRounds = kDigestBlockBytes / kRoundBytes;
static_assert(kRounds * kRoundBytes == kDigestBlockBytes);
// Where in the secret the scramble and the last stripe of the block read.
inline constexpr size_t kScrambleSecret = kSecretBytes - kStripeBytes;
inline constexpr size_t kLastStripeSecret = kSecretBytes - kStripeBytes - 7;

alignas(64) inline constexpr std::array<uint8_t, kSecretBytes> kSecret = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

struct alignas(64) Accumulators {
  std::array<uint64_t, 8> lanes = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                   kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
};

inline uint64_t SecretWord(size_t offset) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t word = 0;
  std::memcpy(&word, kSecret.data() + offset, sizeof word);
  return word;
}

inline uint64_t Merge(const Accumulators& acc, size_t secret_offset, uint64_t start) {
  uint64_t sum = start;
  for (size_t i = 0; i < 4; ++i) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(acc.lanes[2 * i] ^ SecretWord(secret_offset + 16 * i)) *
                         (acc.lanes[2 * i + 1] ^ SecretWord(secret_offset + 16 * i + 8));
    sum += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  sum ^= sum >> 37;
  sum *= kPrimeMx1;
  return sum ^ (sum >> 32);
}

// The digest of a whole block from its accumulators after the last stripe: the high half first,
// each big-endian.
inline BlockDigest Finish(const Accumulators& acc) {
  const std::array<uint64_t, 2> halves = {
      Merge(acc, kSecretBytes - kStripeBytes - 11, ~(kDigestBlockBytes * kPrime64_2)),
      Merge(acc, 11, kDigestBlockBytes * kPrime64_1)};
  BlockDigest digest;
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    digest.bytes[i] = static_cast<uint8_t>(halves[i / 8] >> (56 - 8 * (i % 8)));
  }
  return digest;
}

}  // namespace mooncake::transfer::xxh3
