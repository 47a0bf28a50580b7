#include "sim/sim_disk.h"

#include <algorithm>
#include <optional>

#include "env/file.h"

namespace mooncake::sim {
namespace {

constexpr uint64_t kSectorBytes = 512;
constexpr int64_t kSyncNs = 100 * kMicrosecond;

void PutAt(std::string& content, uint64_t offset, std::string_view bytes) {
  content.resize(std::max<uint64_t>(content.size(), offset + bytes.size()));
  content.replace(offset, bytes.size(), bytes);
}

}  // namespace

struct SimDisk::Inode {
  // A write, or, without bytes, a new size.
  struct Unsynced {
    uint64_t offset = 0;
    std::optional<std::string> bytes;
  };
  std::string content;
  std::string synced;
  std::vector<Unsynced> unsynced;

  static void Redo(const Unsynced& change, std::string& content) {
    if (change.bytes) {
      PutAt(content, change.offset, *change.bytes);
    } else {
      content.resize(change.offset);
    }
  }
};

// A file as SQLite has it open.
class SimDisk::OpenedFile final : public oplog::DeviceFile {
 public:
  OpenedFile(SimDisk& disk, std::string path, InodePtr inode)
      : disk_(disk), path_(std::move(path)), inode_(std::move(inode)) {}

  Result<size_t> Read(uint64_t offset, std::span<char> into) override {
    MC_RETURN_IF_ERROR(disk_.Pass("read", path_, disk_.faults.read_fails));
    const std::string& content = inode_->content;
    if (offset >= content.size()) return size_t{0};
    const size_t got = std::min<uint64_t>(into.size(), content.size() - offset);
    std::copy_n(content.data() + offset, got, into.data());
    return got;
  }
  Status Write(uint64_t offset, std::string_view bytes) override {
    MC_RETURN_IF_ERROR(disk_.Pass("write", path_, disk_.faults.write_fails));
    return disk_.WriteAt(*inode_, offset, bytes);
  }
  Status Truncate(uint64_t bytes) override {
    MC_RETURN_IF_ERROR(disk_.Pass("truncate", path_, disk_.faults.write_fails));
    inode_->content.resize(bytes);
    inode_->unsynced.push_back({bytes, std::nullopt});
    return OkStatus();
  }
  Status Sync() override { return disk_.SyncFile(*inode_, path_); }
  Result<uint64_t> Size() override {
    MC_RETURN_IF_ERROR(disk_.Pass("stat", path_, 0));
    return uint64_t{inode_->content.size()};
  }

