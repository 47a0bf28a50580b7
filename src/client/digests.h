// The digests object: the block digests of every payload object of one participant, as the METADATA
// object <group>/digests/<participant>. docs/formats/digests.md is the format's page.
//
// Pure functions. The bytes are a function of the payloads' names, sizes and contents alone, so
// their SHA-256 is the participant's payload fingerprint: two publishers of equal bytes make equal
// objects. On disk: never changed, only succeeded by another magic.
//
//   offset  bytes
//        0      8  "MCWDIG01"
//        8      8  number of payloads, little-endian; then for each, ascending by name:
//                  4  length of the name; the name (UTF-8, below <group>/payload/)
//                  8  length of the payload in bytes
//                 16  XXH3-128 (big-endian canonical form) of each block of 65536 bytes, the last
//                 one
//                     shorter; no block for an empty payload
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"

namespace mooncake::client {

struct PayloadDigests {
  std::string name;
  uint64_t nbytes = 0;
  std::vector<BlockDigest> blocks;  // DigestBlockCount(nbytes) of them
};

// Payloads in any order; names distinct.
std::string EncodeDigests(std::vector<PayloadDigests> payloads);

// A decoded object: views into the text that it owns.
class DigestsTable {
 public:
  struct Entry {
    std::string_view name;
    uint64_t nbytes = 0;
    std::span<const BlockDigest> blocks;
  };

  // CORRUPT, with the offset and both values, unless `bytes` is what EncodeDigests makes.
  static Result<DigestsTable> Decode(std::string bytes);

  DigestsTable(DigestsTable&&) = default;
  DigestsTable& operator=(DigestsTable&&) = default;

  std::span<const Entry> entries() const { return entries_; }
  // nullptr when the payload is not in it.
  const Entry* Find(std::string_view name) const;

 private:
  DigestsTable() = default;

  // Behind a pointer, so that the entries' views survive a move.
  std::unique_ptr<const std::string> bytes_;
  std::vector<Entry> entries_;  // by name
};

}  // namespace mooncake::client
