#include "node/slab.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/probe.h"

namespace mooncake::node {
namespace {

using transfer::ExtentHeader;
using transfer::kExtentAlignment;

constexpr uint64_t kHeaderBytes = sizeof(ExtentHeader);

uint64_t EndOf(uint64_t offset, uint64_t payload_bytes) {
  return offset + kHeaderBytes + payload_bytes;
}

std::string Text(const ExtentOf& extent) {
  return "object " + std::to_string(extent.object_id) + " at " + std::to_string(extent.offset);
}

std::string Text(const ExtentPiece& piece) {
  return "[" + std::to_string(piece.at) + ", +" + std::to_string(piece.bytes) + ")";
}

Status Overlap(const ExtentPiece& piece, const ExtentPiece& other) {
  return InvalidArgument("the piece " + Text(piece) + " overlaps the piece " + Text(other));
}

bool ByPlace(const ExtentPiece& a, const ExtentPiece& b) { return a.at < b.at; }

// Adds what was filled, keeping `covered` in order.
void Cover(std::span<const ExtentPart> parts, std::span<const ExtentPiece> pieces,
           std::vector<ExtentPiece>* covered) {
  const auto old = static_cast<std::ptrdiff_t>(covered->size());
  for (const ExtentPart& part : parts) covered->push_back(pieces[part.piece]);
  std::sort(covered->begin() + old, covered->end(), &ByPlace);
  std::inplace_merge(covered->begin(), covered->begin() + old, covered->end(), &ByPlace);
}

// Behind this, no store is seen before those ahead of it: not by whoever maps the memory, and not
// stores that go past the caches either, which a release fence does not order.
void StoreFence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

Status FillZeros(std::span<const ExtentPart> parts) {
  for (const ExtentPart& part : parts) std::memset(part.target, 0, part.bytes);
  return OkStatus();
}

}  // namespace

Status CheckExtent(const ExtentOf& extent, uint64_t slab_bytes) {
  if (extent.object_id == 0) return InvalidArgument("an extent is of object 1 or above, got 0");
  if (extent.offset % kExtentAlignment != 0) {
    return InvalidArgument(Text(extent) + ": extents begin at multiples of " +
                           std::to_string(kExtentAlignment));
  }
  const bool fits = extent.offset <= slab_bytes && slab_bytes - extent.offset > kHeaderBytes &&
                    extent.bytes <= slab_bytes - extent.offset - kHeaderBytes;
  if (extent.bytes == 0 || !fits) {
    return InvalidArgument(Text(extent) + ": a header of " + std::to_string(kHeaderBytes) +
                           " bytes and a payload of " + std::to_string(extent.bytes) +
                           " do not lie in a slab of " + std::to_string(slab_bytes));
  }
  return OkStatus();
}

Slab::Slab(env::Mapping memory, std::optional<ExtentIndex> index)
    : memory_(std::move(memory)), index_(std::move(index)) {
  if (index_) Adopt();
}

ExtentHeader& Slab::HeaderAt(uint64_t offset) const {
  return *reinterpret_cast<ExtentHeader*>(memory_.data() + offset);
}

std::byte* Slab::PayloadAt(uint64_t offset) const { return memory_.data() + offset + kHeaderBytes; }

// An extent whose filling a dead process began has object_id 0: its permit died with that process.
void Slab::Adopt() {
  std::vector<uint64_t> of_nobody;
  index_->ForEach([&](uint64_t offset) {
    ExtentOf found{.offset = offset};
    const bool has_header = offset < bytes() && bytes() - offset >= kHeaderBytes;
    if (has_header) {
      found.object_id = HeaderAt(offset).object_id.load(std::memory_order_acquire);
      found.bytes = HeaderAt(offset).payload_bytes;
    }
    const bool whole =
        has_header && found.object_id != 0 && HeaderAt(offset).magic == ExtentHeader::kMagic &&
        CheckExtent(found, bytes()).ok() && FirstOverlapping(offset) == extents_.end();
    if (!whole) {
      of_nobody.push_back(offset);
      if (has_header) HeaderAt(offset).object_id.store(0, std::memory_order_release);
      return;
    }
    Extent& extent = extents_[offset];
    extent.bytes = found.bytes;
    extent.object_id = found.object_id;
  });
  for (const uint64_t offset : of_nobody) index_->Clear(offset);
}

void Slab::GiveUpAll() {
  std::lock_guard lock(mutex_);
  for (auto& [offset, extent] : extents_) {
    HeaderAt(offset).object_id.store(0, std::memory_order_release);
    extent.given_up = true;
  }
  StoreFence();
}

size_t Slab::extent_count() const {
  std::lock_guard lock(mutex_);
  return extents_.size();
}

Status Slab::Sync() const {
  std::lock_guard lock(mutex_);
  return index_ ? index_->Sync() : OkStatus();
}

Slab::Extents::iterator Slab::FirstOverlapping(uint64_t offset) {
  auto at = extents_.upper_bound(offset);
  if (at != extents_.begin()) {
    const auto before = std::prev(at);
    if (EndOf(before->first, before->second.bytes) > offset) at = before;
  }
  return at;
}

Status Slab::GiveUpOlder(const ExtentOf& extent, bool* busy) {
  const uint64_t end = EndOf(extent.offset, extent.bytes);
  const auto first = FirstOverlapping(extent.offset);
  for (auto at = first; at != extents_.end() && at->first < end; ++at) {
    const Extent& other = at->second;
    if (other.object_id > extent.object_id) {
      MC_PROBE("node.late_writer");
      return NotFound(Text(extent) + ": the extent is object " + std::to_string(other.object_id) +
                      "'s");
    }
    if (other.object_id != extent.object_id) continue;
    if (other.given_up) return NotFound(Text(extent) + ": a younger object waits for the extent");
    if (at->first != extent.offset || other.bytes != extent.bytes) {
      return InvalidArgument(Text(extent) + " of " + std::to_string(extent.bytes) +
                             " bytes: the object is at " + std::to_string(at->first) + " with " +
                             std::to_string(other.bytes) + " bytes");
    }
  }
  *busy = false;
  for (auto at = first; at != extents_.end() && at->first < end; ++at) {
    Extent& other = at->second;
    const bool own = other.object_id == extent.object_id;
    // Its own readers are in nobody's way: they read what does not change any more.
    *busy = *busy || other.is_filled() || (!own && other.readers > 0);
    if (own || other.given_up) continue;
    HeaderAt(at->first).object_id.store(0, std::memory_order_release);
    other.given_up = true;
  }
  return OkStatus();
}

Result<Slab::Extent*> Slab::Claim(Lock& lock, const ExtentOf& extent, const env::Deadline& turn) {
  for (;;) {
    bool busy = false;
    MC_RETURN_IF_ERROR(GiveUpOlder(extent, &busy));
    if (!busy) break;
    MC_PROBE("node.extent_busy");
    if (turn.Expired()) return Busy(Text(extent) + ": what it overwrites stayed in use");
    changed_.wait_for(lock, std::chrono::milliseconds(turn.RemainingMs()));
  }
  const auto own = extents_.find(extent.offset);
  if (own != extents_.end() && own->second.object_id == extent.object_id) return &own->second;
  Begin(extent);
  return &extents_.at(extent.offset);
}

// Nothing that it overlaps has users, and all of it was given up.
void Slab::Begin(const ExtentOf& extent) {
  const uint64_t end = EndOf(extent.offset, extent.bytes);
  StoreFence();
  auto at = FirstOverlapping(extent.offset);
  while (at != extents_.end() && at->first < end) {
    if (index_) index_->Clear(at->first);
    at = extents_.erase(at);
  }
  ExtentHeader& header = HeaderAt(extent.offset);
  header.object_id.store(0, std::memory_order_relaxed);
  StoreFence();
  header.payload_bytes = extent.bytes;
  header.xxh3 = 0;
  header.magic = ExtentHeader::kMagic;
  header.flags = 0;
  std::fill(std::begin(header.zeros), std::end(header.zeros), 0);
  StoreFence();
  if (index_) index_->Set(extent.offset);
  Extent& made = extents_[extent.offset];
  made.bytes = extent.bytes;
  made.object_id = extent.object_id;
  made.filling = std::make_unique<Filling>();
}

Result<std::vector<ExtentPart>> Slab::PartsToFill(const Filling& filling, uint64_t payload_bytes,
                                                  std::span<const ExtentPiece> pieces,
                                                  std::byte* payload) {
  std::vector<ExtentPart> parts;
  std::vector<ExtentPiece> fresh;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ExtentPiece& piece = pieces[i];
    if (piece.at > payload_bytes || piece.bytes > payload_bytes - piece.at) {
      return InvalidArgument("the piece " + Text(piece) + " leaves the payload of " +
                             std::to_string(payload_bytes) + " bytes");
    }
    if (piece.bytes == 0) continue;
    const auto next =
        std::lower_bound(filling.covered.begin(), filling.covered.end(), piece, &ByPlace);
    if (next != filling.covered.end() && next->at < piece.at + piece.bytes) {
      if (next->at == piece.at && next->bytes == piece.bytes) continue;  // a repetition
      return Overlap(piece, *next);
    }
    if (next != filling.covered.begin() &&
        std::prev(next)->at + std::prev(next)->bytes > piece.at) {
      return Overlap(piece, *std::prev(next));
    }
    parts.push_back({i, payload + piece.at, piece.bytes});
    fresh.push_back(piece);
  }
  std::sort(fresh.begin(), fresh.end(), &ByPlace);
  for (size_t i = 1; i < fresh.size(); ++i) {
    if (fresh[i - 1].at + fresh[i - 1].bytes > fresh[i].at) return Overlap(fresh[i], fresh[i - 1]);
  }
  if (filling.covered.size() + fresh.size() > kPiecesMax) {
    return InvalidArgument("an extent comes in at most " + std::to_string(kPiecesMax) +
                           " pieces, got " + std::to_string(filling.covered.size() + fresh.size()));
  }
  return parts;
}

