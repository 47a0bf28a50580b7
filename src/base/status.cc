#include "base/status.h"

#include <array>

namespace mooncake {

std::string_view CodeName(Code code) {
  static constexpr std::array<std::string_view, kCodeMax + 1> kNames = {
      "OK",
      "INVALID_ARGUMENT",
      "NOT_FOUND",
      "NOT_READY",
      "CONFLICT",
      "STALE_GENERATION",
      "BUSY",
      "LEASE_EXPIRED",
      "DURABILITY_FAILED",
      "POLICY_UNSATISFIABLE",
      "UNAVAILABLE",
      "EXHAUSTED",
      "CORRUPT",
      "UNSUPPORTED",
      "CANCELLED",
      "OUTCOME_UNKNOWN",
      "INTERNAL",
      "PERMISSION_DENIED",
  };
  return kNames[static_cast<uint8_t>(code)];
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  std::string text(CodeName(code_));
  text += ": ";
  text += message_;
  return text;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return {};
  std::string text(context);
  text += ": ";
  text += message_;
  return {code_, std::move(text)};
}

}  // namespace mooncake
