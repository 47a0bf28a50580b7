// The frame of every logged event: kind, version of its body, the oldest reader that understands
// it. The bodies belong to the catalogues.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "mooncake/v1/log.pb.h"

namespace mooncake::codec {

// An event whose body readers of `version` and later understand.
template <class Body>
v1::LogEvent SealEvent(v1::EventKind kind, uint32_t version, const Body& body) {
  v1::LogEvent logged;
  logged.set_kind(kind);
  logged.set_version(version);
  logged.set_oldest_reader(version);
  body.SerializeToString(logged.mutable_body());
  return logged;
}

// UNSUPPORTED: the event needs a later reader than one of `version`.
Status CheckReader(const v1::LogEvent& logged, uint32_t version);

}  // namespace mooncake::codec
