// The slabs of a node: which there are, whose they are, and that nobody works in one that goes.
//
// Slabs are arenas of import 0 in the ArenaTable, which owns their memory and charges it. This
// table owns what makes an arena a slab (node/slab.h). Never decides which exist: one is made by
// the first permit to fill an extent of it, and goes when the Master's answer to a report says so.
//
// Invariants: a slab belongs to the tenant of the first permit or grant that named it (after a
// restart, of the next one), and others are refused; once Drop was called for an id nothing is read
// or filled in it any more.
//
// Durable slabs are files and outlive the process, and so do their indexes, <folder>/<slab_id>. Of
// a process that was killed the kernel keeps every store, in order; of a machine that went down it
// keeps some, and a header may be older than the payload behind it. So <folder>/in_use has the
// host's id, boot included, from before the first slab is touched until all were synced at the end.
// Where it names another boot, slabs are dropped at the start: ordinary objects can be had again,
// and wrong bytes must not.
// Threads: every method from any thread; making one slab does not hold up another.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "env/sync.h"
#include "env/unique_fd.h"
#include "node/arena_table.h"
#include "node/slab.h"

namespace mooncake::node {

class SlabTable {
 public:
  // How long Drop waits for running calls.
  static constexpr int64_t kDropMs = 200;

  // `folder` is for the indexes of durable slabs. `arenas` must outlive the table.
  static Result<std::unique_ptr<SlabTable>> Open(ArenaTable& arenas, std::string folder);
  ~SlabTable();

  // A slab that is being worked in: Drop waits until this is gone.
  class Use {
   public:
    Use(Use&& other) noexcept = default;
    Use& operator=(Use&&) = delete;
    ~Use();
    Slab& operator*() const;
    Slab* operator->() const { return &**this; }

   private:
    friend class SlabTable;
    struct Place;
    explicit Use(std::shared_ptr<Place> place) : place_(std::move(place)) {}
    std::shared_ptr<Place> place_;
  };

  // `make`: it is made when it is not there. NOT_FOUND: it is not there, or dropped;
  // INVALID_ARGUMENT: another tenant's; CORRUPT: of another size; EXHAUSTED: capacity, memory,
  // disk.
  Result<Use> Enter(uint64_t slab_id, const std::string& tenant_id, uint64_t bytes, bool make);

  // A read-only descriptor of a slab that is there.
  Result<env::UniqueFd> OpenToRead(uint64_t slab_id, const std::string& tenant_id, uint64_t bytes);

  // Of any arena: as ArenaTable::Drop, and nothing of a slab is in use afterwards. BUSY: something
  // is, and the arena stays for the next call; nothing new begins meanwhile.
  Status Drop(uint64_t arena_id);

 private:
  using Place = Use::Place;

  SlabTable(ArenaTable& arenas, std::string folder) : arenas_(arenas), folder_(std::move(folder)) {}

  Status Adopt();
  std::string IndexPath(uint64_t slab_id) const;
  Result<std::shared_ptr<Place>> FindOrAdd(uint64_t slab_id, bool add);
  Status MakeSlab(Place& place, uint64_t bytes);
  // Takes a place without memory out again, unless somebody else works on it.
  void ForgetUnmade(const std::shared_ptr<Place>& place);
  Status CloseCleanly();

  ArenaTable& arenas_;
  const std::string folder_;

  env::Mutex mutex_;  // guards what follows; taken before a place's
  std::map<uint64_t, std::shared_ptr<Place>> places_;
};

}  // namespace mooncake::node
