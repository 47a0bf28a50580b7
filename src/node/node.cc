#include "node/node.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "env/file.h"

namespace mooncake::node {
namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kGrantKeyBytes = 32;
constexpr size_t kIdLengthMax = 128;

// The text that `path` holds; made by `make` and kept when there is none.
Result<std::string> ReadOrMake(const std::string& path, const std::string& made) {
  Result<std::string> text = env::ReadFile(path, 4096);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  if (text.ok()) {
    while (!text->empty() && text->back() == '\n') text->pop_back();
    if (text->empty() || text->size() > kIdLengthMax) {
      return Corrupt(path + ": expected an id of 1 to " + std::to_string(kIdLengthMax) +
                     " bytes, got " + std::to_string(text->size()));
    }
    return text;
  }
  MC_RETURN_IF_ERROR(env::WriteFileDurably(path, made + "\n"));
  return made;
}

Result<std::string> NodeIdOf(const NodeOptions& options, env::RandomSource& random) {
  const std::string path = options.folder + "/node_id";
  const std::string made =
      options.node_id.empty() ? "node-" + HexOf(random.RandomBytes(8)) : options.node_id;
  MC_ASSIGN_OR_RETURN(std::string kept, ReadOrMake(path, made));
  if (!options.node_id.empty() && kept != options.node_id) {
    return InvalidArgument(options.folder + " belongs to node " + kept + ", not to " +
                           options.node_id);
  }
  return kept;
}

std::string ImportText(uint64_t import_id) { return "import " + std::to_string(import_id); }

}  // namespace

Result<std::unique_ptr<Node>> Node::Open(NodeOptions options, env::RandomSource& random) {
  if (options.capacity_bytes < kArenaPageBytes) {
    return InvalidArgument("node capacity must be at least " + std::to_string(kArenaPageBytes) +
                           " bytes, got " + std::to_string(options.capacity_bytes));
  }
  MC_RETURN_IF_ERROR(env::MakeFolders(options.folder));
  MC_ASSIGN_OR_RETURN(env::FolderLock lock, env::FolderLock::Acquire(options.folder));
  GrantAuthority authority;
  MC_ASSIGN_OR_RETURN(authority.node_id, NodeIdOf(options, random));
  authority.instance_id = HexOf(random.RandomBytes(kIdBytes));
  if (options.durable_arenas) {
    MC_ASSIGN_OR_RETURN(authority.instance_id,
                        ReadOrMake(options.folder + "/instance_id", authority.instance_id));
  }
  authority.key = random.RandomBytes(kGrantKeyBytes);
  MC_ASSIGN_OR_RETURN(
      std::unique_ptr<ArenaTable> arenas,
      ArenaTable::Open(options.durable_arenas ? options.folder + "/arenas" : std::string(),
                       options.capacity_bytes, options.prepare_bytes));
  MC_ASSIGN_OR_RETURN(
      std::unique_ptr<MetadataStore> metadata,
      MetadataStore::Open(options.folder + "/metadata", options.folder + "/quarantine"));
  return std::unique_ptr<Node>(
      new Node(std::move(lock), std::move(authority), std::move(arenas), std::move(metadata)));
}

Node::Node(env::FolderLock lock, GrantAuthority authority, std::unique_ptr<ArenaTable> arenas,
           std::unique_ptr<MetadataStore> metadata)
    : lock_(std::move(lock)),
      authority_(std::move(authority)),
      arenas_(std::move(arenas)),
      metadata_(std::move(metadata)) {
  for (const HeldMetadata& held : metadata_->Held()) imports_[held.import_id].sealed = held.sealed;
}

Status Node::Admit(const model::Grant& grant) {
  std::lock_guard lock(mutex_);
  ImportState& import = imports_[grant.import_id.value];
  if (import.tenant_id.empty()) import.tenant_id = grant.tenant_id;
  if (import.tenant_id == grant.tenant_id) return OkStatus();
  return InvalidArgument(ImportText(grant.import_id.value) + " belongs to tenant " +
                         import.tenant_id + ", the grant is for tenant " + grant.tenant_id);
}

bool Node::Sealed(uint64_t import_id) const {
  std::lock_guard lock(mutex_);
  const auto found = imports_.find(import_id);
  return found != imports_.end() && found->second.sealed;
}

