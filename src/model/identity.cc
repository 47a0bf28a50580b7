#include "model/identity.h"

#include <array>
#include <charconv>

#include "base/digest.h"
#include "base/url_encode.h"

namespace mooncake::model {
namespace {

// Bytes of the UTF-8 sequence at the start of `text`, 0 when it is malformed.
size_t Utf8SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
    if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
    return 3;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
    if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
    return 4;
  }
  return 0;
}

size_t HashOf(std::initializer_list<std::string_view> parts, uint64_t number) {
  size_t hash = std::hash<uint64_t>()(number);
  for (const std::string_view part : parts) {
    hash = hash * 0x9E3779B97F4A7C15ULL + std::hash<std::string_view>()(part);
  }
  return hash;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Status ValidateIdentityPart(std::string_view field, std::string_view part) {
  if (part.empty()) return InvalidArgument(std::string(field) + " must not be empty");
  return ValidateText(field, part, kIdentityPartBytesMax);
}

Status ValidateText(std::string_view field, std::string_view text, size_t bytes_max) {
  const std::string name(field);
  if (text.size() > bytes_max) {
    return InvalidArgument(name + " may have at most " + std::to_string(bytes_max) +
                           " bytes, got " + std::to_string(text.size()));
  }
  if (!IsUtf8(text)) return InvalidArgument(name + " is not valid UTF-8");
  return OkStatus();
}

Status ValidateIdentity(const WeightIdentity& identity) {
  MC_RETURN_IF_ERROR(ValidateIdentityPart("tenant_id", identity.tenant_id));
  MC_RETURN_IF_ERROR(ValidateIdentityPart("namespace", identity.name_space));
  MC_RETURN_IF_ERROR(ValidateIdentityPart("resource_id", identity.resource_id));
  return ValidateIdentityPart("revision", identity.revision);
}

Status ValidatePayloadName(std::string_view name) {
  if (name.empty()) return InvalidArgument("a payload name must not be empty");
  if (name.size() > kPayloadNameBytesMax) {
    return InvalidArgument("a payload name may have at most " +
                           std::to_string(kPayloadNameBytesMax) + " bytes, got " +
                           std::to_string(name.size()));
  }
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || c == '%';
    if (!plain) {
      return InvalidArgument("payload name '" + UrlEncode(name) +
                             "' (shown encoded) is not URL-encoded text");
    }
  }
  return OkStatus();
}

std::string GroupId(const WeightIdentity& identity) {
  return "weights/" + UrlEncode(identity.name_space) + "/" + UrlEncode(identity.resource_id) + "/" +
         UrlEncode(identity.revision) + "/" + std::to_string(identity.weight_generation.value);
}

std::string DigestsName(std::string_view participant_id) {
  return "digests/" + UrlEncode(participant_id);
}

std::string MetadataKey(std::string_view group_id, std::string_view name) {
  std::string key(group_id);
  key += '/';
  key += name;
  return key;
}

std::string ManifestKey(std::string_view group_id) { return MetadataKey(group_id, kManifestName); }

std::string PayloadKey(std::string_view group_id, std::string_view payload_name) {
  std::string key(group_id);
  key += "/payload/";
  key += payload_name;
  return key;
}

std::optional<WeightIdentity> IdentityOfKey(std::string_view tenant_id, std::string_view key) {
  constexpr std::string_view kPrefix = "weights/";
  if (!key.starts_with(kPrefix)) return std::nullopt;
  std::string_view rest = key.substr(kPrefix.size());
  std::array<std::string, 4> parts;  // namespace, resource, revision, generation
  for (std::string& part : parts) {
    const size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    Result<std::string> decoded = UrlDecode(rest.substr(0, slash));
    if (!decoded.ok()) return std::nullopt;
    part = *std::move(decoded);
    rest.remove_prefix(slash + 1);
  }
  const bool of_group = rest == kManifestName || rest == kAffinityName ||
                        rest.starts_with("digests/") || rest.starts_with("payload/");
  WeightIdentity identity{std::string(tenant_id), parts[0], parts[1], parts[2], {}};
  const char* const end = parts[3].data() + parts[3].size();
  const auto number = std::from_chars(parts[3].data(), end, identity.weight_generation.value);
  if (!of_group || number.ec != std::errc() || number.ptr != end) return std::nullopt;
  // One identity, one spelling: another is another key.
  if (!key.starts_with(GroupId(identity) + "/")) return std::nullopt;
  return identity;
}

std::string KeyText(std::string_view key) {
  constexpr size_t kShown = 100;
  const std::string_view shown = key.substr(0, kShown);
  // A message is UTF-8, whatever the key is and wherever it is cut.
  const bool readable = IsUtf8(shown);
  std::string text = "\"";
  for (const char c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte >= 0x20 && byte != 0x7f && (byte < 0x80 || readable);
    if (!plain || c == '"' || c == '\\') {
      text += "\\x" + HexOf({&c, 1});
    } else {
      text += c;
    }
  }
  return text + (key.size() > kShown ? "\"..." : "\"");
}

std::string Describe(const WeightIdentity& identity) {
  return "tenant " + UrlEncode(identity.tenant_id) + ": " + GroupId(identity);
}

}  // namespace mooncake::model

size_t std::hash<mooncake::model::WeightIdentity>::operator()(
    const mooncake::model::WeightIdentity& identity) const noexcept {
  return mooncake::model::HashOf(
      {identity.tenant_id, identity.name_space, identity.resource_id, identity.revision},
      identity.weight_generation.value);
}

size_t std::hash<mooncake::model::Lineage>::operator()(
    const mooncake::model::Lineage& lineage) const noexcept {
  return mooncake::model::HashOf(
      {lineage.tenant_id, lineage.name_space, lineage.resource_id, lineage.revision}, 0);
}
