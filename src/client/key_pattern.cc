#include "client/key_pattern.h"

#include <exception>
#include <regex>
#include <string>
#include <utility>

namespace mooncake::client {

struct KeyPattern::Compiled {
  std::regex regex;
};

KeyPattern::KeyPattern(std::unique_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
KeyPattern::KeyPattern(KeyPattern&&) noexcept = default;
KeyPattern& KeyPattern::operator=(KeyPattern&&) noexcept = default;
KeyPattern::~KeyPattern() = default;

Result<KeyPattern> KeyPattern::Compile(std::string_view pattern) {
  const std::string context = "pattern \"" + std::string(pattern.substr(0, 100)) + "\"";
  if (pattern.size() > kPatternBytesMax) {
    return InvalidArgument(context + ": expected at most " + std::to_string(kPatternBytesMax) +
                           " bytes, got " + std::to_string(pattern.size()));
  }
  // The parser calls itself for every bracket; matching does not (__polynomial walks all states at
  // once, where the other form recurses once per character and may take exponential time).
  constexpr int kDepthMax = 200;
  int depth = 0;
  for (const char c : pattern) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (depth > kDepthMax) {
      return InvalidArgument(context + ": brackets inside brackets, over " +
                             std::to_string(kDepthMax) + " deep");
    }
  }
  try {
    return KeyPattern(std::make_unique<const Compiled>(
        Compiled{std::regex(pattern.begin(), pattern.end(),
                            std::regex::ECMAScript | std::regex_constants::__polynomial)}));
  } catch (const std::exception& error) {
    return InvalidArgument(context + ": " + error.what());
  }
}

Result<bool> KeyPattern::FoundIn(std::string_view key) const {
  try {
    return std::regex_search(key.begin(), key.end(), compiled_->regex);
  } catch (const std::exception& error) {
    return InvalidArgument("matching a key of " + std::to_string(key.size()) +
                           " bytes: " + error.what());
  }
}

}  // namespace mooncake::client
