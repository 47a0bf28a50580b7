// What makes two requests of one command id the same request.
#pragma once

#include <string_view>

#include "base/digest.h"
#include "base/status.h"
#include "google/protobuf/message_lite.h"
#include "mooncake/v1/master.pb.h"

namespace mooncake::master {

// SHA-256 over the method's name, a zero byte, and the request's canonical bytes without its
// command id (field 1 of every command: it stands first and is cut off).
Sha256Digest RequestDigest(std::string_view method, const google::protobuf::MessageLite& request,
                           const v1::CommandId& command);

// INVALID_ARGUMENT unless the client id is 32 lowercase hex characters, the sequence counts from 1
// and no more than what came before it is acknowledged.
Status ValidateCommandId(const v1::CommandId& command);

}  // namespace mooncake::master
