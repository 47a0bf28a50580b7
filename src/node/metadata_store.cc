#include "node/metadata_store.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/log.h"
#include "base/probe.h"
#include "base/url_encode.h"
#include "env/file.h"
#include "env/sync.h"
#include "node/metadata_file.h"

namespace mooncake::node {
namespace {

constexpr std::string_view kSealedMarker = ".sealed";

std::optional<uint64_t> ParseId(const std::string& text) {
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (std::to_string(id) != text) return std::nullopt;
  return id;
}

std::string Describe(uint64_t import_id, std::string_view name) {
  return "METADATA object " + std::string(name) + " of import " + std::to_string(import_id);
}

}  // namespace

// `writing` serialises file operations of the import; `state` guards the members below it and is
// taken inside `writing`.
struct MetadataStore::Import {
  env::Mutex writing;
  bool folder_made = false;  // under `writing`

  mutable env::Mutex state;
  std::map<std::string, Object, std::less<>> objects;
  bool sealed = false;
  bool dropped = false;
};

Result<std::unique_ptr<MetadataStore>> MetadataStore::Open(std::string folder,
                                                           std::string quarantine_folder) {
  MC_RETURN_IF_ERROR(env::MakeFolders(folder));
  std::unique_ptr<MetadataStore> store(
      new MetadataStore(std::move(folder), std::move(quarantine_folder)));
  MC_RETURN_IF_ERROR(store->Load());
  return store;
}

Status MetadataStore::Load() {
  MC_ASSIGN_OR_RETURN(const std::vector<std::string> names, env::ListFolder(folder_));
  for (const std::string& name : names) {
    const std::optional<uint64_t> import_id = ParseId(name);
    if (!import_id) {
      Log().warn("node: ignoring {}/{}, which is no import's folder", folder_, name);
      continue;
    }
    MC_RETURN_IF_ERROR(LoadImport(*import_id, folder_ + "/" + name));
  }
  return OkStatus();
}

Status MetadataStore::LoadImport(uint64_t import_id, const std::string& path) {
  MC_RETURN_IF_ERROR(env::RemoveTemporaries(path));
  MC_ASSIGN_OR_RETURN(const std::vector<std::string> file_names, env::ListFolder(path));
  const std::shared_ptr<Import> import = FindOrAdd(import_id);
  import->folder_made = true;
  for (const std::string& file_name : file_names) {
    if (file_name == kSealedMarker) {
      import->sealed = true;
      continue;
    }
    const std::string file_path = path + "/" + file_name;
    Result<std::string> bytes = env::ReadFile(file_path);
    if (!bytes.ok()) return bytes.status();
    Result<MetadataFile> file = DecodeMetadataFile(file_name, *bytes);
    if (!file.ok()) {
      MC_RETURN_IF_ERROR(Quarantine(import_id, file_path, file_name, file.status()));
      continue;
    }
    import->objects[file->name] =
        Object{file->sha256, std::make_shared<const std::string>(std::move(file->content))};
  }
  return OkStatus();
}

Status MetadataStore::Quarantine(uint64_t import_id, const std::string& path,
                                 const std::string& file_name, const Status& why) {
  MC_RETURN_IF_ERROR(env::MakeFolders(quarantine_folder_));
  std::string target;
  for (int n = 0;; ++n) {
    target = quarantine_folder_ + "/" + std::to_string(import_id) + "-" + file_name + "-" +
             std::to_string(n);
    MC_ASSIGN_OR_RETURN(const bool taken, env::PathExists(target));
    if (!taken) break;
  }
  MC_RETURN_IF_ERROR(env::RenamePath(path, target));
  MC_RETURN_IF_ERROR(env::SyncFolder(quarantine_folder_));
  MC_RETURN_IF_ERROR(env::SyncFolder(env::FolderOf(path)));
  MC_PROBE("node.metadata_quarantined");
  Log().error("node: {} is damaged and was moved to {}: {}", path, target, why.message());
  quarantined_.push_back(target);
  // Known by its file name alone: the header is not to be trusted.
  const Result<std::string> name = UrlDecode(file_name);
  if (name.ok() && ValidateMetadataName(*name).ok())
    FindOrAdd(import_id)->objects[*name] = Object{};
  return OkStatus();
}

std::string MetadataStore::FolderOfImport(uint64_t import_id) const {
  return folder_ + "/" + std::to_string(import_id);
}

std::shared_ptr<MetadataStore::Import> MetadataStore::FindOrAdd(uint64_t import_id) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Import>& import = imports_[import_id];
  if (import == nullptr) import = std::make_shared<Import>();
  return import;
}

std::shared_ptr<MetadataStore::Import> MetadataStore::Find(uint64_t import_id) const {
  std::lock_guard lock(mutex_);
  const auto found = imports_.find(import_id);
  return found == imports_.end() ? nullptr : found->second;
}

