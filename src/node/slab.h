// One slab: the memory that ordinary objects of one tenant lie in, and the extents of it that this
// node has filled.
//
// Owns the read-write mapping (clients map the same memory read-only) and the map of extents; never
// decides where an extent goes, nor who may fill it. What lies in front of each payload, and how a
// reader that maps the slab tells that it is still its object's, is transfer/extent_header.h.
//
// A write fills one extent, in one call or several:
//   1. extents that it overlaps must be of older objects (ids only grow): it is a late writer
//      otherwise, and refused before anything changes;
//   2. the older ones are given up: object_id of their headers is set to 0, nobody here begins to
//      read them, and whoever is reading or filling one is waited for;
//   3. the new header is written with object_id 0, and the pieces are copied, without the lock;
//   4. when the last call says so and every byte of the payload was covered exactly once (with
//      zero_rest: at most once, and the others are zeros), object_id is set. From here on the
//      extent never changes until it is given up: repeated calls are answered and change nothing.
// Invariants: extents of the map never overlap; a byte of an extent is copied once (a repeated
// piece is skipped), and by one call at a time; a header has an object_id only while its extent is
// whole and in the map. Threads: every method from any thread. Different extents are filled at the
// same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "env/deadline.h"
#include "env/mapping.h"
#include "env/sync.h"
#include "node/extent_index.h"
#include "transfer/extent_header.h"

namespace mooncake::node {

// An extent as permits and readers name it.
struct ExtentOf {
  uint64_t offset = 0;  // of the header
  uint64_t bytes = 0;   // of the payload
  uint64_t object_id = 0;
};

// INVALID_ARGUMENT unless it lies in a slab of `slab_bytes` as extents do.
Status CheckExtent(const ExtentOf& extent, uint64_t slab_bytes);

struct ExtentPiece {
  uint64_t at = 0;  // in the payload
  uint64_t bytes = 0;
};

// What Slab::Write asks its caller to copy.
struct ExtentPart {
  size_t piece = 0;  // which of the pieces, whole
  std::byte* target = nullptr;
  uint64_t bytes = 0;
};
using FillParts = std::function<Status(std::span<const ExtentPart> parts)>;

struct ExtentFill {
  std::span<const ExtentPiece> pieces;
  bool last = false;             // the payload is whole with this
  std::optional<uint64_t> xxh3;  // kept with `last`
  bool zero_rest = false;        // with `last`: what no piece brought is filled with zeros
};

class Slab {
 public:
  // How long a call waits by itself for those that still read or fill what it overwrites, and how
  // many pieces one extent may come in.
  static constexpr int64_t kTurnMs = 2000;
  static constexpr size_t kPiecesMax = 65'536;

  // `memory` is the whole slab, `index` (of durable slabs) what lay in it when it was opened: those
  // extents are whole again, as far as their headers say so.
  explicit Slab(env::Mapping memory, std::optional<ExtentIndex> index = std::nullopt);

  uint64_t bytes() const { return memory_.size(); }

  // NOT_FOUND: a younger object has (a part of) the extent, before or meanwhile. BUSY: what it
  // overwrites was read or filled until `turn` ran out; nothing was written. INVALID_ARGUMENT: an
  // extent that does not fit, pieces that leave the payload or overlap each other or earlier ones,
  // `last` without all bytes. Otherwise what `fill` says, which is called at most once and without
  // any lock; then its pieces count as not written.
  Status Write(const ExtentOf& extent, const ExtentFill& wanted, const FillParts& fill,
               const env::Deadline& turn = env::Deadline::AfterMs(kTurnMs));

  // Appends `count` bytes of the payload from `from` on; the payload's XXH3-64 where one is kept.
  // NOT_FOUND: the extent holds another object, or is not whole.
  Result<std::optional<uint64_t>> Read(const ExtentOf& extent, uint64_t from, uint64_t count,
                                       std::string* content);

  // Before the memory goes: nothing in it is anybody's any more, for whoever maps it neither.
  void GiveUpAll();

  // Of durable slabs: memory and index are on disk.
  Status Sync() const;

  size_t extent_count() const;

 private:
  struct Filling {
    std::vector<ExtentPiece> covered;  // by `at`, never overlapping
    bool running = false;              // a call is copying
  };
  struct Extent {
    uint64_t bytes = 0;
    uint64_t object_id = 0;
    uint32_t readers = 0;
    bool given_up = false;             // a younger object waits for its users to go
    std::unique_ptr<Filling> filling;  // until it is whole

    bool is_filled() const { return filling != nullptr && filling->running; }
  };
  using Extents = std::map<uint64_t, Extent>;  // by offset
  using Lock = std::unique_lock<env::Mutex>;

  transfer::ExtentHeader& HeaderAt(uint64_t offset) const;
  std::byte* PayloadAt(uint64_t offset) const;
  void Adopt();

  // The first extent that does not end before `offset`.
  Extents::iterator FirstOverlapping(uint64_t offset);
  // One look at what the extent overlaps. OK: older ones are given up, and `busy` tells whether one
  // of them, or the object's own extent, has users.
  Status GiveUpOlder(const ExtentOf& extent, bool* busy);
  // Makes room for the extent, waiting as long as it must, and enters it into the map.
  Result<Extent*> Claim(Lock& lock, const ExtentOf& extent, const env::Deadline& turn);
  void Begin(const ExtentOf& extent);
  // The pieces that are still to be copied.
  static Result<std::vector<ExtentPart>> PartsToFill(const Filling& filling, uint64_t payload_bytes,
                                                     std::span<const ExtentPiece> pieces,
                                                     std::byte* payload);
  // Lets go of the lock while `fill` copies the parts, or none. NOT_FOUND: a younger object came.
  Status Fill(Lock& lock, const ExtentOf& extent, Extent& claimed,
              std::span<const ExtentPart> parts, const FillParts& fill);
  // The payload's bytes that no piece brought.
  static std::vector<ExtentPiece> GapsOf(const Filling& filling, uint64_t payload_bytes);
  Status Finish(uint64_t offset, Extent& extent, const ExtentFill& wanted);

  const env::Mapping memory_;
  mutable env::Mutex mutex_;  // guards what follows, and the headers; never held while copying
  env::CondVar changed_;      // users of an extent went
  std::optional<ExtentIndex> index_;
  Extents extents_;
};

}  // namespace mooncake::node
