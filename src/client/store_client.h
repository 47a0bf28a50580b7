// The Store as a program sees it: publish a revision, find it, load it into another layout, remove
// it.
//
// Owns the client's id and command sequence, the thread that renews its leases, its channels to the
// nodes and its caches of plans and manifests. Never owns bytes of a weight: fragments go from the
// caller's memory straight into the store's arenas and back into the caller's final buffers, so the
// memory of a load is its targets plus bounded staging.
//
// Failures are Status values with the RFC's codes. Calls repeat a request with the same command id
// while the Master cannot be reached, for at most `retry_ms`; an answer that stays unclear is
// OUTCOME_UNKNOWN.
//
// Threads: every method of StoreClient and Importer may be called from any thread, also at once.
// Progress and wait callbacks run on the thread that called, with no lock held. A StoreClient
// outlives its Importers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"
#include "model/identity.h"
#include "model/revision.h"
#include "reshard/upload_plan.h"

namespace mooncake::rpc {
class MasterApi;
class NodeConnector;
}  // namespace mooncake::rpc

namespace mooncake::client {

class Session;

// Called as an operation passes each of its steps (steps.h names them); a failure it returns is the
// operation's failure at that step. How tests stop the world between two steps.
using StepObserver = std::function<Status(std::string_view step)>;

struct StoreClientOptions {
  std::string client_id;            // 32 hex characters; empty: random
  std::string host_id;              // whose nodes are preferred; empty: this host
  std::string holder;               // shown beside leases; empty: "pid <pid>"
  uint64_t import_ttl_ms = 10'000;  // how long an import survives its dead writer
  uint64_t lease_ttl_ms = 10'000;   // how long a revision is protected for a dead reader
  // How long a Master or node that cannot be reached, or does not answer, is asked again.
  int64_t retry_ms = 15'000;
  int threads = 0;  // for copies, at most kThreadsMax; 0: one per processor, at most 8
  std::optional<model::StoragePolicy> default_policy;
  StepObserver step_observer;
};

// Most threads that a client, or one load, copies with.
inline constexpr int kThreadsMax = 1024;
inline constexpr int64_t kRetryMsMax = 1'000'000'000'000'000;

// INVALID_ARGUMENT with the field and its value.
Status Validate(const StoreClientOptions& options);

// How to wait, and how to stop waiting.
struct WaitOptions {
  int64_t timeout_ms = 600'000;  // negative: for ever
  std::stop_token cancel;
  // Called every 100 ms or so while waiting; false cancels.
  std::function<bool()> keep_waiting;
};

// ---- publish ----

struct ImportRequest {
  model::WeightIdentity identity;
  manifest::PlacementPtr placement;  // of the publishing layout, complete
  // The participants whose fragments this importer brings; empty: all of the placement.
  std::vector<std::string> participants;
  std::optional<model::StoragePolicy> policy;  // absent: the client's, then the cluster's default
  // Called every 50 ms or so while BeginImport waits for an earlier writer; false cancels.
  std::function<bool()> keep_waiting;
  // Who hands in fingerprints of boxes that somebody else uploads, and is compared before anything
  // becomes READY. Every importer of a revision says the same.
  reshard::ReplicaScope verify_replicas = reshard::ReplicaScope::kSelected;
};

// One fragment's elements in the caller's memory. Nothing of it is kept after PutFragment returns.
struct FragmentSource {
  const void* address = nullptr;  // of the first element
  uint64_t nbytes = 0;            // elements x itemsize; must equal the fragment's
  // Byte strides per dimension of the fragment's local shape; empty: dense row-major. Never
  // negative.
  std::vector<int64_t> strides_bytes;
};

struct ImportReport {
  model::RevisionMetadata metadata;
  bool already_published = false;  // an equal revision was there; nothing was uploaded
  uint64_t bytes_uploaded = 0;
  uint64_t bytes_compared = 0;  // fingerprinted only, and found equal: replicas, a repeat
  double seconds_copy = 0;      // inside PutFragment, summed over its callers
  double seconds_commit = 0;    // from Finish to READY
};

// One import session of one client: the writer's side of "Import" in docs/architecture. Begin
// reserves all space; Finish makes the revision READY or fails; until then nothing is discoverable.
// Destroying an unfinished Importer aborts the import.
class Importer {
 public:
  virtual ~Importer() = default;

  virtual const model::WeightIdentity& identity() const = 0;
  virtual const std::vector<std::string>& participants() const = 0;
  // How the policy was resolved, for people; may be empty.
  virtual const std::string& policy_note() const = 0;
  // An equal plan is READY already: PutFragment only fingerprints, Finish compares.
  virtual bool already_published() const = 0;

  // The fragments of `participant` that the store wants from it, sorted: those that it uploads and
  // the replicas that it only fingerprints (the upload plan's choice). PutFragment accepts its
  // other fragments and ignores them.
  virtual Result<std::vector<std::string>> WantedFragments(std::string_view participant) const = 0;

  // Copies the fragment into the store (or fingerprints it). Any order, any thread; each fragment
  // once. INVALID_ARGUMENT names the fragment and both values. After a failure the fragment may be
  // put again.
  virtual Status PutFragment(std::string_view participant, std::string_view placement_fragment_id,
                             const FragmentSource& source) = 0;

