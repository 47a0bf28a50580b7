#include "client/replica_reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "rpc/status_proto.h"
#include "transfer/copy_kernels.h"
#include "transfer/extent_header.h"

namespace mooncake::client {
namespace {

using transfer::ExtentHeader;
using Outcome = ReplicaRead::Outcome;

// Work of one thread at a time: many small reads, or a part of a large one.
constexpr uint64_t kPartBytes = uint64_t{2} << 20;
// What is hashed and then copied while it is in the cache.
constexpr uint64_t kBlockBytes = uint64_t{128} << 10;
// From here on targets are written past the cache.
constexpr uint64_t kStreamBytesMin = uint64_t{4} << 20;
constexpr int kReadsMax = 1024;  // of one ReadExtents

void Set(ReplicaRead& read, Outcome outcome, Status status) {
  read.outcome = outcome;
  read.status = std::move(status);
}

std::string ChecksumText(uint64_t xxh3) {
  std::string bytes(8, 0);
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(xxh3 >> (56 - 8 * i));
  return HexOf(bytes);
}

void JudgeChecksum(ReplicaRead& read, uint64_t expected, uint64_t got) {
  if (expected == got) return Set(read, Outcome::kRead, OkStatus());
  Set(read, Outcome::kDamaged,
      Corrupt("node " + read.node->node_id() + ": expected payload checksum " +
              ChecksumText(expected) + ", got " + ChecksumText(got)));
}

uint64_t BytesOf(const ReplicaRead& read) {
  uint64_t bytes = 0;
  for (const ReadSegment& segment : read.segments) bytes += segment.bytes;
  return bytes;
}

// ---- this host: mapped slabs ----

// A read whose slab is mapped and whose header was right when it began.
struct MappedRead {
  ReplicaRead* read = nullptr;
  std::shared_ptr<const env::Mapping> slab;
  const ExtentHeader* header = nullptr;
  const std::byte* payload = nullptr;
  uint64_t xxh3 = 0;  // of what was read, when it is to be verified
};

// Part of the segments of one read, or all of several.
struct Part {
  size_t begin = 0;  // reads [begin, end)
  size_t end = 0;
  // Of a large read alone: its segment's bytes [from, from + bytes).
  const ReadSegment* segment = nullptr;
  uint64_t from = 0;
  uint64_t bytes = 0;
};

void Copy(std::byte* target, const std::byte* source, uint64_t bytes, bool stream) {
  if (!stream || bytes < 1024) {
    std::memcpy(target, source, bytes);
    return;
  }
  transfer::KernelsOfThisCpu().stream({.source = source, .target = target, .inner_bytes = bytes});
}

class MappedReads {
 public:
  explicit MappedReads(ObjectSession& session) : session_(session) {}

  // False: the node hands out no slabs, to be asked by ReadExtents.
  bool Add(ReplicaRead* read, const rpc::CallBounds& bounds) {
    Result<std::shared_ptr<const env::Mapping>> slab =
        session_.slabs.Map(*read->grant, *read->node, bounds);
    if (slab.status().code() == Code::kUnsupported) {
      session_.without_slabs.Add(read->node->instance_id());
      return false;
    }
    if (!slab.ok()) {
      const bool gone = slab.status().code() == Code::kNotFound;
      Set(*read, gone ? Outcome::kGone : Outcome::kUnreachable,
          slab.status().WithContext("node " + read->node->node_id()));
      return true;
    }
    MappedRead mapped{.read = read, .slab = *std::move(slab)};
    if (const Status begun = Begin(mapped); !begun.ok()) {
      Set(*read, begun.code() == Code::kNotFound ? Outcome::kGone : Outcome::kUnreachable, begun);
      return true;
    }
    bytes_ += BytesOf(*read);
    reads_.push_back(std::move(mapped));
    return true;
  }

