// An open revision: its lease, its metadata, its METADATA objects and the places of its payloads.
//
// Owns the lease, which the keeper renews while this lives and which is released with it, on every
// path. Nothing that comes from a node is believed before its SHA-256 matched what the Master says.
// Threads: one at a time, except lease_state().
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/digests.h"
#include "client/session.h"
#include "manifest/types.h"
#include "model/revision.h"

namespace mooncake::client {

// Where a payload object lies, and what is needed to map it.
struct LocatedObject {
  uint64_t bytes = 0;
  std::string participant_id;
  uint64_t arena_id = 0;
  uint64_t offset = 0;  // in the arena
};
struct LocatedArena {
  v1::Grant grant;  // READ
  v1::NodeAddress node;
};
struct Locations {
  std::map<std::string, LocatedObject, std::less<>> objects;  // by payload name
  std::map<uint64_t, LocatedArena> arenas;
};

class RevisionReader {
 public:
  static Result<std::unique_ptr<RevisionReader>> Open(std::shared_ptr<Session> session,
                                                      const model::WeightIdentity& identity,
                                                      std::stop_token cancel);
  ~RevisionReader();
  RevisionReader(const RevisionReader&) = delete;
  RevisionReader& operator=(const RevisionReader&) = delete;

  const model::RevisionMetadata& metadata() const { return metadata_; }

  // CORRUPT: not the bytes that the metadata names, or not this revision's manifest.
  Result<manifest::StoredManifestPtr> ReadManifest();
  // The digests object of a participant. CORRUPT when it is missing.
  Result<DigestsTable> ReadDigests(std::string_view participant_id);

  // Every name has a place afterwards. UNAVAILABLE, NOT_READY: the node that has it is away.
  Result<Locations> Locate(const std::vector<std::string>& names);

  // Not OK once the Master said that the lease is over.
  Status lease_state() const { return kept_->state(); }
  // Asks the Master. LEASE_EXPIRED: protection was lost at some time before.
  Status CheckLease();

 private:
  RevisionReader(std::shared_ptr<Session> session, std::stop_token cancel)
      : session_(std::move(session)), cancel_(std::move(cancel)) {}

  Status Acquire(const model::WeightIdentity& identity);
  Status LocateMetadata();
  Result<std::string> ReadObject(const std::string& name);

  const std::shared_ptr<Session> session_;
  const std::stop_token cancel_;
  uint64_t lease_id_ = 0;
  LeaseKeeper::Kept kept_;
  model::RevisionMetadata metadata_;
  // Of the METADATA objects.
  std::map<std::string, model::MetadataObject, std::less<>> objects_;
  std::map<std::string, LocatedArena> nodes_;  // by node id; the grant is METADATA_READ
};

}  // namespace mooncake::client
