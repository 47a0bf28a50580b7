// Status on the wire: the code's number and the message.
#pragma once

#include "base/status.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::rpc {

// A number that this program does not know is INTERNAL, with the number in the message.
inline Status StatusFromProto(const v1::StatusProto& proto) {
  if (proto.code() == 0) return OkStatus();
  if (proto.code() > kCodeMax) {
    return Internal("unknown status code " + std::to_string(proto.code()) + ": " + proto.message());
  }
  return Status(static_cast<Code>(proto.code()), proto.message());
}

inline void SetStatus(v1::StatusProto* proto, const Status& status) {
  proto->set_code(static_cast<uint32_t>(status.code()));
  proto->set_message(status.message());
}

}  // namespace mooncake::rpc
