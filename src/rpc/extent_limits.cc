#include "rpc/extent_limits.h"

#include <fmt/format.h>

#include "rpc/status_proto.h"

namespace mooncake::rpc {
namespace {

Status CheckCount(int count, const char* what) {
  if (count >= 1 && count <= kExtentsPerRequestMax) return OkStatus();
  return InvalidArgument(
      fmt::format("expected 1 to {} {}, got {}", kExtentsPerRequestMax, what, count));
}

// Saturates: the numbers are the caller's.
uint64_t Sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

Status CheckTotal(uint64_t bytes, const char* what) {
  if (bytes <= kExtentContentBytesMax) return OkStatus();
  return InvalidArgument(fmt::format("{} of one request are at most {} bytes, got {}", what,
                                     kExtentContentBytesMax, bytes));
}

}  // namespace

Status CheckExtentWrites(const v1::WriteExtents& request) {
  MC_RETURN_IF_ERROR(CheckCount(request.writes_size(), "writes"));
  if (request.pull()) {
    if (request.content().empty()) return OkStatus();
    return InvalidArgument(
        fmt::format("expected no content beside pull, got {} bytes", request.content().size()));
  }
  uint64_t bytes = 0;
  for (const v1::ExtentWrite& write : request.writes()) {
    for (const v1::ExtentWrite::Piece& piece : write.pieces()) bytes = Sum(bytes, piece.bytes());
  }
  MC_RETURN_IF_ERROR(CheckTotal(bytes, "the pieces"));
  if (bytes == request.content().size()) return OkStatus();
  return InvalidArgument(
      fmt::format("the pieces are {} bytes, the content is {}", bytes, request.content().size()));
}

Status CheckExtentReads(const v1::ReadExtents& request) {
  MC_RETURN_IF_ERROR(CheckCount(request.reads_size(), "reads"));
  uint64_t bytes = 0;
  for (const v1::ExtentRead& read : request.reads()) bytes = Sum(bytes, read.count());
  return CheckTotal(bytes, "the reads");
}

Status CheckExtentsRead(const v1::ReadExtents& request, const v1::NodeReply& reply) {
  if (reply.results_size() != request.reads_size() ||
      reply.checksums_size() != request.reads_size()) {
    return Internal(fmt::format("expected {} results and checksums of ReadExtents, got {} and {}",
                                request.reads_size(), reply.results_size(),
                                reply.checksums_size()));
  }
  uint64_t bytes = 0;
  for (int i = 0; i < request.reads_size(); ++i) {
    if (StatusFromProto(reply.results(i)).ok()) bytes = Sum(bytes, request.reads(i).count());
  }
  if (bytes == reply.content().size()) return OkStatus();
  return Internal(
      fmt::format("expected {} bytes of ReadExtents, got {}", bytes, reply.content().size()));
}

}  // namespace mooncake::rpc
