#include "base/url_encode.h"

namespace mooncake {

std::string UrlEncode(std::string_view component) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : component) {
    const auto byte = static_cast<uint8_t>(c);
    const bool unreserved = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                            (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~';
    if (unreserved) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

Result<std::string> UrlDecode(std::string_view encoded) {
  const auto nibble = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string decoded;
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != '%') {
      decoded += encoded[i];
      continue;
    }
    const int high = i + 2 < encoded.size() ? nibble(encoded[i + 1]) : -1;
    const int low = i + 2 < encoded.size() ? nibble(encoded[i + 2]) : -1;
    if (high < 0 || low < 0) {
      return InvalidArgument("bad percent escape at byte " + std::to_string(i));
    }
    decoded += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return decoded;
}

}  // namespace mooncake
