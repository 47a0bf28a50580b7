// The arenas of a node: the memory that imports write into and readers map.
//
// Owns each arena's MemoryFile: anonymous memory that dies with the process, or, when durable, the
// file <folder>/<import_id>/<arena_id>, which a later instance adopts. Never decides which arenas
// exist: creation follows a grant, Drop follows the Master.
//
// Invariants: the sum of sizes, memory prepared for more of them included, never passes the
// capacity; an id that was dropped is never created again; an arena's memory reads as zeros, in
// every process, once Drop returned OK. Threads: every method from any thread; creating one arena
// (which touches all its pages) does not hold up another.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "env/memory_file.h"
#include "env/sync.h"
#include "env/unique_fd.h"
#include "node/prepared_memory.h"

namespace mooncake::node {

// Sizes are charged in whole pages, as the Master charges them.
inline constexpr uint64_t kArenaPageBytes = 4096;

// What arenas that are slabs (slab_table.h) have in place of an import; nobody drops it.
inline constexpr uint64_t kSlabImport = 0;

// Remembers the ids that were dropped: the last `kept_max` of them one by one, and every older one
// by refusing all ids at or below the oldest forgotten one (ids only grow, so that only a straggler
// of a long gone import is refused with them).
class DroppedIds {
 public:
  explicit DroppedIds(size_t kept_max = 65536) : kept_max_(kept_max) {}
  void Add(uint64_t id);
  // Ids count from 1; slabs, whose import is 0, go one by one.
  bool Contains(uint64_t id) const { return id != 0 && (id <= floor_ || ids_.contains(id)); }

 private:
  size_t kept_max_;
  uint64_t floor_ = 0;
  std::set<uint64_t> ids_;
};

struct HeldArena {
  uint64_t import_id = 0;
  uint64_t arena_id = 0;
  uint64_t bytes = 0;
};

// What arenas that are files leave of their disk, for the METADATA objects and the log that make
// them a revision.
inline constexpr uint64_t kKeptDiskBytes = uint64_t{32} << 20;

class ArenaTable {
 public:
  // `folder` empty: anonymous memory. Otherwise arenas are files in it, and those that lie there
  // are adopted. Up to `prepare_bytes` of anonymous memory are made ahead of need, as far as the
  // capacity has them free.
  static Result<std::unique_ptr<ArenaTable>> Open(std::string folder, uint64_t capacity_bytes,
                                                  uint64_t prepare_bytes = 0);

  // The arena's memory, made now if it is not there. EXHAUSTED: capacity, memory or disk; CORRUPT:
  // it is there with another size; NOT_FOUND: dropped.
  Result<env::UniqueFd> OpenToWrite(uint64_t import_id, uint64_t arena_id, uint64_t bytes);
  // A read-only descriptor of an arena that is there.
  Result<env::UniqueFd> OpenToRead(uint64_t import_id, uint64_t arena_id, uint64_t bytes) const;

  // File-backed arenas of the import are on disk afterwards, names included.
  Status Sync(uint64_t import_id) const;

  // Zeroes and frees. Absence is OK; on failure the arena is still held.
  Status Drop(uint64_t arena_id);
  Status DropImport(uint64_t import_id);

  // Whether DropImport was called for it in this process.
  bool WasDropped(uint64_t import_id) const;

  std::vector<HeldArena> Held() const;
  bool Holds(uint64_t arena_id) const { return Find(arena_id) != nullptr; }
  uint64_t used_bytes() const;
  uint64_t prepared_bytes() const { return prepared_.ready_bytes(); }
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  bool durable() const { return !folder_.empty(); }

 private:
  struct Arena;

  ArenaTable(std::string folder, uint64_t capacity_bytes, uint64_t prepare_bytes)
      : folder_(std::move(folder)),
        capacity_bytes_(capacity_bytes),
        prepared_({.target_bytes = durable() ? 0 : prepare_bytes}, capacity_bytes) {}

  Status Adopt();
  Status AdoptImport(uint64_t import_id, const std::string& path);
  Result<env::MemoryFile> Create(const Arena& arena);
  Result<env::MemoryFile> CreateAnonymous(const Arena& arena);
  uint64_t free_bytes() const;
  // After every change of used_bytes_, without mutex_.
  void UpdateRoom();
  Result<std::shared_ptr<Arena>> Reserve(uint64_t import_id, uint64_t arena_id, uint64_t bytes);
  void Forget(const std::shared_ptr<Arena>& arena, bool remember);
  std::shared_ptr<Arena> Find(uint64_t arena_id) const;
  std::string PathOf(uint64_t import_id, uint64_t arena_id) const;

  const std::string folder_;
  const uint64_t capacity_bytes_;
  PreparedMemory prepared_;

  env::Mutex room_mutex_;     // taken before mutex_: the last to tell the room has the last look
  mutable env::Mutex mutex_;  // guards what follows; never held while memory is touched
  std::map<uint64_t, std::shared_ptr<Arena>> arenas_;
  uint64_t used_bytes_ = 0;
  DroppedIds dropped_arenas_;
  DroppedIds dropped_imports_;
};

}  // namespace mooncake::node
