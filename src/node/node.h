// A store node: the memory and METADATA objects it keeps for the Master, and who may touch them.
//
// Owns a folder (locked while it lives): node_id, cluster_id, metadata/, quarantine/, and, when its
// arenas are durable, instance_id and arenas/ (docs/formats/node_folder.md). Never decides what
// exists: arenas and objects come with a grant of the Master, and go only when the Master's answer
// to a report says so. Knows no sockets.
//
// Arenas of import 0 are slabs of ordinary objects (slab_table.h), filled by the node itself.
//
// Invariants:
//   - nothing is opened, read or written without a grant made for this instance (grant_check.h);
//   - nothing is taken in before the folder durably says whose cluster's it is;
//   - an import belongs to one tenant: grants of another are refused;
//   - once an import is sealed, no arena of it is opened to write and no object is added;
//   - before that, no arena of it is opened to read.
// Threads: every method from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "env/folder_lock.h"
#include "env/peer_memory.h"
#include "env/random.h"
#include "env/sync.h"
#include "mooncake/v1/node.pb.h"
#include "mooncake/v1/types.pb.h"
#include "node/arena_table.h"
#include "node/grant_check.h"
#include "node/metadata_store.h"
#include "node/slab_table.h"

namespace mooncake::node {

struct NodeOptions {
  std::string folder;
  uint64_t capacity_bytes = 0;
  std::string node_id;  // empty: the folder's, which is made at the first start
  // Arenas are files in the folder and outlive the process, and so does the instance id.
  bool durable_arenas = false;
  // How much memory is kept ready for the next imports, out of the free capacity; not of durable
  // arenas.
  uint64_t prepare_bytes = 0;
};

struct HeldImport {
  uint64_t import_id = 0;
  std::vector<uint64_t> arena_ids;
  uint64_t metadata_objects = 0;
  bool sealed = false;
};

class Node {
 public:
  // INVALID_ARGUMENT: no capacity, or another node's folder; UNAVAILABLE: the folder is in use;
  // CORRUPT: an id of the folder is damaged, or gone while the data is there.
  static Result<std::unique_ptr<Node>> Open(
      NodeOptions options, env::RandomSource& random = env::SystemRandom::Instance());

  const std::string& node_id() const { return authority_.node_id; }
  const std::string& instance_id() const { return authority_.instance_id; }
  // 32 random bytes of this process; the Master alone gets them.
  const std::string& grant_key() const { return authority_.key; }
  // Whose data the folder holds; empty until a Master took it in.
  std::string cluster_id() const;
  // From now on the folder is this cluster's, durably. INVALID_ARGUMENT: it is another's.
  Status JoinCluster(const std::string& cluster_id);
  bool durable_arenas() const { return arenas_->durable(); }
  uint64_t capacity_bytes() const { return arenas_->capacity_bytes(); }
  uint64_t used_bytes() const { return arenas_->used_bytes(); }
  uint64_t prepared_bytes() const { return arenas_->prepared_bytes(); }
  const std::vector<std::string>& quarantined() const { return metadata_->quarantined(); }

  // As rpc/node_channel.h has it.
  Result<env::UniqueFd> OpenArena(const v1::Grant& grant);
  Status ReserveArena(const v1::Grant& grant);
  Status WriteMetadata(const v1::Grant& grant, std::string_view name, std::string_view content);
  Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name);
  Status SealImport(const v1::Grant& grant);

  // WriteMetadata, with the digest that travelled beside the content.
  Status WriteMetadataChecked(const v1::Grant& grant, std::string_view name,
                              std::string_view content, const Sha256Digest& sha256);

  // Ordinary objects (node_extents.cc). The descriptor is read-only.
  Result<env::UniqueFd> OpenSlab(const v1::Grant& grant);
  // One Status per write; the call's own only for what is wrong with all of them, and then nothing
  // counts as written. `peer` is whose memory `pull` means; null: UNSUPPORTED.
  Result<std::vector<Status>> WriteExtents(const v1::WriteExtents& request,
                                           const env::PeerProcess* peer);
  Result<v1::NodeReply> ReadExtents(const v1::ReadExtents& request);

  // Everything it holds, for the Master to compare.
  std::vector<HeldImport> Report() const;
  // What the Master's answer names goes: memory zeroed and freed, files removed. What could not be
  // removed stays in the next report; the first such failure is returned.
  Status Drop(const std::vector<uint64_t>& arena_ids, const std::vector<uint64_t>& import_ids);

 private:
  struct ImportState {
    std::string tenant_id;
    bool sealed = false;
  };

  Node(std::string folder, env::FolderLock lock, GrantAuthority authority, std::string cluster_id,
       std::unique_ptr<ArenaTable> arenas, std::unique_ptr<SlabTable> slabs,
       std::unique_ptr<MetadataStore> metadata);

  // Nothing is taken in before.
  Status CheckJoined() const;
  // Binds the import to the grant's tenant.
  Status Admit(const model::Grant& grant);
  bool Sealed(uint64_t import_id) const;
  Result<model::Grant> CheckSlabGrant(const v1::Grant& grant) const;
  Status WriteExtent(const v1::ExtentWrite& write, std::span<const ExtentPiece> pieces,
                     const FillParts& fill, const env::Deadline& turn);

  const std::string folder_;
  const env::FolderLock lock_;
  const GrantAuthority authority_;
  const std::unique_ptr<ArenaTable> arenas_;
  const std::unique_ptr<SlabTable> slabs_;
  const std::unique_ptr<MetadataStore> metadata_;

  mutable env::Mutex mutex_;
  std::string cluster_id_;
  std::map<uint64_t, ImportState> imports_;
};

}  // namespace mooncake::node
