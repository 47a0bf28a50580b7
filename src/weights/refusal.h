// How decide functions word a refusal of the state tables, and what text they let into the log.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/identity.h"
#include "model/states.h"

namespace mooncake::weights {

// "<what>: <row's reason>", with " (<detail>)" when there is one; the row must refuse.
Status Refusal(const model::RevisionRow& row, std::string_view what, std::string_view detail = {});
Status Refusal(const model::ParticipantRow& row, std::string_view what,
               std::string_view detail = {});

// A reason as it may be logged: valid UTF-8 (else UrlEncode'd), cut to at most kReasonBytesMax
// bytes between characters.
inline constexpr size_t kReasonBytesMax = 1024;
std::string LoggableReason(std::string_view reason);

// INVALID_ARGUMENT unless 1 to kTtlMsMax.
Status ValidateTtl(uint64_t ttl_ms);

}  // namespace mooncake::weights
