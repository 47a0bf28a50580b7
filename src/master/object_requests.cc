#include "master/object_requests.h"

#include <fmt/format.h>

#include "model/identity.h"

namespace mooncake::master {
namespace {

constexpr int kKeysPerRequestMax = 16'384;
constexpr size_t kClientIdBytesMax = 128;

}  // namespace

Status CheckTenantAndKeys(const std::string& tenant_id, int keys) {
  MC_RETURN_IF_ERROR(model::ValidateIdentityPart("tenant_id", tenant_id));
  if (keys <= kKeysPerRequestMax) return OkStatus();
  return InvalidArgument(
      fmt::format("expected at most {} keys in one request, got {}", kKeysPerRequestMax, keys));
}

Status CheckClientId(const std::string& client_id) {
  if (client_id.empty()) return InvalidArgument("client_id must not be empty");
  return model::ValidateText("client_id", client_id, kClientIdBytesMax);
}

std::string Quoted(std::string_view key) {
  constexpr size_t kShown = 80;
  std::string text = "\"";
  for (const char c : key.substr(0, kShown)) {
    const bool plain = c >= ' ' && c <= '~';
    text += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return text + (key.size() > kShown ? "...\"" : "\"");
}

}  // namespace mooncake::master