  void Run() {
    const std::vector<Part> parts = Cut();
    const bool stream = bytes_ >= kStreamBytesMin;
    const Status done = session_.pool.Run(parts.size(), [&](uint64_t i, transfer::Staging&) {
      Do(parts[i], stream);
      return OkStatus();
    });
    MC_CHECK(done.ok());
    for (MappedRead& mapped : reads_) End(mapped);
  }

 private:
  // Finds header and payload. NOT_FOUND: it is not the object's.
  static Status Begin(MappedRead& mapped) {
    const v1::SlabExtent& extent = *mapped.read->extent;
    const uint64_t slab_bytes = mapped.slab->size();
    if (extent.offset() % transfer::kExtentAlignment != 0 || extent.offset() > slab_bytes ||
        sizeof(ExtentHeader) > slab_bytes - extent.offset() ||
        extent.bytes() > slab_bytes - extent.offset() - sizeof(ExtentHeader)) {
      return Internal("the Master names an extent of " + std::to_string(extent.bytes()) +
                      " bytes at " + std::to_string(extent.offset()) + " of a slab of " +
                      std::to_string(slab_bytes));
    }
    const std::byte* at = mapped.slab->data() + extent.offset();
    mapped.header = reinterpret_cast<const ExtentHeader*>(at);
    mapped.payload = at + sizeof(ExtentHeader);
    if (mapped.header->object_id.load(std::memory_order_acquire) != mapped.read->object_id ||
        mapped.header->magic != ExtentHeader::kMagic ||
        mapped.header->payload_bytes != extent.bytes()) {
      return NotFound("the extent holds another object");
    }
    return OkStatus();
  }

  bool Verifies(const MappedRead& mapped) const {
    return mapped.read->verify && (mapped.header->flags & ExtentHeader::kHasChecksum) != 0;
  }

  // A checksum is of one thread; everything else is cut evenly.
  std::vector<Part> Cut() const {
    std::vector<Part> parts;
    uint64_t room = 0;
    for (size_t i = 0; i < reads_.size(); ++i) {
      const uint64_t bytes = BytesOf(*reads_[i].read);
      if (bytes > kPartBytes && !Verifies(reads_[i])) {
        for (const ReadSegment& segment : reads_[i].read->segments) {
          for (uint64_t at = 0; at < segment.bytes; at += kPartBytes) {
            parts.push_back({i, i + 1, &segment, at, std::min(kPartBytes, segment.bytes - at)});
          }
        }
        room = 0;
        continue;
      }
      if (room < bytes || parts.empty()) {
        parts.push_back({.begin = i, .end = i});
        room = std::max(kPartBytes, bytes);
      }
      ++parts.back().end;
      room -= bytes;
    }
    return parts;
  }

  void Do(const Part& part, bool stream) {
    if (part.segment != nullptr) {
      Copy(part.segment->target + part.from,
           reads_[part.begin].payload + part.segment->from + part.from, part.bytes, stream);
    } else {
      for (size_t i = part.begin; i < part.end; ++i) CopyWhole(reads_[i], stream);
    }
    if (stream) transfer::FenceStreams();
  }

  void CopyWhole(MappedRead& mapped, bool stream) const {
    const std::span<const ReadSegment> segments = mapped.read->segments;
    if (!Verifies(mapped)) {
      for (const ReadSegment& segment : segments) {
        Copy(segment.target, mapped.payload + segment.from, segment.bytes, stream);
      }
      return;
    }
    if (segments.size() == 1 && segments[0].bytes <= kBlockBytes) {
      mapped.xxh3 = Xxh3Of(mapped.payload + segments[0].from, segments[0].bytes);
      Copy(segments[0].target, mapped.payload + segments[0].from, segments[0].bytes, stream);
      return;
    }
    Xxh3 hash;
    for (const ReadSegment& segment : segments) {
      for (uint64_t at = 0; at < segment.bytes; at += kBlockBytes) {
        const uint64_t bytes = std::min(kBlockBytes, segment.bytes - at);
        const std::byte* source = mapped.payload + segment.from + at;
        hash.Update(source, bytes);
        Copy(segment.target + at, source, bytes, stream);
      }
    }
    mapped.xxh3 = hash.Value();
  }

