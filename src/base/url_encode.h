// Percent-encoding of one path component, as RFC 3986 defines it: unreserved characters stay, every
// other byte of the UTF-8 text becomes %XX (upper-case hex).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake {

std::string UrlEncode(std::string_view component);
// Refuses '%' not followed by two hex digits.
Result<std::string> UrlDecode(std::string_view encoded);

}  // namespace mooncake
