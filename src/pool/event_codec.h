// pool::Event to and from the log's form (proto/mooncake/v1/log.proto, kinds SLAB, PUT, TENANT).
#pragma once

#include <cstdint>

#include "base/status.h"
#include "mooncake/v1/log.pb.h"
#include "pool/catalog.h"
#include "pool/events.h"

namespace mooncake::pool {

// The schema of event bodies that this build writes and understands.
inline constexpr uint32_t kEventVersion = 1;

// Whether events of this kind belong to this catalogue.
bool HandlesKind(uint32_t kind);

v1::LogEvent EncodeEvent(const Event& event);

// UNSUPPORTED: another catalogue's or an unknown kind, or oldest_reader above kEventVersion.
// CORRUPT: the body is no such event. Never crashes, whatever the bytes.
Result<Event> DecodeEvent(const v1::LogEvent& logged);

// The part that the log's and the snapshot's form of an object share.
void ToProto(const NewObject& object, v1::PutEvent::Object* proto);
Result<NewObject> FromProto(const v1::PutEvent::Object& proto);
Result<SoftPin> SoftPinFromNumber(uint32_t number);

}  // namespace mooncake::pool
