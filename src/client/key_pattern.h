// Regular expressions over keys. The library's own are exceptions that must not leave
// key_pattern.cc.
#pragma once

#include <memory>
#include <string_view>

#include "base/status.h"

namespace mooncake::client {

// ECMAScript without back-references (POSIX brackets included), found anywhere in a key, byte by
// byte. Matching takes time and memory in proportion to pattern times key, and no stack to speak
// of, whatever they are. Threads: const methods from any thread.
class KeyPattern {
 public:
  // INVALID_ARGUMENT: it is no such pattern, or longer than kPatternBytesMax.
  static Result<KeyPattern> Compile(std::string_view pattern);

  KeyPattern(KeyPattern&&) noexcept;
  KeyPattern& operator=(KeyPattern&&) noexcept;
  ~KeyPattern();

  // INVALID_ARGUMENT: memory for the match was short.
  Result<bool> FoundIn(std::string_view key) const;

 private:
  struct Compiled;
  explicit KeyPattern(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

inline constexpr size_t kPatternBytesMax = 4096;

}  // namespace mooncake::client
