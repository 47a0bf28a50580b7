#include "oplog/snapshot_store.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "env/file.h"

namespace mooncake::oplog {
namespace {

constexpr std::string_view kSuffix = ".snapshot";
constexpr size_t kDigits = 20;

std::optional<uint64_t> SequenceOf(std::string_view name) {
  if (name.size() != kDigits + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  uint64_t sequence = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + kDigits, sequence);
  if (error != std::errc() || end != name.data() + kDigits) return std::nullopt;
  return sequence;
}

}  // namespace

std::string FolderSnapshots::Describe(uint64_t sequence) const {
  return fmt::format("{}/{:020}{}", folder_, sequence, kSuffix);
}

Result<std::vector<uint64_t>> FolderSnapshots::List() {
  const Result<std::vector<std::string>> names = env::ListFolder(folder_);
  if (names.status().code() == Code::kNotFound) return std::vector<uint64_t>();
  MC_RETURN_IF_ERROR(names.status());
  std::vector<uint64_t> sequences;  // the names are sorted, and so are these
  for (const std::string& name : *names) {
    if (const auto sequence = SequenceOf(name)) sequences.push_back(*sequence);
  }
  return sequences;
}

Result<std::string> FolderSnapshots::Read(uint64_t sequence) {
  return env::ReadFile(Describe(sequence), kSnapshotBytesMax);
}

Status FolderSnapshots::Write(uint64_t sequence, std::string_view bytes) {
  MC_RETURN_IF_ERROR(env::MakeFolders(folder_));
  // What a crash left of the one before.
  MC_RETURN_IF_ERROR(env::RemoveTemporaries(folder_));
  return env::WriteFileDurably(Describe(sequence), bytes);
}

Status FolderSnapshots::Remove(uint64_t sequence) { return env::RemoveFile(Describe(sequence)); }

std::string MemorySnapshots::Describe(uint64_t sequence) const {
  return fmt::format("snapshot {}", sequence);
}

Result<std::vector<uint64_t>> MemorySnapshots::List() {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> sequences;
  for (const auto& [sequence, bytes] : snapshots_) sequences.push_back(sequence);
  return sequences;
}

Result<std::string> MemorySnapshots::Read(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  const auto found = snapshots_.find(sequence);
  if (found == snapshots_.end()) return NotFound(Describe(sequence) + " does not exist");
  return found->second;
}

Status MemorySnapshots::Write(uint64_t sequence, std::string_view bytes) {
  std::lock_guard lock(mutex_);
  MC_RETURN_IF_ERROR(std::exchange(write_status_, OkStatus()));
  snapshots_[sequence] = bytes;
  return OkStatus();
}

Status MemorySnapshots::Remove(uint64_t sequence) {
  std::lock_guard lock(mutex_);
  snapshots_.erase(sequence);
  return OkStatus();
}

void MemorySnapshots::FailWrite(Status status) {
  std::lock_guard lock(mutex_);
  write_status_ = std::move(status);
}

void MemorySnapshots::Damage(uint64_t sequence, std::string bytes) {
  std::lock_guard lock(mutex_);
  snapshots_.at(sequence) = std::move(bytes);
}

}  // namespace mooncake::oplog
