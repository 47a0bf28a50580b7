#include "model/grant.h"

#include "base/url_encode.h"

namespace mooncake::model {
namespace {

// Takes the same time whatever the first differing byte.
bool SameMac(const Sha256Digest& expected, std::string_view mac) {
  if (mac.size() != expected.size()) return false;
  uint8_t difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference |= static_cast<uint8_t>(expected[i] ^ static_cast<uint8_t>(mac[i]));
  }
  return difference == 0;
}

}  // namespace

std::string_view Name(Access access) {
  switch (access) {
    case Access::kRead:
      return "READ";
    case Access::kWrite:
      return "WRITE";
    case Access::kMetadataRead:
      return "METADATA_READ";
    case Access::kMetadataWrite:
      return "METADATA_WRITE";
    case Access::kSlabRead:
      return "SLAB_READ";
  }
  return "?";
}

Result<Access> AccessFromNumber(int64_t number) {
  if (number < 1 || number > 5) {
    return InvalidArgument("access must be 1 to 5, got " + std::to_string(number));
  }
  return static_cast<Access>(number);
}

std::string CanonicalText(const Grant& grant) {
  std::string text = "mooncake-grant 1\n";
  text += "instance " + UrlEncode(grant.instance_id) + "\n";
  text += "tenant " + UrlEncode(grant.tenant_id) + "\n";
  text += "import " + std::to_string(grant.import_id.value) + "\n";
  text += "arena " + std::to_string(grant.arena_id.value) + "\n";
  text += "bytes " + std::to_string(grant.arena_bytes) + "\n";
  text += "access ";
  text += Name(grant.access);
  text += "\n";
  return text;
}

Sha256Digest GrantMac(std::string_view key, const Grant& grant) {
  return HmacSha256(key, CanonicalText(grant));
}

bool GrantMacMatches(std::string_view key, const Grant& grant, std::string_view mac) {
  return SameMac(GrantMac(key, grant), mac);
}

std::string CanonicalText(const ExtentPermit& permit) {
  std::string text = "mooncake-extent 1\n";
  text += "instance " + UrlEncode(permit.instance_id) + "\n";
  text += "tenant " + UrlEncode(permit.tenant_id) + "\n";
  text += "slab " + std::to_string(permit.slab_id.value);
  text += " " + std::to_string(permit.slab_bytes) + "\n";
  text += "extent " + std::to_string(permit.offset);
  text += " " + std::to_string(permit.bytes) + "\n";
  text += "object " + std::to_string(permit.object_id.value) + "\n";
  return text;
}

Sha256Digest PermitMac(std::string_view key, const ExtentPermit& permit) {
  return HmacSha256(key, CanonicalText(permit));
}

bool PermitMacMatches(std::string_view key, const ExtentPermit& permit, std::string_view mac) {
  return SameMac(PermitMac(key, permit), mac);
}

}  // namespace mooncake::model