 private:
  SimDisk& disk_;
  const std::string path_;
  const InodePtr inode_;
};

SimDisk::SimDisk(Simulation& simulation, std::string name)
    : simulation_(simulation), name_(std::move(name)) {
  names_["/"] = nullptr;
  synced_names_["/"] = nullptr;
}

SimDisk::~SimDisk() = default;

Status SimDisk::Pass(const char* what, const std::string& path, uint32_t fails, bool sync) {
  if (sync) {
    const bool slow = simulation_.dice().Chance(faults.slow_sync);
    simulation_.Sleep(slow ? simulation_.dice().Between(kSyncNs, faults.slow_ns_max) : kSyncNs);
  }
  if (simulation_.CutOff()) {
    simulation_.Yield();
    return Unavailable(name_ + " is out of reach of a process that crashed");
  }
  if (fails > 0 && simulation_.dice().Chance(fails)) {
    simulation_.Note("disk fault");
    return Unavailable("cannot " + std::string(what) + " " + path + ": injected fault (EIO)");
  }
  return OkStatus();
}

bool SimDisk::NameChange::In(const std::string& folder) const {
  return (!removed.empty() && env::FolderOf(removed) == folder) ||
         (!added.empty() && env::FolderOf(added) == folder);
}

void SimDisk::NameChange::Redo(Names& names) const {
  if (!removed.empty()) names.erase(removed);
  if (!added.empty()) names[added] = inode;
}

void SimDisk::Change(NameChange change) {
  change.Redo(names_);
  pending_.push_back(std::move(change));
}

Status SimDisk::WriteAt(Inode& inode, uint64_t offset, std::string_view bytes) {
  if (faults.full && offset + bytes.size() > inode.content.size()) {
    return Exhausted("the disk " + name_ + " is full (injected)");
  }
  PutAt(inode.content, offset, bytes);
  inode.unsynced.push_back({offset, std::string(bytes)});
  return OkStatus();
}

Status SimDisk::SyncFile(Inode& inode, const std::string& path) {
  // What came before counts, also when more comes while this waits.
  const size_t count = inode.unsynced.size();
  const Status passed = Pass("fsync", path, faults.sync_fails, true);
  if (simulation_.CutOff()) return passed;
  const auto end =
      inode.unsynced.begin() + static_cast<std::ptrdiff_t>(std::min(count, inode.unsynced.size()));
  if (passed.ok()) {
    for (auto change = inode.unsynced.begin(); change != end; ++change) {
      Inode::Redo(*change, inode.synced);
    }
  } else {
    // Some of it reached the platter; the rest is clean to the kernel now and never written again.
    for (auto change = inode.unsynced.begin(); change != end; ++change) {
      if (simulation_.dice().Chance(500'000)) Inode::Redo(*change, inode.synced);
    }
  }
  inode.unsynced.erase(inode.unsynced.begin(), end);
  return passed;
}

void SimDisk::LosePower() {
  simulation_.Note("power lost at " + name_);
  Dice& dice = simulation_.dice();
  // Names: what the journal has is a beginning of what was done.
  const size_t kept = dice.Below(pending_.size() + 1);
  for (size_t i = 0; i < kept; ++i) pending_[i].Redo(synced_names_);
  pending_.clear();
  // Nothing is found in a folder that is not.
  std::erase_if(synced_names_, [&](const auto& name) {
    return name.first != "/" && !synced_names_.contains(env::FolderOf(name.first));
  });
  names_ = synced_names_;
  std::set<Inode*> inodes;
  for (const auto& [path, inode] : names_) {
    if (inode == nullptr || !inodes.insert(inode.get()).second) continue;
    for (Inode::Unsynced& change : inode->unsynced) {
      const uint64_t fate = dice.Below(3);
      if (fate == 0) continue;
      if (fate == 1 && change.bytes) {
        const uint64_t sectors = change.bytes->size() / kSectorBytes;
        change.bytes->resize(dice.Below(sectors + 1) * kSectorBytes);
      }
      Inode::Redo(change, inode->synced);
    }
    inode->unsynced.clear();
    inode->content = inode->synced;
  }
}

bool SimDisk::FlipBit(const std::function<bool(std::string_view path)>& wanted) {
  std::vector<std::pair<std::string, Inode*>> candidates;
  for (const auto& [path, inode] : names_) {
    if (inode != nullptr && !inode->synced.empty() && wanted(path)) {
      candidates.emplace_back(path, inode.get());
    }
  }
  if (candidates.empty()) return false;
  const auto& [path, inode] = simulation_.dice().Pick(candidates);
  simulation_.Note("bit flipped in " + path);
  const uint64_t at = simulation_.dice().Below(inode->synced.size());
  const auto mask = static_cast<char>(1U << simulation_.dice().Below(8));
  inode->synced[at] = static_cast<char>(inode->synced[at] ^ mask);
  if (at < inode->content.size()) {
    inode->content[at] = static_cast<char>(inode->content[at] ^ mask);
  }
  return true;
}

Result<std::string> SimDisk::Read(const std::string& path, uint64_t bytes_max) {
  MC_RETURN_IF_ERROR(Pass("read", path, faults.read_fails));
  const auto found = names_.find(path);
  if (found == names_.end()) return NotFound("cannot open " + path + ": not there");
  if (found->second == nullptr) return InvalidArgument("cannot read " + path + ": a folder");
  if (found->second->content.size() > bytes_max) {
    return Exhausted("cannot read " + path + ": " + std::to_string(found->second->content.size()) +
                     " bytes, at most " + std::to_string(bytes_max) + " allowed");
  }
  return found->second->content;
}

Status SimDisk::Write(const std::string& path, std::string_view bytes) {
  MC_RETURN_IF_ERROR(Pass("write", path, faults.write_fails));
  if (!names_.contains(env::FolderOf(path))) return NotFound("cannot open " + path + ": no folder");
  InodePtr inode;
  if (const auto found = names_.find(path); found != names_.end()) {
    inode = found->second;
    inode->content.clear();
    inode->unsynced.push_back({0, std::nullopt});
  } else {
    inode = std::make_shared<Inode>();
    Change({.removed = {}, .added = path, .inode = inode});
  }
  MC_RETURN_IF_ERROR(WriteAt(*inode, 0, bytes));
  return SyncFile(*inode, path);
}

Status SimDisk::Rename(const std::string& from, const std::string& to) {
  MC_RETURN_IF_ERROR(Pass("rename", from, faults.write_fails));
  const auto found = names_.find(from);
  if (found == names_.end()) return NotFound("cannot rename " + from + ": not there");
  Change({.removed = from, .added = to, .inode = found->second});
  return OkStatus();
}

Status SimDisk::Remove(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("remove", path, faults.write_fails));
  if (names_.contains(path)) Change({.removed = path, .added = {}, .inode = nullptr});
  return OkStatus();
}

Status SimDisk::RemoveTree(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("remove", path, faults.write_fails));
  std::vector<std::string> below;
  for (const auto& [name, inode] : names_) {
    if (name == path || name.starts_with(path + "/")) below.push_back(name);
  }
  // Children first, as rm does.
  for (auto name = below.rbegin(); name != below.rend(); ++name) {
    Change({.removed = *name, .added = {}, .inode = nullptr});
  }
  return OkStatus();
}

Result<std::vector<std::string>> SimDisk::List(const std::string& folder) {
  MC_RETURN_IF_ERROR(Pass("list", folder, faults.read_fails));
  if (!names_.contains(folder)) return NotFound("cannot list " + folder + ": not there");
  std::vector<std::string> names;
  for (const auto& [path, inode] : names_) {
    if (path != "/" && env::FolderOf(path) == folder) {
      names.push_back(path.substr(path.find_last_of('/') + 1));
    }
  }
  return names;
}

Status SimDisk::MakeFolder(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("create", path, faults.write_fails));
  if (!names_.contains(path)) Change({.removed = {}, .added = path, .inode = nullptr});
  return OkStatus();
}

