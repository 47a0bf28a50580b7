#include "manifest/field_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace mooncake::manifest {

namespace {

// Length of the well-formed sequence that starts at `at` (Unicode 15, table 3-7); 0 when there is
// none. Surrogates and overlong forms are none.
size_t SequenceLength(std::string_view text, size_t at) {
  const auto byte = [text](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0};
  };
  const auto is_tail = [&byte](size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return is_tail(at + 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : 0xBF;
    return is_tail(at + 1, low, high) && is_tail(at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;
    return is_tail(at + 1, low, high) && is_tail(at + 2) && is_tail(at + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    if (uint64_t word; at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & kHighBits) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const size_t length = SequenceLength(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

Status CheckText(std::string_view name, std::string_view value) {
  if (value.empty()) return InvalidArgument(fmt::format("{} must be a non-empty string", name));
  if (!IsValidUtf8(value)) return InvalidArgument(fmt::format("{} must be valid UTF-8", name));
  return OkStatus();
}

Status CheckAtLeast(std::string_view name, int64_t value, int64_t min) {
  if (value >= min) return OkStatus();
  return InvalidArgument(fmt::format("{} must be at least {}, got {}", name, min, value));
}

Status CheckAtLeast(std::string_view name, const std::optional<int64_t>& value, int64_t min) {
  return value ? CheckAtLeast(name, *value, min) : OkStatus();
}

Status CheckUnsignedAtLeast(std::string_view name, uint64_t value, uint64_t min) {
  if (value >= min) return OkStatus();
  return InvalidArgument(fmt::format("{} must be at least {}, got {}", name, min, value));
}

Status CheckAllAtLeast(std::string_view name, std::span<const int64_t> values, int64_t min) {
  for (const int64_t value : values) MC_RETURN_IF_ERROR(CheckAtLeast(name, value, min));
  return OkStatus();
}

bool IsSha256Hex(std::string_view value) {
  return value.size() == 64 && std::all_of(value.begin(), value.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Status NormalizeAliases(std::string_view tensor_id, std::vector<std::string>& aliases) {
  if (aliases.empty()) return OkStatus();
  for (const std::string& alias : aliases) {
    if (alias.empty()) return InvalidArgument("aliases must contain non-empty strings");
    MC_RETURN_IF_ERROR(CheckText("aliases", alias));
  }
  std::sort(aliases.begin(), aliases.end());
  if (auto twin = std::adjacent_find(aliases.begin(), aliases.end()); twin != aliases.end()) {
    return InvalidArgument(fmt::format("aliases must not contain duplicates: {}", *twin));
  }
  if (aliases.size() < 2) {
    return InvalidArgument(fmt::format(
        "alias group must contain at least two tensor IDs, got {} for {}", aliases[0], tensor_id));
  }
  if (!std::binary_search(aliases.begin(), aliases.end(), tensor_id)) {
    return InvalidArgument(
        fmt::format("alias group must contain the fragment tensor_id: {}", tensor_id));
  }
  return OkStatus();
}

std::optional<uint64_t> CheckedBytes(std::span<const int64_t> shape, int64_t itemsize) {
  auto bytes = static_cast<uint64_t>(itemsize);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

std::string ToText(std::span<const int64_t> values) {
  return fmt::format("({}{})", fmt::join(values, ", "), values.size() == 1 ? "," : "");
}

std::string ToText(const ParallelRank& rank) {
  return fmt::format("dp={} tp={} pp={} ep={}", rank.dp, rank.tp, rank.pp, rank.ep);
}

}  // namespace mooncake::manifest
