#include "client/extent_writer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/probe.h"
#include "env/deadline.h"
#include "env/peer_memory.h"
#include "env/sync.h"
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

// The pauses before writes of busy extents are repeated double from here to there.
constexpr int64_t kBusyPauseMsMin = 10;
constexpr int64_t kBusyPauseMsMax = 500;

// How far the writes of one node have come.
struct Cursor {
  size_t fill = 0;
  size_t piece = 0;
  uint64_t piece_at = 0;  // done of the piece
  uint64_t fill_at = 0;   // done of the fill
};

// What one request takes: from `at` on, nothing of fills from `end` on, at most `room` bytes.
struct Portion {
  Cursor at;
  size_t end = 0;
  uint64_t room = UINT64_MAX;
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
    pull_ = env::PeerProcess::Possible() && session_.Shares(node_) && bytes_ > kInlineBytes &&
            !session_.without_pull.Has(node_.instance_id());
    const bool pulled = pull_;
    WriteAll();
    if (!pulled) return;
    // Memory of devices can be used by its process and not by another: that goes by content.
    std::erase_if(fills_, [](const ExtentFill* fill) {
      return fill->status.code() != Code::kInvalidArgument;
    });
    for (ExtentFill* fill : fills_) fill->status = OkStatus();
    pull_ = false;
    WriteAll();
  }

 private:
  void WriteAll() {
    Write({.at = {}, .end = fills_.size()});
    const env::Deadline deadline = env::Deadline::AfterMs(session_.options.retry_ms);
    int64_t pause_ms = kBusyPauseMsMin;
    while (!busy_.empty() && !deadline.Expired()) {
      env::PauseMs(std::min(pause_ms, deadline.RemainingMs()), {});
      pause_ms = std::min(pause_ms * 2, kBusyPauseMsMax);
      for (const Portion& portion : std::exchange(busy_, {})) {
        MC_PROBE("client.extent_busy_again");
        fills_[portion.at.fill]->status = OkStatus();
        Write(portion);
      }
    }
    busy_.clear();  // what they say is BUSY
  }

  // All of `portion`'s fills; `room` is of the first request alone.
  void Write(Portion portion) {
    while (portion.at.fill < portion.end) {
      const Cursor at = portion.at;
      Cursor next;
      Result<std::vector<Status>> written = Send(portion, &next);
      if (pull_ && written.status().code() == Code::kUnsupported) {
        session_.without_pull.Add(node_.instance_id());
        pull_ = false;
        continue;
      }
      if (!written.ok()) return Fail(portion, written.status());
      for (size_t i = 0; i < written->size(); ++i) {
        ExtentFill& fill = *fills_[at.fill + i];
        Record(fill, (*written)[i]);
        if ((*written)[i].code() != Code::kBusy) continue;
        const Cursor begun = i == 0 ? at : Cursor{.fill = at.fill + i};
        const uint64_t end_at = next.fill == begun.fill ? next.fill_at : BytesOf(fill);
        // A write of no bytes ends an extent whose bytes are there.
        busy_.push_back({begun, begun.fill + 1, std::max<uint64_t>(1, end_at - begun.fill_at)});
      }
      portion.at = next;
      portion.room = UINT64_MAX;
      // Nothing more of one that failed.
      if (next.fill_at > 0 && !fills_[next.fill]->status.ok()) portion.at = {.fill = next.fill + 1};
    }
  }

  static uint64_t BytesOf(const ExtentFill& fill) {
    uint64_t bytes = 0;
    for (const ConstPiece& piece : fill.pieces) bytes += piece.bytes;
    return bytes;
  }
  static void Record(ExtentFill& fill, const Status& status) {
    if (fill.status.ok()) fill.status = status;
  }
  void Fail(const Portion& portion, const Status& status) {
    for (size_t i = portion.at.fill; i < portion.end; ++i) Record(*fills_[i], status);
  }

  // One request, as large as it may be, of the portion's begin. One Status per write of it, which
  // are of its first fill and those after it.
  Result<std::vector<Status>> Send(const Portion& portion, Cursor* next) {
    const rpc::CallBounds bounds = session_.Limits().Bounds();
    const CallLimits limits{std::min(session_.options.retry_ms, kNodeRetryMs), {}};
    std::vector<Status> results;
    int writes = 0;
    const Status sent = Repeat(limits, [&]() -> Status {
      *next = portion.at;
      v1::WriteExtents request = MakeRequest(portion, next);
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

  v1::WriteExtents MakeRequest(const Portion& portion, Cursor* at) const {
    v1::WriteExtents request;
    request.set_pull(pull_);
    uint64_t room = std::min(portion.room, pull_ ? kPullBytesMax : session_.options.chunk_bytes);
    if (!pull_) request.mutable_content()->reserve(std::min(room, bytes_));
    int pieces = 0;
    while (at->fill < portion.end && room > 0 && request.writes_size() < kWritesMax &&
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
          if (pull_) {
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
      write->set_zero_rest(fill.last && fill.zero_rest);
      *at = {.fill = at->fill + 1};
    }
    return request;
  }

  ObjectSession& session_;
  const v1::NodeAddress& node_;
  std::vector<ExtentFill*> fills_;
  std::vector<Portion> busy_;  // of fills whose status is BUSY: to be repeated
  uint64_t bytes_ = 0;
  bool pull_ = false;
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