  void End(MappedRead& mapped) const {
    ReplicaRead& read = *mapped.read;
    const uint64_t expected = mapped.header->xxh3;
    const bool verifies = Verifies(mapped);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (mapped.header->object_id.load(std::memory_order_relaxed) != read.object_id) {
      return Set(read, Outcome::kGone, NotFound("the extent was given to another object"));
    }
    if (!verifies) return Set(read, Outcome::kRead, OkStatus());
    JudgeChecksum(read, expected, mapped.xxh3);
  }

  ObjectSession& session_;
  std::vector<MappedRead> reads_;
  uint64_t bytes_ = 0;
};

// ---- over a socket ----

// How far the reads of one node have come.
struct Cursor {
  size_t read = 0;
  size_t segment = 0;
  uint64_t at = 0;  // done of the segment
};

struct SocketRead {
  ReplicaRead* read = nullptr;
  Xxh3 hash;
  bool failed = false;
};

// What one ExtentRead asks for: whose it is, and where its bytes go.
struct Wanted {
  SocketRead* of = nullptr;
  uint64_t from = 0;
  uint64_t bytes = 0;
  std::vector<ReadSegment> targets;
  bool last = false;  // the read is whole with this
};

// The reads of one node.
class SocketReads {
 public:
  SocketReads(ObjectSession& session, const v1::NodeAddress& node)
      : session_(session), node_(node) {}

  void Add(ReplicaRead* read) {
    reads_.push_back(std::make_unique<SocketRead>());
    reads_.back()->read = read;
  }

  void Run() {
    for (Cursor at; at.read < reads_.size();) {
      Cursor next = at;
      const std::vector<Wanted> wanted = NextWanted(&next);
      const Result<v1::NodeReply> reply = Ask(wanted);
      if (!reply.ok()) {
        const Status why = reply.status().WithContext("node " + node_.node_id());
        for (size_t i = at.read; i < reads_.size(); ++i) {
          Set(*reads_[i]->read, Outcome::kUnreachable, why);
        }
        return;
      }
      Deliver(wanted, *reply);
      at = next;
      // Nothing more of one that failed.
      if (at.segment + at.at > 0 && reads_[at.read]->failed) at = {.read = at.read + 1};
    }
  }

 private:
  // As much as one reply may carry; segments that are neighbours in the object are one.
  std::vector<Wanted> NextWanted(Cursor* at) const {
    std::vector<Wanted> wanted;
    uint64_t room = session_.options.chunk_bytes;
    while (at->read < reads_.size() && room > 0 && wanted.size() < kReadsMax) {
      const std::span<const ReadSegment> segments = reads_[at->read]->read->segments;
      const ReadSegment& segment = segments[at->segment];
      const uint64_t from = segment.from + at->at;
      const uint64_t take = std::min(room, segment.bytes - at->at);
      SocketRead* of = reads_[at->read].get();
      if (wanted.empty() || wanted.back().of != of ||
          wanted.back().from + wanted.back().bytes != from) {
        wanted.push_back({.of = of, .from = from});
      }
      Wanted& one = wanted.back();
      one.targets.push_back({from, segment.target + at->at, take});
      one.bytes += take;
      room -= take;
      at->at += take;
      if (at->at < segment.bytes) break;
      at->at = 0;
      if (++at->segment < segments.size()) continue;
      one.last = true;
      *at = {.read = at->read + 1};
    }
    return wanted;
  }

