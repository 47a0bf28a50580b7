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
  kSlabRead = 5,       // read the extents of a slab (arena_id; no import)
};
std::string_view Name(Access access);
// INVALID_ARGUMENT for a number that is none of the five.
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
//   access <READ|WRITE|METADATA_READ|METADATA_WRITE|SLAB_READ>
std::string CanonicalText(const Grant& grant);

Sha256Digest GrantMac(std::string_view key, const Grant& grant);

// Takes the same time whatever the first differing byte. A MAC of another length never matches.
bool GrantMacMatches(std::string_view key, const Grant& grant, std::string_view mac);

// Permission to fill one extent of a slab with one object's payload.
struct ExtentPermit {
  std::string instance_id;
  std::string tenant_id;
  ArenaId slab_id;
  uint64_t slab_bytes = 0;  // size to create
  uint64_t offset = 0;      // of the extent's header
  uint64_t bytes = 0;       // of the payload
  ObjectId object_id;

  friend bool operator==(const ExtentPermit&, const ExtentPermit&) = default;
};

// As for grants:
//   mooncake-extent 1
//   instance <instance_id>
//   tenant <tenant_id>
//   slab <decimal> <bytes>
//   extent <offset> <bytes>
//   object <decimal>
std::string CanonicalText(const ExtentPermit& permit);

Sha256Digest PermitMac(std::string_view key, const ExtentPermit& permit);
bool PermitMacMatches(std::string_view key, const ExtentPermit& permit, std::string_view mac);

}  // namespace mooncake::model
