#include "oplog/device_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <new>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/log.h"

namespace mooncake::oplog {
namespace {

constexpr int kPathBytesMax = 512;
constexpr int kJournals = SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL;

// What all connections to one file share while any of them is open.
struct SharedState {
  // SQLite's ladder of file locks (sqlite.org/lockingv3.html).
  std::set<const void*> shared;
  const void* reserved = nullptr;
  const void* pending = nullptr;
  const void* exclusive = nullptr;
  // The write-ahead index (sqlite.org/walformat.html) and its locks.
  std::vector<std::unique_ptr<std::vector<char>>> regions;
  struct Slot {
    std::set<const void*> shared;
    const void* exclusive = nullptr;
  };
  std::array<Slot, SQLITE_SHM_NLOCK> slots;
};

struct OpenFile {
  std::unique_ptr<DeviceFile> file;
  std::shared_ptr<SharedState> state;
  int level = SQLITE_LOCK_NONE;
  // A journal's name is synced with its first content, as SQLite's own file system does it; null:
  // it was, or its owner does so.
  FileDevice* names_on = nullptr;
  std::string path;
};

// SQLite allocates it; it begins with SQLite's own part.
struct VfsFile {
  sqlite3_file base;
  OpenFile* open;
};

OpenFile& Of(sqlite3_file* file) { return *reinterpret_cast<VfsFile*>(file)->open; }

int CodeOf(const Status& status, int otherwise) {
  if (status.ok()) return SQLITE_OK;
  return status.code() == Code::kExhausted ? SQLITE_FULL : otherwise;
}

int Close(sqlite3_file* file) {
  auto* vfs_file = reinterpret_cast<VfsFile*>(file);
  delete vfs_file->open;
  vfs_file->open = nullptr;
  return SQLITE_OK;
}

int Read(sqlite3_file* file, void* into, int bytes, sqlite3_int64 offset) {
  char* const begin = static_cast<char*>(into);
  const Result<size_t> got =
      Of(file).file->Read(static_cast<uint64_t>(offset), {begin, static_cast<size_t>(bytes)});
  if (!got.ok()) return SQLITE_IOERR_READ;
  if (*got == static_cast<size_t>(bytes)) return SQLITE_OK;
  // SQLite wants the rest to be zeros.
  std::memset(begin + *got, 0, static_cast<size_t>(bytes) - *got);
  return SQLITE_IOERR_SHORT_READ;
}

int Write(sqlite3_file* file, const void* from, int bytes, sqlite3_int64 offset) {
  const std::string_view view(static_cast<const char*>(from), static_cast<size_t>(bytes));
  return CodeOf(Of(file).file->Write(static_cast<uint64_t>(offset), view), SQLITE_IOERR_WRITE);
}

int Truncate(sqlite3_file* file, sqlite3_int64 bytes) {
  return CodeOf(Of(file).file->Truncate(static_cast<uint64_t>(bytes)), SQLITE_IOERR_TRUNCATE);
}

int Sync(sqlite3_file* file, int) {
  OpenFile& open = Of(file);
  if (const Status synced = open.file->Sync(); !synced.ok()) return SQLITE_IOERR_FSYNC;
  if (open.names_on == nullptr) return SQLITE_OK;
  if (!open.names_on->SyncNameOf(open.path).ok()) return SQLITE_IOERR_DIR_FSYNC;
  open.names_on = nullptr;
  return SQLITE_OK;
}

int FileSize(sqlite3_file* file, sqlite3_int64* bytes) {
  const Result<uint64_t> size = Of(file).file->Size();
  if (!size.ok()) return SQLITE_IOERR_FSTAT;
  *bytes = static_cast<sqlite3_int64>(*size);
  return SQLITE_OK;
}

bool OthersShare(const SharedState& state, const void* me) {
  return state.shared.size() > (state.shared.contains(me) ? 1 : 0);
}

int Lock(sqlite3_file* file, int level) {
  OpenFile& open = Of(file);
  SharedState& state = *open.state;
  const auto held_by_other = [&](const void* holder) {
    return holder != nullptr && holder != file;
  };
  if (open.level >= level) return SQLITE_OK;
  if (level == SQLITE_LOCK_SHARED) {
    if (held_by_other(state.pending) || held_by_other(state.exclusive)) return SQLITE_BUSY;
    state.shared.insert(file);
  } else if (level == SQLITE_LOCK_RESERVED) {
    if (held_by_other(state.reserved) || held_by_other(state.pending) ||
        held_by_other(state.exclusive)) {
      return SQLITE_BUSY;
    }
    state.reserved = file;
  } else {
    if (held_by_other(state.pending) || held_by_other(state.reserved) ||
        held_by_other(state.exclusive)) {
      return SQLITE_BUSY;
    }
    state.pending = file;
    if (OthersShare(state, file)) {
      open.level = SQLITE_LOCK_PENDING;
      return SQLITE_BUSY;
    }
    state.exclusive = file;
  }
  open.level = level;
  return SQLITE_OK;
}

int Unlock(sqlite3_file* file, int level) {
  OpenFile& open = Of(file);
  SharedState& state = *open.state;
  for (const void** holder : {&state.reserved, &state.pending, &state.exclusive}) {
    if (*holder == file) *holder = nullptr;
  }
  if (level == SQLITE_LOCK_NONE) state.shared.erase(file);
  open.level = level;
  return SQLITE_OK;
}

int CheckReservedLock(sqlite3_file* file, int* taken) {
  const SharedState& state = *Of(file).state;
  *taken = state.reserved != nullptr || state.pending != nullptr || state.exclusive != nullptr;
  return SQLITE_OK;
}

int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
int SectorSize(sqlite3_file*) { return 4096; }
// As the kernel's files have it: a write never harms what lies beside it.
int DeviceCharacteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }

int ShmMap(sqlite3_file* file, int region, int bytes, int extend, void volatile** address) {
  auto& regions = Of(file).state->regions;
  const auto index = static_cast<size_t>(region);
  *address = nullptr;
  if (index >= regions.size()) {
    if (extend == 0) return SQLITE_OK;
    regions.resize(index + 1);
  }
  if (regions[index] == nullptr) {
    if (extend == 0) return SQLITE_OK;
    regions[index] = std::make_unique<std::vector<char>>(static_cast<size_t>(bytes));
  }
  *address = regions[index]->data();
  return SQLITE_OK;
}

int ShmLock(sqlite3_file* file, int first, int count, int flags) {
  auto& slots = Of(file).state->slots;
  const bool exclusive = (flags & SQLITE_SHM_EXCLUSIVE) != 0;
  const bool lock = (flags & SQLITE_SHM_LOCK) != 0;
  for (int i = first; lock && i < first + count; ++i) {
    const SharedState::Slot& slot = slots[static_cast<size_t>(i)];
    const bool others = slot.shared.size() > (slot.shared.contains(file) ? 1U : 0U);
    if (slot.exclusive != nullptr && slot.exclusive != file) return SQLITE_BUSY;
    if (exclusive && others) return SQLITE_BUSY;
  }
  for (int i = first; i < first + count; ++i) {
    SharedState::Slot& slot = slots[static_cast<size_t>(i)];
    if (exclusive) {
      slot.exclusive = lock ? file : nullptr;
    } else if (lock) {
      slot.shared.insert(file);
    } else {
      slot.shared.erase(file);
    }
  }
  return SQLITE_OK;
}

void ShmBarrier(sqlite3_file*) {}

int ShmUnmap(sqlite3_file* file, int) {
  for (SharedState::Slot& slot : Of(file).state->slots) {
    slot.shared.erase(file);
    if (slot.exclusive == file) slot.exclusive = nullptr;
  }
  return SQLITE_OK;
}

constexpr sqlite3_io_methods kMethods = {
    .iVersion = 2,
    .xClose = Close,
    .xRead = Read,
    .xWrite = Write,
    .xTruncate = Truncate,
    .xSync = Sync,
    .xFileSize = FileSize,
    .xLock = Lock,
    .xUnlock = Unlock,
    .xCheckReservedLock = CheckReservedLock,
    .xFileControl = FileControl,
    .xSectorSize = SectorSize,
    .xDeviceCharacteristics = DeviceCharacteristics,
    .xShmMap = ShmMap,
    .xShmLock = ShmLock,
    .xShmBarrier = ShmBarrier,
    .xShmUnmap = ShmUnmap,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

}  // namespace

struct DeviceVfs::Parts {
  std::string name;
  FileDevice* device = nullptr;
  std::map<std::string, std::weak_ptr<SharedState>> states;
  sqlite3_vfs vfs{};

