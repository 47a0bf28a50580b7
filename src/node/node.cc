#include "node/node.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/probe.h"
#include "env/file.h"
#include "node/node_folder.h"

namespace mooncake::node {
namespace {

constexpr size_t kIdBytes = 16;
constexpr size_t kGrantKeyBytes = 32;
// The folder's id; `made` is kept when it has none. Data was kept under an id that is gone:
// CORRUPT.
Result<std::string> ReadOrMake(const std::string& folder, const std::string& file,
                               const std::string& made, bool holds_data) {
  MC_ASSIGN_OR_RETURN(const std::optional<std::string> kept, ReadId(folder, file));
  if (kept) return *kept;
  if (holds_data) {
    return Corrupt(folder + "/" + file + " is missing, and " + folder +
                   " holds data that was kept under it");
  }
  MC_RETURN_IF_ERROR(WriteId(folder, file, made));
  return made;
}

Result<std::string> NodeIdOf(const NodeOptions& options, bool holds_data,
                             env::RandomSource& random) {
  const std::string made =
      options.node_id.empty() ? "node-" + HexOf(random.RandomBytes(8)) : options.node_id;
  // A name that was given is as good as the file that held it.
  MC_ASSIGN_OR_RETURN(std::string kept, ReadOrMake(options.folder, kNodeIdFile, made,
                                                   holds_data && options.node_id.empty()));
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
  MC_ASSIGN_OR_RETURN(const NodeFolderView view, PeekNodeFolder(options.folder));
  const bool holds_data = !view.import_ids.empty();
  GrantAuthority authority;
  MC_ASSIGN_OR_RETURN(authority.node_id, NodeIdOf(options, holds_data, random));
  authority.instance_id = HexOf(random.RandomBytes(kIdBytes));
  if (options.durable_arenas) {
    // Without it the arenas are those of a new instance, which the Master takes as they are.
    MC_ASSIGN_OR_RETURN(authority.instance_id,
                        ReadOrMake(options.folder, kInstanceIdFile, authority.instance_id, false));
  }
  authority.key = random.RandomBytes(kGrantKeyBytes);
  MC_ASSIGN_OR_RETURN(std::unique_ptr<ArenaTable> arenas,
                      ArenaTable::Open(options.durable_arenas ? options.folder + "/" + kArenasFolder
                                                              : std::string(),
                                       options.capacity_bytes, options.prepare_bytes));
  MC_ASSIGN_OR_RETURN(std::unique_ptr<SlabTable> slabs,
                      SlabTable::Open(*arenas, options.folder + "/" + kSlabsFolder));
  MC_ASSIGN_OR_RETURN(std::unique_ptr<MetadataStore> metadata,
                      MetadataStore::Open(options.folder + "/" + kMetadataFolder,
                                          options.folder + "/" + kQuarantineFolder));
  return std::unique_ptr<Node>(new Node(std::move(options.folder), std::move(lock),
                                        std::move(authority), view.cluster_id.value_or(""),
                                        std::move(arenas), std::move(slabs), std::move(metadata)));
}

Node::Node(std::string folder, env::FolderLock lock, GrantAuthority authority,
           std::string cluster_id, std::unique_ptr<ArenaTable> arenas,
           std::unique_ptr<SlabTable> slabs, std::unique_ptr<MetadataStore> metadata)
    : folder_(std::move(folder)),
      lock_(std::move(lock)),
      authority_(std::move(authority)),
      arenas_(std::move(arenas)),
      slabs_(std::move(slabs)),
      metadata_(std::move(metadata)),
      cluster_id_(std::move(cluster_id)) {
  for (const HeldMetadata& held : metadata_->Held()) imports_[held.import_id].sealed = held.sealed;
}

std::string Node::cluster_id() const {
  std::lock_guard lock(mutex_);
  return cluster_id_;
}

Status Node::JoinCluster(const std::string& cluster_id) {
  std::lock_guard lock(mutex_);
  if (cluster_id_ == cluster_id) return OkStatus();
  if (!cluster_id_.empty()) {
    return InvalidArgument(folder_ + " belongs to cluster " + cluster_id_ + ", not to " +
                           cluster_id);
  }
  MC_RETURN_IF_ERROR(WriteId(folder_, kClusterIdFile, cluster_id));
  cluster_id_ = cluster_id;
  return OkStatus();
}

Status Node::CheckJoined() const {
  // What lies in a folder that says no cluster cannot be told from a foreign one's.
  if (!cluster_id().empty()) return OkStatus();
  return Unavailable("node " + node_id() + " has not yet written down which cluster it is of");
}

Status Node::Admit(const model::Grant& grant) {
  MC_RETURN_IF_ERROR(CheckJoined());
  if (grant.import_id.value == kSlabImport) {
    return InvalidArgument("the grant is for import 0: slabs are opened as such");
  }
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

Status Node::ReserveArena(const v1::Grant& grant) {
  return durable_arenas() ? OpenArena(grant).status() : OkStatus();
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
    MC_PROBE("node.drop_failed");
    Log().error("node: {} is not dropped yet: {}", what, status.ToString());
    if (first.ok()) first = std::move(status);
  };
  for (const uint64_t arena_id : arena_ids) {
    Status status = slabs_->Drop(arena_id);
    if (!status.ok()) note("arena " + std::to_string(arena_id), std::move(status));
  }
  for (const uint64_t import_id : import_ids) {
    if (import_id == kSlabImport) {
      note("import 0", InvalidArgument("slabs are dropped one by one"));
      continue;
    }
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