Status Slab::Write(const ExtentOf& extent, const ExtentFill& wanted, const FillParts& fill,
                   const env::Deadline& turn) {
  MC_RETURN_IF_ERROR(CheckExtent(extent, bytes()));
  Lock lock(mutex_);
  MC_ASSIGN_OR_RETURN(Extent* const claimed, Claim(lock, extent, turn));
  if (claimed->filling == nullptr) return OkStatus();  // whole: a repetition
  Filling& filling = *claimed->filling;
  MC_ASSIGN_OR_RETURN(const std::vector<ExtentPart> parts,
                      PartsToFill(filling, extent.bytes, wanted.pieces, PayloadAt(extent.offset)));
  MC_RETURN_IF_ERROR(Fill(lock, extent, *claimed, parts, fill));
  Cover(parts, wanted.pieces, &filling.covered);
  if (!wanted.last) return OkStatus();
  if (wanted.zero_rest) {
    const std::vector<ExtentPiece> gaps = GapsOf(filling, extent.bytes);
    std::vector<ExtentPart> zeros;
    for (size_t i = 0; i < gaps.size(); ++i) {
      zeros.push_back({i, PayloadAt(extent.offset) + gaps[i].at, gaps[i].bytes});
    }
    MC_RETURN_IF_ERROR(Fill(lock, extent, *claimed, zeros, &FillZeros));
    Cover(zeros, gaps, &filling.covered);
  }
  return Finish(extent.offset, *claimed, wanted);
}

