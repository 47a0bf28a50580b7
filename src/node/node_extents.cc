// The node's part of ordinary objects: permits and grants checked, then the slab's work.

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "node/node.h"
#include "rpc/extent_limits.h"
#include "rpc/status_proto.h"

namespace mooncake::node {
namespace {

std::vector<ExtentPiece> PiecesOf(const v1::ExtentWrite& write) {
  std::vector<ExtentPiece> pieces;
  pieces.reserve(static_cast<size_t>(write.pieces_size()));
  for (const v1::ExtentWrite::Piece& piece : write.pieces()) {
    pieces.push_back({piece.at(), piece.bytes()});
  }
  return pieces;
}

uint64_t TotalOf(std::span<const ExtentPiece> pieces) {
  uint64_t bytes = 0;
  for (const ExtentPiece& piece : pieces) bytes += piece.bytes;
  return bytes;
}

// Out of the request itself: `content` has the pieces one behind the other.
FillParts FromContent(std::span<const ExtentPiece> pieces, const char* content) {
  return [pieces, content](std::span<const ExtentPart> parts) {
    size_t piece = 0;
    const char* source = content;
    for (const ExtentPart& part : parts) {  // in the order of the pieces
      for (; piece < part.piece; ++piece) source += pieces[piece].bytes;
      std::memcpy(part.target, source, part.bytes);
    }
    return OkStatus();
  };
}

// Out of the memory of the process that asks.
FillParts FromPeer(const v1::ExtentWrite& write, const env::PeerProcess& peer) {
  return [&write, &peer](std::span<const ExtentPart> parts) {
    std::vector<env::PeerRange> ranges;
    ranges.reserve(parts.size());
    for (const ExtentPart& part : parts) {
      const uint64_t address = write.pieces(static_cast<int>(part.piece)).address();
      ranges.push_back({address, part.target, part.bytes});
    }
    return peer.Read(ranges);
  };
}

// The slabs that a request's grants are for, or why they cannot be read.
using Opened = std::map<uint64_t, Result<SlabTable::Use>>;

Status ReadOne(const Opened& slabs, const v1::ExtentRead& read, std::string* content,
               v1::ExtentChecksum* checksum) {
  const auto slab = slabs.find(read.slab_id());
  if (slab == slabs.end()) {
    return InvalidArgument("no grant of the request is for slab " + std::to_string(read.slab_id()));
  }
  if (!slab->second.ok()) return slab->second.status();
  const ExtentOf extent{read.offset(), read.bytes(), read.object_id()};
  MC_ASSIGN_OR_RETURN(const std::optional<uint64_t> xxh3,
                      (*slab->second)->Read(extent, read.from(), read.count(), content));
  if (xxh3) checksum->set_xxh3(*xxh3);
  return OkStatus();
}

}  // namespace

Result<env::UniqueFd> Node::OpenSlab(const v1::Grant& grant) {
  MC_ASSIGN_OR_RETURN(const model::Grant checked, CheckSlabGrant(grant));
  return slabs_->OpenToRead(checked.arena_id.value, checked.tenant_id, checked.arena_bytes);
}

Result<model::Grant> Node::CheckSlabGrant(const v1::Grant& grant) const {
  MC_RETURN_IF_ERROR(CheckJoined());
  MC_ASSIGN_OR_RETURN(model::Grant checked,
                      CheckGrant(authority_, grant, model::Access::kSlabRead));
  if (checked.import_id.value != kSlabImport) {
    return InvalidArgument("a slab is of import 0, the grant is for import " +
                           std::to_string(checked.import_id.value));
  }
  return checked;
}

Status Node::WriteExtent(const v1::ExtentWrite& write, std::span<const ExtentPiece> pieces,
                         const FillParts& fill, const env::Deadline& turn) {
  MC_ASSIGN_OR_RETURN(const model::ExtentPermit permit, CheckPermit(authority_, write.permit()));
  const ExtentOf extent{permit.offset, permit.bytes, permit.object_id.value};
  // Before a slab is made for it.
  MC_RETURN_IF_ERROR(CheckExtent(extent, permit.slab_bytes));
  MC_ASSIGN_OR_RETURN(const SlabTable::Use slab,
                      slabs_->Enter(permit.slab_id.value, permit.tenant_id, permit.slab_bytes,
                                    /*make=*/true));
  ExtentFill wanted{
      .pieces = pieces, .last = write.last(), .xxh3 = {}, .zero_rest = write.zero_rest()};
  if (write.has_xxh3()) wanted.xxh3 = write.xxh3();
  return slab->Write(extent, wanted, fill, turn);
}

Result<std::vector<Status>> Node::WriteExtents(const v1::WriteExtents& request,
                                               const env::PeerProcess* peer) {
  MC_RETURN_IF_ERROR(CheckJoined());
  MC_RETURN_IF_ERROR(rpc::CheckExtentWrites(request));
  if (request.pull() && peer == nullptr) {
    return Unsupported("node " + node_id() +
                       " cannot read the memory of who asks: send the content");
  }
  std::vector<Status> results;
  results.reserve(static_cast<size_t>(request.writes_size()));
  const char* content = request.content().data();
  // Many busy extents hold the request up no longer than one.
  const env::Deadline turn = env::Deadline::AfterMs(Slab::kTurnMs);
  for (const v1::ExtentWrite& write : request.writes()) {
    const std::vector<ExtentPiece> pieces = PiecesOf(write);
    if (request.pull()) {
      results.push_back(WriteExtent(write, pieces, FromPeer(write, *peer), turn));
      // What the kernel forbids once it forbids always.
      if (results.back().code() == Code::kUnsupported) return results.back();
      continue;
    }
    results.push_back(WriteExtent(write, pieces, FromContent(pieces, content), turn));
    content += TotalOf(pieces);
  }
  return results;
}

Result<v1::NodeReply> Node::ReadExtents(const v1::ReadExtents& request) {
  MC_RETURN_IF_ERROR(rpc::CheckExtentReads(request));
  Opened slabs;
  for (const v1::Grant& grant : request.grants()) {
    MC_ASSIGN_OR_RETURN(const model::Grant checked, CheckSlabGrant(grant));
    slabs.emplace(checked.arena_id.value,
                  slabs_->Enter(checked.arena_id.value, checked.tenant_id, checked.arena_bytes,
                                /*make=*/false));
  }
  v1::NodeReply reply;
  uint64_t total = 0;
  for (const v1::ExtentRead& read : request.reads()) total += read.count();
  // Not more than it can hold, whatever the reads say: most of them may be refused.
  reply.mutable_content()->reserve(std::min(total, arenas_->used_bytes()));
  for (const v1::ExtentRead& read : request.reads()) {
    v1::ExtentChecksum* checksum = reply.add_checksums();
    rpc::SetStatus(reply.add_results(), ReadOne(slabs, read, reply.mutable_content(), checksum));
  }
  return reply;
}

}  // namespace mooncake::node