Result<env::UniqueFd> Node::OpenArena(const v1::Grant& grant) {
  const model::Access wanted =
      grant.access() == v1::ACCESS_READ ? model::Access::kRead : model::Access::kWrite;
  MC_ASSIGN_OR_RETURN(const model::Grant checked, CheckGrant(authority_, grant, wanted));
  MC_RETURN_IF_ERROR(Admit(checked));
  const uint64_t import_id = checked.import_id.value;
  if (wanted == model::Access::kRead) {
    if (!Sealed(import_id)) return NotReady(ImportText(import_id) + " is not sealed");
    return arenas_->OpenToRead(import_id, checked.arena_id.value, checked.arena_bytes);
  }
  const auto sealed = [&] {
    return Conflict(ImportText(import_id) + " is sealed: arena " +
                    std::to_string(checked.arena_id.value) + " is read-only");
  };
  if (Sealed(import_id)) return sealed();
  MC_ASSIGN_OR_RETURN(env::UniqueFd fd,
                      arenas_->OpenToWrite(import_id, checked.arena_id.value, checked.arena_bytes));
  // Creating it took its time; a seal in between wins.
  if (Sealed(import_id)) return sealed();
  return fd;
}

Status Node::WriteMetadata(const v1::Grant& grant, std::string_view name,
                           std::string_view content) {
  return WriteMetadataChecked(grant, name, content, Sha256Of(content));
}

Status Node::WriteMetadataChecked(const v1::Grant& grant, std::string_view name,
                                  std::string_view content, const Sha256Digest& sha256) {
  MC_ASSIGN_OR_RETURN(const model::Grant checked,
                      CheckGrant(authority_, grant, model::Access::kMetadataWrite));
  MC_RETURN_IF_ERROR(Admit(checked));
  if (arenas_->WasDropped(checked.import_id.value)) {
    return NotFound(ImportText(checked.import_id.value) + " was dropped");
  }
  return metadata_->Write(checked.import_id.value, name, content, sha256);
}

Result<std::string> Node::ReadMetadata(const v1::Grant& grant, std::string_view name) {
  MC_ASSIGN_OR_RETURN(const model::Grant checked,
                      CheckGrant(authority_, grant, model::Access::kMetadataRead));
  MC_RETURN_IF_ERROR(Admit(checked));
  MC_ASSIGN_OR_RETURN(const std::shared_ptr<const std::string> content,
                      metadata_->Read(checked.import_id.value, name));
  return *content;
}

Status Node::SealImport(const v1::Grant& grant) {
  MC_ASSIGN_OR_RETURN(const model::Grant checked,
                      CheckGrant(authority_, grant, model::Access::kMetadataWrite));
  MC_RETURN_IF_ERROR(Admit(checked));
  const uint64_t import_id = checked.import_id.value;
  if (arenas_->WasDropped(import_id)) return NotFound(ImportText(import_id) + " was dropped");
  {
    // From here on nothing opens to write, so what is synced below is final.
    std::lock_guard lock(mutex_);
    imports_[import_id].sealed = true;
  }
  MC_RETURN_IF_ERROR(arenas_->Sync(import_id));
  return metadata_->Seal(import_id);
}

std::vector<HeldImport> Node::Report() const {
  std::map<uint64_t, HeldImport> imports;
  for (const HeldMetadata& held : metadata_->Held()) {
    HeldImport& import = imports[held.import_id];
    import.metadata_objects = held.objects;
    import.sealed = held.sealed;
  }
  for (const HeldArena& held : arenas_->Held()) {
    imports[held.import_id].arena_ids.push_back(held.arena_id);
  }
  std::vector<HeldImport> report;
  for (auto& [import_id, import] : imports) {
    import.import_id = import_id;
    report.push_back(std::move(import));
  }
  return report;
}

Status Node::Drop(const std::vector<uint64_t>& arena_ids, const std::vector<uint64_t>& import_ids) {
  Status first;
  const auto note = [&first](const std::string& what, Status status) {
    Log().error("node: {} is not dropped yet: {}", what, status.ToString());
    if (first.ok()) first = std::move(status);
  };
  for (const uint64_t arena_id : arena_ids) {
    Status status = arenas_->Drop(arena_id);
    if (!status.ok()) note("arena " + std::to_string(arena_id), std::move(status));
  }
  for (const uint64_t import_id : import_ids) {
    Status status = arenas_->DropImport(import_id);
    if (status.ok()) status = metadata_->Drop(import_id);
    if (status.ok()) {
      std::lock_guard lock(mutex_);
      imports_.erase(import_id);
    } else {
      note(ImportText(import_id), std::move(status));
    }
  }
  return first;
}

}  // namespace mooncake::node
