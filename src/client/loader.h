// One load, from lease to filled targets: "Reading" as its reader runs it.
//
//   1. OpenRevision: metadata and a lease, renewed until the end (revision_reader.h);
//   2. manifest from a node, SHA-256 checked; plans for every target, bindings checked
//   (load_work.h);
//   3. LocateObjects: places and grants of the payloads that are touched; digests objects of their
//      participants, SHA-256 checked: what is missing is CORRUPT;
//   4. arena by arena, in groups of bounded size: map read-only, copy all regions of its objects
//   with every
//      touched block verified before its bytes are handed on, unmap;
//   5. aliases: what two tensors put in one place must be equal;
//   6. ask the Master whether the lease held; release it.
//
// Until 4 begins no byte of a target was written, and errors say so; from then on they say that the
// targets are invalid. Memory: the mapping of one group, digests and a few bytes per region.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/status.h"
#include "client/load_work.h"
#include "client/revision_reader.h"
#include "client/session.h"
#include "env/mapping.h"
#include "transfer/copy_engine.h"

namespace mooncake::client {

class Loader {
 public:
  // `options` are valid, and outlive it.
  Loader(std::shared_ptr<Session> session, const LoadOptions& options);

  Result<LoadReport> Run(const model::WeightIdentity& identity,
                         const std::vector<LoadTarget>& targets);

 private:
  // Objects that lie in one arena, by offset.
  struct ArenaWork {
    uint64_t arena_id = 0;
    uint64_t bytes_needed = 0;
    std::vector<const ObjectWork*> objects;
  };
  using Mappings = std::map<uint64_t, env::Mapping>;  // by arena id

  Status Prepare(const model::WeightIdentity& identity, const std::vector<LoadTarget>& targets);
  Status LocateAll();
  Status ReadAllDigests();
  std::vector<ArenaWork> WorkByArena() const;

  Status CopyAll();
  Status CopyGroup(const std::vector<ArenaWork>& group);
  Status CompareAliases();
  Status CompareOne(const std::byte* object, const LoadOperation& operation) const;
  Result<transfer::ObjectRead> MakeRead(const ObjectWork& object, const std::byte* data) const;
  Result<env::Mapping> MapArena(const ArenaWork& arena);
  const std::byte* DataOf(const Mappings& mappings, const ObjectWork& object) const;

  // Stops copies and waits, whichever runs.
  void Cancel();
  Status CheckGoing();
  Status WithProgress(const std::function<Status()>& work);
  Status Explain(const Status& status) const;

  const std::shared_ptr<Session> session_;
  const LoadOptions& options_;
  std::unique_ptr<transfer::CopyEngine> own_engine_;  // when the call asks for other threads
  transfer::CopyEngine& engine_;

  std::unique_ptr<RevisionReader> reader_;
  LoadWork work_;
  Locations locations_;
  std::map<std::string, DigestsTable, std::less<>> digests_;  // by participant
  LoadReport report_;

  std::atomic<bool> cancelled_{false};
  std::stop_source stop_;
  std::atomic<uint64_t> bytes_done_{0};
  std::atomic<uint64_t> bytes_verified_{0};
  bool writing_ = false;  // a byte of a target may have been written
};

}  // namespace mooncake::client
