// The digests of the product (ARCHITECTURE.md): SHA-256 for manifests, ids and fingerprints,
// XXH3-128 for payload blocks; and XXH3-64, the checksum of ordinary objects.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake {

using Sha256Digest = std::array<uint8_t, 32>;

// Incremental SHA-256 (OpenSSL EVP). Update after Finish is a programmer's error.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(const void* data, size_t bytes);
  void Update(std::string_view text) { Update(text.data(), text.size()); }
  Sha256Digest Finish();

  // A second hash that has seen the same bytes: two texts with a long common beginning cost one
  // pass.
  Sha256 Clone() const;

 private:
  struct State;
  explicit Sha256(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

Sha256Digest Sha256Of(std::string_view bytes);
Sha256Digest HmacSha256(std::string_view key, std::string_view bytes);

// 64 lowercase hex characters.
std::string ToHex(const Sha256Digest& digest);
// Refuses anything but 64 lowercase hex characters.
Result<Sha256Digest> Sha256FromHex(std::string_view hex);

// Lowercase hex of any bytes.
std::string HexOf(std::string_view bytes);

// Digest of one payload block; big-endian canonical form of XXH3-128, seed 0.
struct BlockDigest {
  std::array<uint8_t, 16> bytes{};
  friend bool operator==(const BlockDigest&, const BlockDigest&) = default;
};

// Payload integrity works in blocks of this many bytes (the last block of a payload may be
// shorter).
inline constexpr uint64_t kDigestBlockBytes = 64 * 1024;

BlockDigest BlockDigestOf(const void* data, size_t bytes);

// XXH3-64, seed 0: the checksum of an ordinary object's payload.
uint64_t Xxh3Of(const void* data, size_t bytes);

// The same over bytes that come in pieces.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;

  void Reset();
  void Update(const void* data, size_t bytes);
  // Of everything since the last Reset; more may follow.
  uint64_t Value() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Number of digest blocks of a payload of `bytes` bytes.
constexpr uint64_t DigestBlockCount(uint64_t bytes) {
  return (bytes + kDigestBlockBytes - 1) / kDigestBlockBytes;
}

}  // namespace mooncake
