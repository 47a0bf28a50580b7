// Permission that the Master gives and a node checks without calling back.
//
// A grant names one node instance, one import and (for arenas) one arena; the MAC is HMAC-SHA256
// with the key that the node handed over when it registered. A node process makes a new key at
// every start, so a grant dies with the instance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/status.h"
#include "model/identity.h"

namespace mooncake::model {

// v1::Access's numbers.
enum class Access : uint8_t {
  kRead = 1,           // open an arena read-only
  kWrite = 2,          // open (creating) an arena read-write, until it is sealed
  kMetadataRead = 3,   // read METADATA objects of the import
  kMetadataWrite = 4,  // write METADATA objects of the import, and seal it
};
std::string_view Name(Access access);
// INVALID_ARGUMENT for a number that is none of the four.
Result<Access> AccessFromNumber(int64_t number);

struct Grant {
  std::string instance_id;
  std::string tenant_id;
  ImportId import_id;
  ArenaId arena_id;          // none for the METADATA accesses
  uint64_t arena_bytes = 0;  // size to create
  Access access = Access::kRead;

  friend bool operator==(const Grant&, const Grant&) = default;
};

// What the MAC is computed over; one value, one text. Lines end in "\n", texts are UrlEncode'd:
//   mooncake-grant 1
//   instance <instance_id>
//   tenant <tenant_id>
//   import <decimal>
//   arena <decimal>
//   bytes <decimal>
//   access <READ|WRITE|METADATA_READ|METADATA_WRITE>
std::string CanonicalText(const Grant& grant);

Sha256Digest GrantMac(std::string_view key, const Grant& grant);

// Takes the same time whatever the first differing byte. A MAC of another length never matches.
bool GrantMacMatches(std::string_view key, const Grant& grant, std::string_view mac);

}  // namespace mooncake::model
