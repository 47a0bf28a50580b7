// weights::Event to and from the log's form (proto/mooncake/v1/log.proto, kinds REVISION,
// LEASE, TOMBSTONE).
#pragma once

#include "base/status.h"
#include "mooncake/v1/log.pb.h"
#include "weights/events.h"

namespace mooncake::weights {

// The schema of event bodies that this build writes and understands.
inline constexpr uint32_t kEventVersion = 1;

// An abort's code as events and snapshots have it: 0 is CANCELLED, which older ones mean.
uint32_t AbortCodeToLog(Code code);
// CORRUPT: no code that an abort can have.
Result<Code> AbortCodeFromLog(uint32_t number);

// Whether events of this kind belong to this catalogue.
bool HandlesKind(uint32_t kind);

v1::LogEvent EncodeEvent(const Event& event);

// UNSUPPORTED: another catalogue's or an unknown kind, or oldest_reader above kEventVersion.
// CORRUPT: the body is no such event. Never crashes, whatever the bytes.
Result<Event> DecodeEvent(const v1::LogEvent& logged);

}  // namespace mooncake::weights
