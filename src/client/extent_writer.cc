#include "client/extent_writer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "env/peer_memory.h"
#include "rpc/status_proto.h"

namespace mooncake::client {
namespace {

// What is smaller in all travels in the request: a pull would cost the node a system call more.
constexpr uint64_t kInlineBytes = uint64_t{64} << 10;
// Of one request; a pull of this many bytes takes well under a second.
constexpr uint64_t kPullBytesMax = uint64_t{256} << 20;
constexpr int kWritesMax = 1024;
// A node that cannot be reached has most likely lost what it holds, and the put is put elsewhere
// sooner when it fails soon.
constexpr int64_t kNodeRetryMs = 200;
constexpr int kPiecesMax = 8192;

// How far the writes of one node have come.
struct Cursor {
  size_t fill = 0;
  size_t piece = 0;
  uint64_t piece_at = 0;  // done of the piece
  uint64_t fill_at = 0;   // done of the fill
};

// The writes of one node.
class NodeFills {
 public:
  NodeFills(ObjectSession& session, const v1::NodeAddress& node) : session_(session), node_(node) {}

  void Add(ExtentFill* fill) {
    fills_.push_back(fill);
    for (const ConstPiece& piece : fill->pieces) bytes_ += piece.bytes;
  }

  void Run() {
    const bool pull = env::PeerProcess::Possible() && session_.Shares(node_) &&
                      bytes_ > kInlineBytes && !session_.without_pull.Has(node_.instance_id());
    Write(pull);
    if (!pull) return;
    // Memory of devices can be used by its process and not by another: that goes by content.
    std::erase_if(fills_, [](const ExtentFill* fill) {
      return fill->status.code() != Code::kInvalidArgument;
    });
    for (ExtentFill* fill : fills_) fill->status = OkStatus();
    Write(/*pull=*/false);
  }

 private:
  void Write(bool pull) {
    for (Cursor at; at.fill < fills_.size();) {
      Cursor next;
      Result<std::vector<Status>> written = Send(at, pull, &next);
      if (pull && written.status().code() == Code::kUnsupported) {
        session_.without_pull.Add(node_.instance_id());
        pull = false;
        continue;
      }
      if (!written.ok()) return Fail(at, written.status());
      for (size_t i = 0; i < written->size(); ++i) {
        Record(*fills_[at.fill + i], (*written)[i]);
      }
      at = next;
      // Nothing more of one that failed.
      if (at.fill_at > 0 && !fills_[at.fill]->status.ok()) at = {.fill = at.fill + 1};
    }
  }

  static void Record(ExtentFill& fill, const Status& status) {
    if (fill.status.ok()) fill.status = status;
  }
  void Fail(const Cursor& at, const Status& status) {
    for (size_t i = at.fill; i < fills_.size(); ++i) Record(*fills_[i], status);
  }

  // One request, as large as it may be. One Status per write of it, which are of fills_[at.fill]
  // and those after it.
  Result<std::vector<Status>> Send(const Cursor& at, bool pull, Cursor* next) {
    const rpc::CallBounds bounds = session_.Limits().Bounds();
    const CallLimits limits{std::min(session_.options.retry_ms, kNodeRetryMs), {}};
    std::vector<Status> results;
    int writes = 0;
    const Status sent = Repeat(limits, [&]() -> Status {
      *next = at;
      v1::WriteExtents request = MakeRequest(next, pull);
      writes = request.writes_size();
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel,
                          session_.nodes.Get(node_, bounds));
      MC_ASSIGN_OR_RETURN(results, channel->WriteExtents(std::move(request), bounds));
      return OkStatus();
    });
    if (!sent.ok()) return sent.WithContext("node " + node_.node_id());
    if (results.size() != static_cast<size_t>(writes)) {
      return Internal("node " + node_.node_id() + ": expected the results of " +
                      std::to_string(writes) + " writes, got " + std::to_string(results.size()));
    }
    for (Status& status : results) status = status.WithContext("node " + node_.node_id());
    return results;
  }

  v1::WriteExtents MakeRequest(Cursor* at, bool pull) const {
    v1::WriteExtents request;
    request.set_pull(pull);
    uint64_t room = pull ? kPullBytesMax : session_.options.chunk_bytes;
    if (!pull) request.mutable_content()->reserve(std::min(room, bytes_));
    int pieces = 0;
    while (at->fill < fills_.size() && room > 0 && request.writes_size() < kWritesMax &&
           pieces < kPiecesMax) {
      const ExtentFill& fill = *fills_[at->fill];
      v1::ExtentWrite* write = request.add_writes();
      *write->mutable_permit() = fill.permit;
      while (at->piece < fill.pieces.size() && room > 0 && pieces < kPiecesMax) {
        const ConstPiece& piece = fill.pieces[at->piece];
        const uint64_t take = std::min(room, piece.bytes - at->piece_at);
        if (take > 0) {
          const char* begin = static_cast<const char*>(piece.address) + at->piece_at;
          v1::ExtentWrite::Piece* part = write->add_pieces();
          part->set_at(fill.at + at->fill_at);
          part->set_bytes(take);
          if (pull) {
            part->set_address(reinterpret_cast<uint64_t>(begin));
          } else {
            request.mutable_content()->append(begin, take);
          }
          ++pieces;
        }
        room -= take;
        at->piece_at += take;
        at->fill_at += take;
        if (at->piece_at < piece.bytes) break;
        ++at->piece;
        at->piece_at = 0;
      }
      if (at->piece < fill.pieces.size()) break;  // goes on in the next request
      write->set_last(fill.last);
      if (fill.last && fill.xxh3.has_value()) write->set_xxh3(*fill.xxh3);
      *at = {.fill = at->fill + 1};
    }
    return request;
  }

  ObjectSession& session_;
  const v1::NodeAddress& node_;
  std::vector<ExtentFill*> fills_;
  uint64_t bytes_ = 0;
};

}  // namespace

void WriteExtents(ObjectSession& session, std::span<ExtentFill> fills) {
  std::map<std::string, NodeFills> by_instance;
  for (ExtentFill& fill : fills) {
    by_instance.try_emplace(fill.node->instance_id(), session, *fill.node).first->second.Add(&fill);
  }
  std::vector<NodeFills*> nodes;
  nodes.reserve(by_instance.size());
  for (auto& [instance_id, node] : by_instance) nodes.push_back(&node);
  // Every failure is its fill's own.
  const Status done = session.pool.Run(nodes.size(), [&](uint64_t i, transfer::Staging&) {
    nodes[i]->Run();
    return OkStatus();
  });
  MC_CHECK(done.ok());
}

}  // namespace mooncake::client