Status MetadataStore::Write(uint64_t import_id, std::string_view name, std::string_view content,
                            const Sha256Digest& sha256) {
  MC_RETURN_IF_ERROR(ValidateMetadataName(name));
  if (const Sha256Digest actual = Sha256Of(content); actual != sha256) {
    return InvalidArgument(Describe(import_id, name) + ": expected content with SHA-256 " +
                           ToHex(sha256) + ", got " + ToHex(actual));
  }
  const std::shared_ptr<Import> import = FindOrAdd(import_id);
  std::lock_guard writing(import->writing);
  {
    std::lock_guard state(import->state);
    if (import->dropped) return NotFound("import " + std::to_string(import_id) + " was dropped");
    const auto found = import->objects.find(name);
    if (found != import->objects.end() && found->second.content != nullptr) {
      if (found->second.sha256 == sha256) return OkStatus();
      return Conflict(Describe(import_id, name) + " has SHA-256 " + ToHex(found->second.sha256) +
                      ", refused " + ToHex(sha256));
    }
    if (import->sealed) {
      return Conflict("import " + std::to_string(import_id) + " is sealed: " + std::string(name) +
                      " is not added");
    }
  }
  const std::string folder = FolderOfImport(import_id);
  if (!import->folder_made) {
    MC_RETURN_IF_ERROR(env::MakeFolders(folder));
    import->folder_made = true;
  }
  MC_RETURN_IF_ERROR(env::WriteFileDurably(folder + "/" + MetadataFileName(name),
                                           EncodeMetadataFile(name, content, sha256)));
  std::lock_guard state(import->state);
  import->objects[std::string(name)] = Object{sha256, std::make_shared<const std::string>(content)};
  return OkStatus();
}

Result<std::shared_ptr<const std::string>> MetadataStore::Read(uint64_t import_id,
                                                               std::string_view name) const {
  const std::shared_ptr<Import> import = Find(import_id);
  if (import != nullptr) {
    std::lock_guard state(import->state);
    const auto found = import->objects.find(name);
    if (found != import->objects.end() && !import->dropped) {
      if (found->second.content != nullptr) return found->second.content;
      return Corrupt(Describe(import_id, name) + " was damaged on disk and is quarantined");
    }
  }
  return NotFound("no " + Describe(import_id, name));
}

Status MetadataStore::Seal(uint64_t import_id) {
  const std::shared_ptr<Import> import = FindOrAdd(import_id);
  std::lock_guard writing(import->writing);
  {
    std::lock_guard state(import->state);
    if (import->dropped) return NotFound("import " + std::to_string(import_id) + " was dropped");
    if (import->sealed) return OkStatus();
  }
  const std::string folder = FolderOfImport(import_id);
  if (!import->folder_made) {
    MC_RETURN_IF_ERROR(env::MakeFolders(folder));
    import->folder_made = true;
  }
  MC_RETURN_IF_ERROR(env::WriteFileDurably(folder + "/" + std::string(kSealedMarker), ""));
  std::lock_guard state(import->state);
  import->sealed = true;
  return OkStatus();
}

bool MetadataStore::Sealed(uint64_t import_id) const {
  const std::shared_ptr<Import> import = Find(import_id);
  if (import == nullptr) return false;
  std::lock_guard state(import->state);
  return import->sealed;
}

Status MetadataStore::Drop(uint64_t import_id) {
  const std::shared_ptr<Import> import = Find(import_id);
  if (import == nullptr) return OkStatus();
  std::lock_guard writing(import->writing);
  // Also where making it, or removing it before, failed half-way: a folder that comes back after a
  // power loss would be held again.
  MC_RETURN_IF_ERROR(env::RemoveFolderTree(FolderOfImport(import_id)));
  MC_RETURN_IF_ERROR(env::SyncFolder(folder_));
  import->folder_made = false;
  {
    std::lock_guard state(import->state);
    import->dropped = true;
    import->objects.clear();
  }
  std::lock_guard lock(mutex_);
  const auto found = imports_.find(import_id);
  if (found != imports_.end() && found->second == import) imports_.erase(found);
  return OkStatus();
}

std::vector<HeldMetadata> MetadataStore::Held() const {
  std::vector<std::pair<uint64_t, std::shared_ptr<Import>>> imports;
  {
    std::lock_guard lock(mutex_);
    imports.assign(imports_.begin(), imports_.end());
  }
  std::vector<HeldMetadata> held;
  for (const auto& [import_id, import] : imports) {
    std::lock_guard state(import->state);
    if (import->dropped) continue;
    const auto whole = std::count_if(import->objects.begin(), import->objects.end(),
                                     [](const auto& o) { return o.second.content != nullptr; });
    held.push_back({import_id, static_cast<uint64_t>(whole), import->sealed});
  }
  return held;
}

}  // namespace mooncake::node
