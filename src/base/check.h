// MC_CHECK: a programmer's error ends the process, in release builds too.
#pragma once

namespace mooncake::detail {
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line);
}  // namespace mooncake::detail

#define MC_CHECK(condition)                            \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::mooncake::detail::CheckFailed(#condition, __FILE__, __LINE__))
