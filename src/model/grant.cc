#include "model/grant.h"

#include "base/url_encode.h"

namespace mooncake::model {

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
  }
  return "?";
}

Result<Access> AccessFromNumber(int64_t number) {
  if (number < 1 || number > 4) {
    return InvalidArgument("access must be 1 to 4, got " + std::to_string(number));
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
  const Sha256Digest expected = GrantMac(key, grant);
  if (mac.size() != expected.size()) return false;
  uint8_t difference = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference |= static_cast<uint8_t>(expected[i] ^ static_cast<uint8_t>(mac[i]));
  }
  return difference == 0;
}

}  // namespace mooncake::model