Status Slab::Fill(Lock& lock, const ExtentOf& extent, Extent& claimed,
                  std::span<const ExtentPart> parts, const FillParts& fill) {
  if (parts.empty()) return OkStatus();
  // From here to its end nobody else changes the extent, nor takes it out of the map.
  claimed.filling->running = true;
  lock.unlock();
  Status filled = fill(parts);
  StoreFence();
  lock.lock();
  claimed.filling->running = false;
  changed_.notify_all();
  if (claimed.given_up) {
    MC_PROBE("node.overtaken_writer");
    return NotFound(Text(extent) + ": a younger object got the extent meanwhile");
  }
  return filled;
}

std::vector<ExtentPiece> Slab::GapsOf(const Filling& filling, uint64_t payload_bytes) {
  std::vector<ExtentPiece> gaps;
  uint64_t at = 0;
  for (const ExtentPiece& piece : filling.covered) {
    if (piece.at > at) gaps.push_back({at, piece.at - at});
    at = piece.at + piece.bytes;
  }
  if (at < payload_bytes) gaps.push_back({at, payload_bytes - at});
  return gaps;
}

Status Slab::Finish(uint64_t offset, Extent& extent, const ExtentFill& wanted) {
  // They never overlap, so that only all of it adds up to its size.
  uint64_t covered = 0;
  for (const ExtentPiece& piece : extent.filling->covered) covered += piece.bytes;
  if (covered != extent.bytes) {
    return InvalidArgument("object " + std::to_string(extent.object_id) + " at " +
                           std::to_string(offset) + ": expected all " +
                           std::to_string(extent.bytes) + " bytes with the last piece, got " +
                           std::to_string(covered));
  }
  ExtentHeader& header = HeaderAt(offset);
  if (wanted.xxh3) {
    header.xxh3 = *wanted.xxh3;
    header.flags = ExtentHeader::kHasChecksum;
  }
  StoreFence();
  header.object_id.store(extent.object_id, std::memory_order_release);
  extent.filling.reset();
  return OkStatus();
}

Result<std::optional<uint64_t>> Slab::Read(const ExtentOf& extent, uint64_t from, uint64_t count,
                                           std::string* content) {
  Lock lock(mutex_);
  const auto found = extents_.find(extent.offset);
  if (found == extents_.end() || found->second.object_id != extent.object_id ||
      found->second.given_up || found->second.filling != nullptr) {
    return NotFound(Text(extent) + ": the extent holds another object, or none");
  }
  Extent& held = found->second;
  if (held.bytes != extent.bytes) {
    return InvalidArgument(Text(extent) + " has " + std::to_string(held.bytes) +
                           " bytes, the reader expects " + std::to_string(extent.bytes));
  }
  if (from > held.bytes || count > held.bytes - from) {
    return InvalidArgument(Text(extent) + ": the range " + Text(ExtentPiece{from, count}) +
                           " leaves its " + std::to_string(held.bytes) + " bytes");
  }
  const ExtentHeader& header = HeaderAt(extent.offset);
  std::optional<uint64_t> xxh3;
  if ((header.flags & ExtentHeader::kHasChecksum) != 0) xxh3 = header.xxh3;
  ++held.readers;
  lock.unlock();
  content->append(reinterpret_cast<const char*>(PayloadAt(extent.offset) + from), count);
  lock.lock();
  --held.readers;
  changed_.notify_all();
  return xxh3;
}

}  // namespace mooncake::node
