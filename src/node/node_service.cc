#include "node/node_service.h"

#include <algorithm>

#include "base/log.h"
#include "rpc/status_proto.h"

namespace mooncake::node {
namespace {

Result<Sha256Digest> DigestOf(const std::string& bytes) {
  Sha256Digest digest{};
  if (bytes.size() != digest.size()) {
    return InvalidArgument("sha256: expected " + std::to_string(digest.size()) + " bytes, got " +
                           std::to_string(bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

}  // namespace

Status NodeService::Dispatch(const v1::NodeRequest& request, const rpc::NodePeer& peer,
                             v1::NodeReply* reply, env::UniqueFd* fd_out) {
  switch (request.kind_case()) {
    case v1::NodeRequest::kOpenArena:
    case v1::NodeRequest::kOpenSlab:
      // Before anything is made for it.
      if (!peer.same_host) {
        return Unsupported("the node's memory is mapped by processes of its host alone, and " +
                           peer.name + " is none");
      }
      break;
    default:
      break;
  }
  switch (request.kind_case()) {
    case v1::NodeRequest::kOpenArena: {
      MC_ASSIGN_OR_RETURN(*fd_out, node_.OpenArena(request.open_arena().grant()));
      reply->set_arena_bytes(request.open_arena().grant().arena_bytes());
      return OkStatus();
    }
    case v1::NodeRequest::kWriteMetadata: {
      const v1::WriteMetadata& write = request.write_metadata();
      MC_ASSIGN_OR_RETURN(const Sha256Digest sha256, DigestOf(write.sha256()));
      return node_.WriteMetadataChecked(write.grant(), write.name(), write.content(), sha256);
    }
    case v1::NodeRequest::kReadMetadata: {
      MC_ASSIGN_OR_RETURN(
          *reply->mutable_content(),
          node_.ReadMetadata(request.read_metadata().grant(), request.read_metadata().name()));
      return OkStatus();
    }
    case v1::NodeRequest::kSealImport:
      return node_.SealImport(request.seal_import().grant());
    case v1::NodeRequest::kOpenSlab: {
      MC_ASSIGN_OR_RETURN(*fd_out, node_.OpenSlab(request.open_slab().grant()));
      reply->set_arena_bytes(request.open_slab().grant().arena_bytes());
      return OkStatus();
    }
    case v1::NodeRequest::kWriteExtents: {
      MC_ASSIGN_OR_RETURN(const std::vector<Status> results,
                          node_.WriteExtents(request.write_extents(), peer.process));
      for (const Status& result : results) rpc::SetStatus(reply->add_results(), result);
      return OkStatus();
    }
    case v1::NodeRequest::kReadExtents: {
      MC_ASSIGN_OR_RETURN(*reply, node_.ReadExtents(request.read_extents()));
      return OkStatus();
    }
    case v1::NodeRequest::KIND_NOT_SET:
      break;
  }
  return Unsupported("the request is of no kind that this node knows");
}

v1::NodeReply NodeService::Handle(const v1::NodeRequest& request, const rpc::NodePeer& peer,
                                  env::UniqueFd* fd_out) {
  v1::NodeReply reply;
  const Status status = Dispatch(request, peer, &reply, fd_out);
  if (!status.ok()) {
    Log().info("node {}: refused {}: {}", node_.node_id(), peer.name, status.ToString());
  }
  rpc::SetStatus(reply.mutable_status(), status);
  return reply;
}

}  // namespace mooncake::node
