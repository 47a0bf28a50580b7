// "Bearer TOKEN", the value of an `authorization` header of gRPC and HTTP.
#pragma once

#include <cctype>
#include <cstddef>
#include <string_view>

namespace mooncake::rpc {

// The token, in `value`'s memory; empty when `value` is of another scheme.
inline std::string_view BearerTokenOf(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(value[i])) != kScheme[i]) return {};
  }
  return value.substr(kScheme.size());
}

}  // namespace mooncake::rpc