Status SimDisk::SyncFolder(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("fsync", path, faults.sync_fails, true));
  std::erase_if(pending_, [&](const NameChange& change) {
    if (!change.In(path)) return false;
    change.Redo(synced_names_);
    return true;
  });
  return OkStatus();
}

Result<bool> SimDisk::Exists(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("stat", path, faults.read_fails));
  return names_.contains(path);
}

Result<bool> SimDisk::IsFolder(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("stat", path, faults.read_fails));
  const auto found = names_.find(path);
  if (found == names_.end()) return NotFound("cannot stat " + path + ": not there");
  return found->second == nullptr;
}

Result<uint64_t> SimDisk::FreeBytes(const std::string& path) {
  MC_RETURN_IF_ERROR(Pass("stat", path, 0));
  return faults.full ? uint64_t{0} : uint64_t{1} << 40;
}

Result<uint64_t> SimDisk::BytesBelow(const std::string& folder) {
  MC_RETURN_IF_ERROR(Pass("stat", folder, 0));
  uint64_t bytes = 0;
  for (const auto& [path, inode] : names_) {
    if (inode != nullptr && path.starts_with(folder + "/")) bytes += inode->content.size();
  }
  return bytes;
}

Result<std::unique_ptr<oplog::DeviceFile>> SimDisk::OpenFile(const std::string& path, bool create) {
  MC_RETURN_IF_ERROR(Pass("open", path, 0));
  auto found = names_.find(path);
  if (found == names_.end()) {
    if (!create) return NotFound("cannot open " + path + ": not there");
    Change({.removed = {}, .added = path, .inode = std::make_shared<Inode>()});
    found = names_.find(path);
  }
  return std::unique_ptr<oplog::DeviceFile>(
      std::make_unique<OpenedFile>(*this, path, found->second));
}

Status SimDisk::DeleteFile(const std::string& path, bool sync_folder) {
  if (!names_.contains(path)) return NotFound("cannot remove " + path + ": not there");
  MC_RETURN_IF_ERROR(Remove(path));
  return sync_folder ? SyncFolder(env::FolderOf(path)) : OkStatus();
}

Status SimDisk::SyncNameOf(const std::string& path) { return SyncFolder(env::FolderOf(path)); }

Result<bool> SimDisk::FileExists(const std::string& path) { return Exists(path); }

std::string SimDisk::RandomBytes(size_t bytes) { return simulation_.RandomBytes(bytes); }

}  // namespace mooncake::sim
