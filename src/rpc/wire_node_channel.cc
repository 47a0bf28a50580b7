#include "rpc/wire_node_channel.h"

#include <fmt/format.h>

#include <utility>

#include "base/digest.h"
#include "rpc/extent_limits.h"
#include "rpc/status_proto.h"

namespace mooncake::rpc {

Result<env::UniqueFd> WireNodeChannel::TakeDescriptor(Answer answer, const v1::Grant& grant,
                                                      std::string_view what) const {
  if (answer.reply.arena_bytes() != grant.arena_bytes()) {
    return Corrupt(fmt::format("{}: expected {} {} of {} bytes, got {}", Describe(), what,
                               grant.arena_id(), grant.arena_bytes(), answer.reply.arena_bytes()));
  }
  if (answer.fds.size() != 1) {
    return Internal(fmt::format("{}: expected 1 descriptor with {} {}, got {}", Describe(), what,
                                grant.arena_id(), answer.fds.size()));
  }
  return std::move(answer.fds.front());
}

Result<env::UniqueFd> WireNodeChannel::OpenArena(const v1::Grant& grant, const CallBounds& bounds) {
  v1::NodeRequest request;
  *request.mutable_open_arena()->mutable_grant() = grant;
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&request, bounds));
  return TakeDescriptor(std::move(answer), grant, "arena");
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

Result<env::UniqueFd> WireNodeChannel::OpenSlab(const v1::Grant& grant, const CallBounds& bounds) {
  v1::NodeRequest request;
  *request.mutable_open_slab()->mutable_grant() = grant;
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&request, bounds));
  return TakeDescriptor(std::move(answer), grant, "slab");
}

Result<std::vector<Status>> WireNodeChannel::WriteExtents(v1::WriteExtents request,
                                                          const CallBounds& bounds) {
  MC_RETURN_IF_ERROR(CheckExtentWrites(request));
  const int asked = request.writes_size();
  v1::NodeRequest message;
  *message.mutable_write_extents() = std::move(request);
  MC_ASSIGN_OR_RETURN(const Answer answer, Call(&message, bounds));
  if (answer.reply.results_size() != asked) {
    return Internal(fmt::format("{}: expected {} results of WriteExtents, got {}", Describe(),
                                asked, answer.reply.results_size()));
  }
  std::vector<Status> results;
  results.reserve(static_cast<size_t>(asked));
  for (const v1::StatusProto& result : answer.reply.results()) {
    results.push_back(StatusFromProto(result));
  }
  return results;
}

Result<v1::NodeReply> WireNodeChannel::ReadExtents(v1::ReadExtents request,
                                                   const CallBounds& bounds) {
  MC_RETURN_IF_ERROR(CheckExtentReads(request));
  v1::NodeRequest message;
  *message.mutable_read_extents() = std::move(request);
  MC_ASSIGN_OR_RETURN(Answer answer, Call(&message, bounds));
  MC_RETURN_IF_ERROR(
      CheckExtentsRead(message.read_extents(), answer.reply).WithContext(Describe()));
  return std::move(answer.reply);
}

}  // namespace mooncake::rpc
