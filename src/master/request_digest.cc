#include "master/request_digest.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

namespace mooncake::master {

Sha256Digest RequestDigest(std::string_view method, const google::protobuf::MessageLite& request,
                           const v1::CommandId& command) {
  std::string bytes = request.SerializeAsString();
  const size_t command_bytes = command.ByteSizeLong();
  // Tag, length, content.
  const size_t cut =
      1 + google::protobuf::io::CodedOutputStream::VarintSize64(command_bytes) + command_bytes;
  constexpr char kTagOfField1 = 0x0a;
  MC_CHECK(bytes.size() >= cut && bytes[0] == kTagOfField1);
  Sha256 digest;
  digest.Update(method);
  digest.Update("\0", 1);
  digest.Update(std::string_view(bytes).substr(cut));
  return digest.Finish();
}

Status ValidateCommandId(const v1::CommandId& command) {
  const std::string& client_id = command.client_id();
  if (client_id.size() != 32 ||
      client_id.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return InvalidArgument(fmt::format(
        "expected 32 lowercase hex characters as command.client_id, got \"{}\"", client_id));
  }
  if (command.sequence() == 0 || command.acked_below() > command.sequence()) {
    return InvalidArgument(fmt::format(
        "expected command.sequence from 1 and command.acked_below up to it, got {} and {}",
        command.sequence(), command.acked_below()));
  }
  return OkStatus();
}

}  // namespace mooncake::master