  std::shared_ptr<SharedState> StateOf(const std::string& path) {
    std::shared_ptr<SharedState> state = states[path].lock();
    if (state == nullptr) {
      state = std::make_shared<SharedState>();
      states[path] = state;
    }
    return state;
  }

  static Parts& Of(sqlite3_vfs* vfs) { return *static_cast<Parts*>(vfs->pAppData); }

  static int Open(sqlite3_vfs* vfs, sqlite3_filename path, sqlite3_file* file, int flags,
                  int* flags_out) {
    Parts& parts = Of(vfs);
    auto* vfs_file = reinterpret_cast<VfsFile*>(file);
    vfs_file->base.pMethods = nullptr;
    // A temporary file of SQLite's own has no name. The log's statements need none.
    if (path == nullptr) return SQLITE_CANTOPEN;
    Result<std::unique_ptr<DeviceFile>> opened =
        parts.device->OpenFile(path, (flags & SQLITE_OPEN_CREATE) != 0);
    if (!opened.ok()) return CodeOf(opened.status(), SQLITE_CANTOPEN);
    vfs_file->open =
        new (std::nothrow) OpenFile{.file = *std::move(opened),
                                    .state = parts.StateOf(path),
                                    .names_on = (flags & kJournals) != 0 ? parts.device : nullptr,
                                    .path = path};
    if (vfs_file->open == nullptr) return SQLITE_NOMEM;
    vfs_file->base.pMethods = &kMethods;
    if (flags_out != nullptr) *flags_out = flags;
    return SQLITE_OK;
  }

