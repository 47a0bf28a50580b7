// The digests object: the block digests of every payload object of one participant, as the METADATA
// object <group>/digests/<participant>. docs/formats/digests.md is the format's page.
//
// Pure functions. The bytes are a function of the payloads' names, sizes and contents alone, so
// their SHA-256 is the participant's payload fingerprint: two publishers of equal bytes make equal
// objects. Fragments are in it that are compared with replicas of theirs (client/replica_check.h)
// and are no payload of their own: their fingerprints follow from no payload's blocks. On disk:
// never changed, only succeeded by another magic.
//
//   offset  bytes
//        0      8  "MCWDIG01", or "MCWDIG02" when fragments follow the payloads
//        8      8  number of payloads, little-endian; then for each, ascending by name:
//                  4  length of the name; the name (UTF-8, below <group>/payload/)
//                  8  length of the payload in bytes
//                 16  XXH3-128 (big-endian canonical form) of each block of 65536 bytes, the last
//                     one shorter; no block for an empty payload
//   MCWDIG02 only: number of fragments (8, at least 1); then for each, ascending by id:
//                  4  length of the id; the placement_fragment_id
//                  8  length of the fragment in bytes
//                 32  its fingerprint
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

struct FragmentFingerprint {
  std::string fragment_id;
  uint64_t nbytes = 0;
  Sha256Digest sha256{};

  friend bool operator==(const FragmentFingerprint&, const FragmentFingerprint&) = default;
};

// Of a fragment, by the digests of its own blocks, counted from its first byte.
Sha256Digest FingerprintOf(std::span<const BlockDigest> blocks);

// Both in any order; names and ids distinct.
std::string EncodeDigests(std::vector<PayloadDigests> payloads,
                          std::vector<FragmentFingerprint> fragments = {});

// A decoded object: views into the text that it owns.
class DigestsTable {
 public:
  struct Entry {
    std::string_view name;
    uint64_t nbytes = 0;
    std::span<const BlockDigest> blocks;
  };
  struct Fragment {
    std::string_view id;
    uint64_t nbytes = 0;
    Sha256Digest sha256{};
  };

  // CORRUPT, with the offset and both values, unless `bytes` is what EncodeDigests makes.
  static Result<DigestsTable> Decode(std::string bytes);

  DigestsTable(DigestsTable&&) = default;
  DigestsTable& operator=(DigestsTable&&) = default;

  std::span<const Entry> entries() const { return entries_; }
  std::span<const Fragment> fragments() const { return fragments_; }
  // nullptr when it is not in it.
  const Entry* Find(std::string_view name) const;
  const Fragment* FindFragment(std::string_view id) const;

 private:
  DigestsTable() = default;

  // Behind a pointer, so that the entries' views survive a move.
  std::unique_ptr<const std::string> bytes_;
  std::vector<Entry> entries_;       // by name
  std::vector<Fragment> fragments_;  // by id
};

}  // namespace mooncake::client
