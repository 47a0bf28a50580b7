// SHA-256 over a canonical serialisation of a catalogue's state: numbers as eight little-endian
// bytes, texts with their length in front. Equal states give equal digests; used to compare live
// with replayed state and snapshots with their source.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/digest.h"
#include "model/identity.h"
#include "model/node.h"
#include "model/policy.h"
#include "model/revision.h"

namespace mooncake::model {

class StateDigest {
 public:
  void Number(uint64_t value);
  void Real(double value);  // by its bits
  void Text(std::string_view text);
  void Hash(const Sha256Digest& digest) { hash_.Update(digest.data(), digest.size()); }
  void Identity(const WeightIdentity& identity);
  void Policy(const StoragePolicy& policy);
  void Metadata(const MetadataObject& object);
  void Address(const NodeAddress& address);
  Sha256Digest Finish() { return hash_.Finish(); }

 private:
  Sha256 hash_;
};

}  // namespace mooncake::model
