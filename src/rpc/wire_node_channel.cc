#include "rpc/wire_node_channel.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"

namespace mooncake::rpc {

Result<env::UniqueFd> WireNodeChannel::OpenArena(const v1::Grant& grant, const CallBounds& bounds) {
  v1::NodeRequest request;
  *request.mutable_open_arena()->mutable_grant() = grant;
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&request, bounds));
  if (answer.reply.arena_bytes() != grant.arena_bytes()) {
    return Corrupt(fmt::format("{}: expected arena {} of {} bytes, got {}", Describe(),
                               grant.arena_id(), grant.arena_bytes(), answer.reply.arena_bytes()));
  }
  if (answer.fds.size() != 1) {
    return Internal(fmt::format("{}: expected 1 descriptor with arena {}, got {}", Describe(),
                                grant.arena_id(), answer.fds.size()));
  }
  return std::move(answer.fds.front());
}

Status WireNodeChannel::WriteMetadata(const v1::Grant& grant, std::string_view name,
                                      std::string_view content, const CallBounds& bounds) {
  v1::NodeRequest request;
  v1::WriteMetadata* write = request.mutable_write_metadata();
  *write->mutable_grant() = grant;
  write->set_name(name.data(), name.size());
  write->set_content(content.data(), content.size());
  const Sha256Digest sha256 = Sha256Of(content);
  write->set_sha256(sha256.data(), sha256.size());
  return Call(&request, bounds).status();
}

Result<std::string> WireNodeChannel::ReadMetadata(const v1::Grant& grant, std::string_view name,
                                                  const CallBounds& bounds) {
  v1::NodeRequest request;
  *request.mutable_read_metadata()->mutable_grant() = grant;
  request.mutable_read_metadata()->set_name(name.data(), name.size());
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&request, bounds));
  return std::move(*answer.reply.mutable_content());
}

Status WireNodeChannel::SealImport(const v1::Grant& grant, const CallBounds& bounds) {
  v1::NodeRequest request;
  *request.mutable_seal_import()->mutable_grant() = grant;
  return Call(&request, bounds).status();
}

}  // namespace mooncake::rpc
