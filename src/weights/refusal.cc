#include "weights/refusal.h"

#include "base/url_encode.h"
#include "weights/decide.h"

namespace mooncake::weights {
namespace {

Status Worded(Code code, std::string_view what, std::string_view reason, std::string_view detail) {
  std::string message(what);
  message += ": ";
  message += reason;
  if (!detail.empty()) {
    message += " (";
    message += detail;
    message += ")";
  }
  return {code, std::move(message)};
}

}  // namespace

Status Refusal(const model::RevisionRow& row, std::string_view what, std::string_view detail) {
  MC_CHECK(row.effect == model::Effect::kRefuse);
  return Worded(row.code, what, row.reason, detail);
}

Status Refusal(const model::ParticipantRow& row, std::string_view what, std::string_view detail) {
  MC_CHECK(row.effect == model::Effect::kRefuse);
  return Worded(row.code, what, row.reason, detail);
}

std::string LoggableReason(std::string_view reason) {
  const std::string text = model::IsUtf8(reason) ? std::string(reason) : UrlEncode(reason);
  if (text.size() <= kReasonBytesMax) return text;
  size_t end = kReasonBytesMax;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

Status ValidateTtl(uint64_t ttl_ms) {
  if (ttl_ms >= 1 && ttl_ms <= kTtlMsMax) return OkStatus();
  return InvalidArgument("ttl_ms must be 1 to " + std::to_string(kTtlMsMax) + ", got " +
                         std::to_string(ttl_ms));
}

}  // namespace mooncake::weights
