#include "node/arena_table.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "env/file.h"
#include "env/sync.h"

namespace mooncake::node {
namespace {

std::optional<uint64_t> ParseId(const std::string& text) {
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (std::to_string(id) != text) return std::nullopt;
  return id;
}

// Saturates: the size comes from a grant.
uint64_t PhysicalBytes(uint64_t bytes) {
  if (bytes > UINT64_MAX - kArenaPageBytes) return UINT64_MAX;
  return (bytes + kArenaPageBytes - 1) / kArenaPageBytes * kArenaPageBytes;
}

std::string Describe(uint64_t arena_id) { return "arena " + std::to_string(arena_id); }

}  // namespace

void DroppedIds::Add(uint64_t id) {
  if (id <= floor_) return;
  ids_.insert(id);
  if (ids_.size() > kept_max_) {
    floor_ = *ids_.begin();
    ids_.erase(ids_.begin());
  }
}

// Everything but `file` is fixed at birth. `making` is held while the memory is created or dropped.
struct ArenaTable::Arena {
  uint64_t import_id = 0;
  uint64_t arena_id = 0;
  uint64_t bytes = 0;

  mutable env::Mutex making;
  std::optional<env::MemoryFile> file;  // under `making`
  bool dropped = false;                 // under `making`
};

Result<std::unique_ptr<ArenaTable>> ArenaTable::Open(std::string folder, uint64_t capacity_bytes,
                                                     uint64_t prepare_bytes) {
  std::unique_ptr<ArenaTable> table(
      new ArenaTable(std::move(folder), capacity_bytes, prepare_bytes));
  if (table->durable()) MC_RETURN_IF_ERROR(table->Adopt());
  return table;
}

Status ArenaTable::Adopt() {
  MC_RETURN_IF_ERROR(env::MakeFolders(folder_));
  MC_ASSIGN_OR_RETURN(const std::vector<std::string> names, env::ListFolder(folder_));
  for (const std::string& name : names) {
    const std::optional<uint64_t> import_id = ParseId(name);
    if (!import_id) {
      Log().warn("node: ignoring {}/{}, which is no import's folder", folder_, name);
      continue;
    }
    MC_RETURN_IF_ERROR(AdoptImport(*import_id, folder_ + "/" + name));
  }
  return OkStatus();
}

Status ArenaTable::AdoptImport(uint64_t import_id, const std::string& path) {
  MC_ASSIGN_OR_RETURN(const std::vector<std::string> names, env::ListFolder(path));
  for (const std::string& name : names) {
    const std::optional<uint64_t> arena_id = ParseId(name);
    if (!arena_id) {
      Log().warn("node: ignoring {}/{}, which is no arena", path, name);
      continue;
    }
    MC_ASSIGN_OR_RETURN(env::MemoryFile file,
                        env::MemoryFile::OpenFile(path + "/" + name, env::MapAccess::kReadWrite));
    auto arena = std::make_shared<Arena>();
    arena->import_id = import_id;
    arena->arena_id = *arena_id;
    arena->bytes = file.size();
    arena->file = std::move(file);
    used_bytes_ += PhysicalBytes(arena->bytes);
    arenas_[*arena_id] = std::move(arena);
  }
  return OkStatus();
}

std::string ArenaTable::PathOf(uint64_t import_id, uint64_t arena_id) const {
  return folder_ + "/" + std::to_string(import_id) + "/" + std::to_string(arena_id);
}

Result<env::MemoryFile> ArenaTable::CreateAnonymous(const Arena& arena) {
  std::optional<env::MemoryFile> prepared = prepared_.Take(arena.bytes);
  // The arena is charged already: what is prepared beside it gives way first.
  UpdateRoom();
  if (prepared) return *std::move(prepared);
  return env::MemoryFile::CreateAnonymous("mooncake-arena", arena.bytes);
}

Result<env::MemoryFile> ArenaTable::Create(const Arena& arena) {
  if (!durable()) return CreateAnonymous(arena);
  MC_ASSIGN_OR_RETURN(const uint64_t free_bytes, env::FreeDiskBytes(folder_));
  const uint64_t for_arenas = free_bytes - std::min(free_bytes, kKeptDiskBytes);
  if (arena.bytes > for_arenas) {
    return Exhausted(Describe(arena.arena_id) + ": needs " + std::to_string(arena.bytes) +
                     " bytes, " + std::to_string(for_arenas) + " of the disk of " + folder_ +
                     " are free for arenas (" + std::to_string(kKeptDiskBytes) +
                     " are kept for METADATA objects and the log)");
  }
  MC_RETURN_IF_ERROR(env::MakeFolders(folder_ + "/" + std::to_string(arena.import_id)));
  return env::MemoryFile::CreateFile(PathOf(arena.import_id, arena.arena_id), arena.bytes);
}

Result<std::shared_ptr<ArenaTable::Arena>> ArenaTable::Reserve(uint64_t import_id,
                                                               uint64_t arena_id, uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (dropped_arenas_.Contains(arena_id) || dropped_imports_.Contains(import_id)) {
    return NotFound(Describe(arena_id) + " of import " + std::to_string(import_id) +
                    " was dropped");
  }
  std::shared_ptr<Arena>& arena = arenas_[arena_id];
  if (arena != nullptr) return arena;
  const uint64_t needed = PhysicalBytes(bytes);
  const uint64_t free = capacity_bytes_ - std::min(used_bytes_, capacity_bytes_);
  if (needed > free) {
    arenas_.erase(arena_id);
    return Exhausted(Describe(arena_id) + ": needs " + std::to_string(needed) + " bytes, " +
                     std::to_string(free) + " of the node's " + std::to_string(capacity_bytes_) +
                     " are free");
  }
  used_bytes_ += needed;
  arena = std::make_shared<Arena>();
  arena->import_id = import_id;
  arena->arena_id = arena_id;
  arena->bytes = bytes;
  return arena;
}

void ArenaTable::Forget(const std::shared_ptr<Arena>& arena, bool remember) {
  {
    std::lock_guard lock(mutex_);
    const auto found = arenas_.find(arena->arena_id);
    if (found == arenas_.end() || found->second != arena) return;
    used_bytes_ -= PhysicalBytes(arena->bytes);
    arenas_.erase(found);
    if (remember) dropped_arenas_.Add(arena->arena_id);
  }
  UpdateRoom();
}

void ArenaTable::UpdateRoom() {
  std::lock_guard lock(room_mutex_);
  prepared_.SetRoom(free_bytes());
}

uint64_t ArenaTable::free_bytes() const {
  std::lock_guard lock(mutex_);
  return capacity_bytes_ - std::min(used_bytes_, capacity_bytes_);
}

Result<env::UniqueFd> ArenaTable::OpenToWrite(uint64_t import_id, uint64_t arena_id,
                                              uint64_t bytes) {
  if (bytes == 0) return InvalidArgument(Describe(arena_id) + " has 0 bytes");
  MC_ASSIGN_OR_RETURN(const std::shared_ptr<Arena> arena, Reserve(import_id, arena_id, bytes));
  if (arena->import_id != import_id || arena->bytes != bytes) {
    return Corrupt(Describe(arena_id) + ": expected " + std::to_string(bytes) +
                   " bytes of import " + std::to_string(import_id) + ", got " +
                   std::to_string(arena->bytes) + " of import " + std::to_string(arena->import_id));
  }
  std::lock_guard making(arena->making);
  if (arena->dropped) return NotFound(Describe(arena_id) + " was dropped");
  if (!arena->file) {
    Result<env::MemoryFile> made = Create(*arena);
    if (!made.ok()) {
      arena->dropped = true;
      Forget(arena, /*remember=*/false);
      return made.status();
    }
    arena->file = *std::move(made);
  }
  return arena->file->Duplicate();
}

std::shared_ptr<ArenaTable::Arena> ArenaTable::Find(uint64_t arena_id) const {
  std::lock_guard lock(mutex_);
  const auto found = arenas_.find(arena_id);
  return found == arenas_.end() ? nullptr : found->second;
}

Result<env::UniqueFd> ArenaTable::OpenToRead(uint64_t import_id, uint64_t arena_id,
                                             uint64_t bytes) const {
  const std::shared_ptr<Arena> arena = Find(arena_id);
  if (arena == nullptr || arena->import_id != import_id) {
    return NotFound("no " + Describe(arena_id) + " of import " + std::to_string(import_id));
  }
  std::lock_guard making(arena->making);
  if (arena->dropped || !arena->file) return NotFound(Describe(arena_id) + " was dropped");
  if (arena->bytes != bytes) {
    return Corrupt(Describe(arena_id) + ": expected " + std::to_string(bytes) + " bytes, got " +
                   std::to_string(arena->bytes));
  }
  return arena->file->ReopenReadOnly();
}

Status ArenaTable::Sync(uint64_t import_id) const {
  if (!durable()) return OkStatus();
  bool any = false;
  for (const HeldArena& held : Held()) {
    if (held.import_id != import_id) continue;
    const std::shared_ptr<Arena> arena = Find(held.arena_id);
    if (arena == nullptr) continue;
    std::lock_guard making(arena->making);
    if (!arena->file) continue;
    any = true;
    MC_RETURN_IF_ERROR(arena->file->Sync());
  }
  if (!any) return OkStatus();
  return env::SyncFolder(folder_ + "/" + std::to_string(import_id));
}

Status ArenaTable::Drop(uint64_t arena_id) {
  const std::shared_ptr<Arena> arena = Find(arena_id);
  if (arena == nullptr) {
    std::lock_guard lock(mutex_);
    dropped_arenas_.Add(arena_id);
    return OkStatus();
  }
  std::lock_guard making(arena->making);
  if (arena->dropped) return OkStatus();
  if (arena->file) {
    // Before the descriptor goes: a reader or writer that still maps it keeps the pages otherwise.
    MC_RETURN_IF_ERROR(arena->file->PunchHole(0, arena->bytes));
    if (durable()) {
      const std::string path = PathOf(arena->import_id, arena_id);
      MC_RETURN_IF_ERROR(env::RemoveFile(path));
      MC_RETURN_IF_ERROR(env::SyncFolder(env::FolderOf(path)));
    }
    arena->file.reset();
  }
  arena->dropped = true;
  Forget(arena, /*remember=*/true);
  return OkStatus();
}

Status ArenaTable::DropImport(uint64_t import_id) {
  {
    std::lock_guard lock(mutex_);
    dropped_imports_.Add(import_id);
  }
  for (const HeldArena& held : Held()) {
    if (held.import_id == import_id) MC_RETURN_IF_ERROR(Drop(held.arena_id));
  }
  if (!durable()) return OkStatus();
  return env::RemoveFolderTree(folder_ + "/" + std::to_string(import_id));
}

bool ArenaTable::WasDropped(uint64_t import_id) const {
  std::lock_guard lock(mutex_);
  return dropped_imports_.Contains(import_id);
}

std::vector<HeldArena> ArenaTable::Held() const {
  std::lock_guard lock(mutex_);
  std::vector<HeldArena> held;
  for (const auto& [arena_id, arena] : arenas_) {
    held.push_back({arena->import_id, arena_id, arena->bytes});
  }
  return held;
}

uint64_t ArenaTable::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace mooncake::node