  Result<v1::NodeReply> Ask(const std::vector<Wanted>& wanted) {
    v1::ReadExtents request;
    std::map<uint64_t, const v1::Grant*> grants;
    uint64_t bytes = 0;
    for (const Wanted& one : wanted) {
      const ReplicaRead& read = *one.of->read;
      grants[read.extent->slab_id()] = read.grant;
      v1::ExtentRead* asked = request.add_reads();
      asked->set_slab_id(read.extent->slab_id());
      asked->set_offset(read.extent->offset());
      asked->set_object_id(read.object_id);
      asked->set_bytes(read.extent->bytes());
      asked->set_from(one.from);
      asked->set_count(one.bytes);
    }
    for (const auto& [slab_id, grant] : grants) *request.add_grants() = *grant;
    const rpc::CallBounds bounds = session_.Limits().Bounds();
    MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel,
                        session_.nodes.Get(node_, bounds));
    MC_ASSIGN_OR_RETURN(v1::NodeReply reply, channel->ReadExtents(std::move(request), bounds));
    if (reply.results_size() != static_cast<int>(wanted.size())) {
      return Internal("expected the results of " + std::to_string(wanted.size()) + " reads, got " +
                      std::to_string(reply.results_size()));
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (reply.results(static_cast<int>(i)).code() == 0) bytes += wanted[i].bytes;
    }
    if (reply.content().size() != bytes) {
      return Internal("expected " + std::to_string(bytes) + " bytes of content, got " +
                      std::to_string(reply.content().size()));
    }
    return reply;
  }

  void Deliver(const std::vector<Wanted>& wanted, const v1::NodeReply& reply) const {
    const char* content = reply.content().data();
    for (size_t i = 0; i < wanted.size(); ++i) {
      SocketRead& of = *wanted[i].of;
      const Status status = rpc::StatusFromProto(reply.results(static_cast<int>(i)))
                                .WithContext("node " + node_.node_id());
      if (!status.ok()) {
        if (!of.failed) Set(*of.read, OutcomeOf(status.code()), status);
        of.failed = true;
        continue;
      }
      for (const ReadSegment& target : wanted[i].targets) {
        std::memcpy(target.target, content, target.bytes);
        content += target.bytes;
        if (of.read->verify) of.hash.Update(target.target, target.bytes);
      }
      if (!wanted[i].last || of.failed) continue;
      const v1::ExtentChecksum none;
      const v1::ExtentChecksum& checksum = static_cast<int>(i) < reply.checksums_size()
                                               ? reply.checksums(static_cast<int>(i))
                                               : none;
      if (of.read->verify && checksum.has_xxh3()) {
        JudgeChecksum(*of.read, checksum.xxh3(), of.hash.Value());
      } else {
        Set(*of.read, Outcome::kRead, OkStatus());
      }
    }
  }

  static Outcome OutcomeOf(Code code) {
    if (code == Code::kNotFound) return Outcome::kGone;
    return code == Code::kCorrupt ? Outcome::kDamaged : Outcome::kUnreachable;
  }

  ObjectSession& session_;
  const v1::NodeAddress& node_;
  std::vector<std::unique_ptr<SocketRead>> reads_;
};

}  // namespace

void ReadReplicas(ObjectSession& session, std::span<ReplicaRead> reads) {
  const rpc::CallBounds bounds = session.Limits().Bounds();
  MappedReads mapped(session);
  std::map<std::string, SocketReads> by_instance;
  for (ReplicaRead& read : reads) {
    const bool shares =
        session.Shares(*read.node) && !session.without_slabs.Has(read.node->instance_id());
    if (shares && mapped.Add(&read, bounds)) continue;
    by_instance.try_emplace(read.node->instance_id(), session, *read.node).first->second.Add(&read);
  }
  mapped.Run();
  std::vector<SocketReads*> nodes;
  nodes.reserve(by_instance.size());
  for (auto& [instance_id, node] : by_instance) nodes.push_back(&node);
  const Status done = session.pool.Run(nodes.size(), [&](uint64_t i, transfer::Staging&) {
    nodes[i]->Run();
    return OkStatus();
  });
  MC_CHECK(done.ok());
}

}  // namespace mooncake::client