  // Hands in the receipts and returns once the revision is READY: commits it when this importer
  // sees the set complete, waits for the other writers otherwise. Fragments that are missing:
  // INVALID_ARGUMENT naming their tensors. CONFLICT: another publisher's bytes differ, or replicas
  // of one box do: every importer then gets the same message with tensor, box and ranks. Whatever
  // the failure, the import is aborted (its own session only) and the same publish may be started
  // again. Once.
  virtual Result<ImportReport> Finish(const WaitOptions& options = {}) = 0;

  // Gives the import up; its space returns. OK also when it is over already.
  virtual Status Abort(std::string_view reason) = 0;
};

// ---- load ----

// Where one participant of a target layout wants its fragments. The binding's addresses are in this
// process's memory (device "cpu").
struct LoadTarget {
  manifest::PlacementPtr placement;
  manifest::RuntimeBindingPtr binding;
};

struct LoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};

struct LoadOptions {
  bool verify = true;  // check every touched digest block before its bytes are handed over
  int threads = 0;     // 0: the client's; at most kThreadsMax
  std::stop_token cancel;
  std::function<bool(const LoadProgress&)> progress;  // about every 100 ms; false cancels
};

struct LoadReport {
  manifest::StoredManifestPtr manifest;
  model::RevisionMetadata metadata;
  uint64_t tensors = 0;       // of the target
  uint64_t regions = 0;       // strided copies; never a function of row counts
  uint64_t objects = 0;       // payload objects touched
  uint64_t bytes_needed = 0;  // of the target's fragments
  uint64_t bytes_moved = 0;
  uint64_t bytes_verified = 0;  // of the digest blocks touched
  bool plan_reused = false;
  double seconds_resolve = 0;  // lease, metadata, manifest
  double seconds_plan = 0;
  double seconds_map = 0;   // locations, digests, arenas
  double seconds_copy = 0;  // of the copy engine alone
  double seconds_total = 0;
};

// ---- discovery ----

// What the Master says of one revision (the RFC's view: metadata and what is not part of it).
struct RevisionView {
  model::RevisionMetadata metadata;
  uint64_t physical_bytes = 0;           // arenas and METADATA objects, as charged
  std::optional<uint64_t> operation_id;  // the active background operation
};

struct ListRequest {
  std::string tenant_id = "default";
  std::string namespace_name;                     // empty: all
  std::string resource_id;                        // empty: all
  std::vector<model::Availability> availability;  // empty: READY and DEGRADED
  uint32_t page_size = 100;
  std::string page_token;
};

struct ListPage {
  std::vector<RevisionView> revisions;
  std::string next_page_token;  // empty: the last page
};

struct RemoveOptions {
  std::optional<uint64_t> expected_metadata_generation;
  bool wait_until_deleted = true;
  WaitOptions wait;
};

class StoreClient {
 public:
  // `options` are valid.
  StoreClient(std::shared_ptr<rpc::MasterApi> master, std::shared_ptr<rpc::NodeConnector> connector,
              StoreClientOptions options = {});
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  // Reserves the space of the whole revision and claims the request's participants.
  //   INVALID_ARGUMENT  identity and placement disagree, unknown participant
  //   EXHAUSTED         not enough space: needed and free bytes; nothing changed
  //   CONFLICT          the identity exists, or is being published, with another plan
  //   STALE_GENERATION  the identity was removed
  Result<std::unique_ptr<Importer>> BeginImport(const ImportRequest& request);

  // Fills the targets with the revision's bytes. On failure the message says either that no byte of
  // a target was written, or that the targets are invalid. The lease is released on every path.
  //   INVALID_ARGUMENT  targets do not fit the revision (nothing written)
  //   NOT_FOUND, NOT_READY, STALE_GENERATION  no such readable revision (nothing written)
  //   CORRUPT           a digest is missing or does not match: names object and block
  //   LEASE_EXPIRED     protection was lost before the end
  Result<LoadReport> Load(const model::WeightIdentity& identity,
                          const std::vector<LoadTarget>& targets, const LoadOptions& options = {});

  // The revision's manifest, SHA-256 checked.
  Result<manifest::StoredManifestPtr> ReadManifest(const model::WeightIdentity& identity);

  Result<RevisionView> GetMetadata(const model::WeightIdentity& identity);
  // True only for READY; false for anything else that the Master answers. Never extends anything.
  Result<bool> Exists(const model::WeightIdentity& identity);
  // Logical payload bytes; only of a READY or DEGRADED revision.
  Result<uint64_t> GetSize(const model::WeightIdentity& identity);
  Result<ListPage> List(const ListRequest& request);

  // Removes the whole group. BUSY while a reader holds a lease. Returns the tombstone, or with
  // wait_until_deleted = false the metadata in DELETING.
  Result<model::RevisionMetadata> Remove(const model::WeightIdentity& identity,
                                         const RemoveOptions& options = {});

  const std::string& client_id() const;

 private:
  std::shared_ptr<Session> session_;
};

}  // namespace mooncake::client
