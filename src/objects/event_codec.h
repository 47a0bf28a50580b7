// objects::Event to and from the log's form (proto/mooncake/v1/log.proto, kinds OBJECT, ARENA,
// NODE).
#pragma once

#include "base/status.h"
#include "mooncake/v1/log.pb.h"
#include "objects/events.h"

namespace mooncake::objects {

// The schema of event bodies that this build writes and understands.
inline constexpr uint32_t kEventVersion = 1;

// Whether events of this kind belong to this catalogue.
bool HandlesKind(uint32_t kind);

v1::LogEvent EncodeEvent(const Event& event);

// UNSUPPORTED: another catalogue's or an unknown kind, or oldest_reader above kEventVersion.
// CORRUPT: the body is no such event. Never crashes, whatever the bytes.
Result<Event> DecodeEvent(const v1::LogEvent& logged);

}  // namespace mooncake::objects