  static int Delete(sqlite3_vfs* vfs, const char* path, int sync_folder) {
    const Status status = Of(vfs).device->DeleteFile(path, sync_folder != 0);
    if (status.code() == Code::kNotFound) return SQLITE_IOERR_DELETE_NOENT;
    return status.ok() ? SQLITE_OK : SQLITE_IOERR_DELETE;
  }

  static int Access(sqlite3_vfs* vfs, const char* path, int, int* there) {
    const Result<bool> exists = Of(vfs).device->FileExists(path);
    if (!exists.ok()) return SQLITE_IOERR_ACCESS;
    *there = *exists ? 1 : 0;
    return SQLITE_OK;
  }

  static int FullPathname(sqlite3_vfs*, const char* path, int bytes_max, char* full) {
    const size_t bytes = std::strlen(path) + 1;
    if (bytes > static_cast<size_t>(bytes_max)) return SQLITE_CANTOPEN;
    std::copy_n(path, bytes, full);
    return SQLITE_OK;
  }

  static int Randomness(sqlite3_vfs* vfs, int bytes, char* into) {
    const std::string made = Of(vfs).device->RandomBytes(static_cast<size_t>(bytes));
    std::memcpy(into, made.data(), made.size());
    return bytes;
  }

  // A busy lock is refused at once: all connections are on one thread, and waiting would not end.
  static int Sleep(sqlite3_vfs*, int) { return 0; }
  static int CurrentTimeMs(sqlite3_vfs*, sqlite3_int64* ms) {
    *ms = 0;
    return SQLITE_OK;
  }
  static int LastError(sqlite3_vfs*, int, char*) { return 0; }
};

DeviceVfs::DeviceVfs(std::string name, FileDevice& device) : parts_(std::make_unique<Parts>()) {
  parts_->name = std::move(name);
  parts_->device = &device;
  sqlite3_vfs& vfs = parts_->vfs;
  vfs.iVersion = 2;
  vfs.szOsFile = sizeof(VfsFile);
  vfs.mxPathname = kPathBytesMax;
  vfs.zName = parts_->name.c_str();
  vfs.pAppData = parts_.get();
  vfs.xOpen = Parts::Open;
  vfs.xDelete = Parts::Delete;
  vfs.xAccess = Parts::Access;
  vfs.xFullPathname = Parts::FullPathname;
  vfs.xRandomness = Parts::Randomness;
  vfs.xSleep = Parts::Sleep;
  vfs.xCurrentTimeInt64 = Parts::CurrentTimeMs;
  vfs.xGetLastError = Parts::LastError;
  MC_CHECK(sqlite3_vfs_find(vfs.zName) == nullptr);
  MC_CHECK(sqlite3_vfs_register(&vfs, 0) == SQLITE_OK);
}

DeviceVfs::~DeviceVfs() { sqlite3_vfs_unregister(&parts_->vfs); }

}  // namespace mooncake::oplog
