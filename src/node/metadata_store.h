// The METADATA objects a node holds (manifests, affinity summaries, digests): files in its folder,
// and the same bytes in memory.
//
//   <folder>/<import_id>/<UrlEncode(name)>   one object (metadata_file.h)
//   <folder>/<import_id>/.sealed             the import is sealed
//   <quarantine>/<import_id>-<file name>-<n> what failed its check at start; never read again
//
// Owns the two folders. Never decides which imports exist: Drop is its caller's decision.
// Invariants: an object is on disk, synced, before Write says so; what Read returns matched its
// SHA-256 when it was written or loaded; a name's content never changes. Threads: every method from
// any thread; writes of one import wait for each other.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "env/sync.h"

namespace mooncake::node {

struct HeldMetadata {
  uint64_t import_id = 0;
  uint64_t objects = 0;  // that can be read; quarantined ones are lost
  bool sealed = false;
};

class MetadataStore {
 public:
  // Loads what `folder` holds. Damaged files are moved to `quarantine_folder`, logged, and answered
  // with CORRUPT from then on; the rest is served.
  static Result<std::unique_ptr<MetadataStore>> Open(std::string folder,
                                                     std::string quarantine_folder);

  // INVALID_ARGUMENT: bad name, or `content` does not have `sha256`. CONFLICT: the name has other
  // content, or the import is sealed. NOT_FOUND: dropped meanwhile.
  Status Write(uint64_t import_id, std::string_view name, std::string_view content,
               const Sha256Digest& sha256);

  Result<std::shared_ptr<const std::string>> Read(uint64_t import_id, std::string_view name) const;

  // Durable: no object is added to the import afterwards. Idempotent.
  Status Seal(uint64_t import_id);
  bool Sealed(uint64_t import_id) const;

  // Removes everything of the import, files too. Absence is OK. On failure the import is still
  // held.
  Status Drop(uint64_t import_id);

  std::vector<HeldMetadata> Held() const;
  // Paths that Open moved away, for reports.
  const std::vector<std::string>& quarantined() const { return quarantined_; }

 private:
  struct Import;
  struct Object {
    Sha256Digest sha256{};
    std::shared_ptr<const std::string> content;  // null: quarantined
  };

  MetadataStore(std::string folder, std::string quarantine_folder)
      : folder_(std::move(folder)), quarantine_folder_(std::move(quarantine_folder)) {}

  Status Load();
  Status LoadImport(uint64_t import_id, const std::string& path);
  Status Quarantine(uint64_t import_id, const std::string& path, const std::string& file_name,
                    const Status& why);
  std::string FolderOfImport(uint64_t import_id) const;
  std::shared_ptr<Import> FindOrAdd(uint64_t import_id);
  std::shared_ptr<Import> Find(uint64_t import_id) const;

  const std::string folder_;
  const std::string quarantine_folder_;
  std::vector<std::string> quarantined_;

  mutable env::Mutex mutex_;  // guards the table, never held over a file operation
  std::map<uint64_t, std::shared_ptr<Import>> imports_;
};

}  // namespace mooncake::node
