// weights::Catalog: every weight revision, its import session, its leases and its tombstone.
//
// Owns: revisions by identity and by import id, participants with their claims and receipts,
// leases, the import and lease id counters, the reasons of recent aborts. Never: knows deadlines
// (deadlines.h is volatile), objects' places, liveness or clocks; parses a manifest. State changes
// only through Apply; everything else is const. Deterministic: equal sequences of (event, logged
// time) give equal states and digests. Single-threaded (the Master's sequencer owns it). What may
// happen next is model/states.h's tables' business.
//
// Invariants (CheckInvariants): availability and residency are an allowed pair; a committed
// revision has a receipt of every participant; DELETING and DELETED have no lease; every lease
// names a READY or DEGRADED revision; an id is given once; one identity has one record.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "base/status.h"
#include "base/walked_map.h"
#include "model/identity.h"
#include "model/revision.h"
#include "model/states.h"
#include "weights/events.h"

namespace mooncake::weights {

struct Participant {
  std::string participant_id;
  model::ParticipantState state = model::ParticipantState::kUnclaimed;
  std::string client_id;          // of the claimer; cleared at commit
  uint64_t ttl_ms = 0;            // of the claimer's writer lease
  model::MetadataObject digests;  // once RECEIVED
};

struct Revision {
  model::WeightIdentity identity;
  ImportId import_id;
  model::Availability availability = model::Availability::kImporting;
  model::Residency residency = model::Residency::kUnknown;
  model::StoragePolicy policy;
  std::string policy_note;
  model::MetadataGeneration metadata_generation{1};
  std::string placement_id;
  Sha256Digest plan_sha256{};
  std::string created_at;
  uint64_t ttl_ms = 0;                    // of the import session
  std::vector<Participant> participants;  // empty once DELETED
  uint32_t receipt_count = 0;
  std::vector<std::string> metadata_node_ids;  // where METADATA objects of the import go
  // From commit on.
  model::MetadataObject manifest;
  model::MetadataObject affinity;
  Sha256Digest payload_keys_sha256{};
  uint64_t payload_count = 0;
  uint64_t logical_payload_bytes = 0;
  uint64_t affinity_count = 0;
  Sha256Digest digests_root_sha256{};
  std::string degraded_reason;  // empty unless DEGRADED
  int64_t last_access_ms = 0;   // logged time of the last lease; 0: never
  std::set<LeaseId> leases;

  std::optional<uint32_t> ParticipantIndex(std::string_view participant_id) const;
  bool AllReceived() const { return receipt_count == participants.size(); }
};

struct Lease {
  LeaseId lease_id;
  ImportId import_id;
  uint64_t ttl_ms = 0;
  std::string holder;
  int64_t acquired_ms = 0;  // logged time
};

// Why an import was aborted, and as what its writers are told so.
struct Abort {
  ImportId import_id;
  std::string reason;
  Code code = Code::kCancelled;
  std::string tenant_id;  // empty: recorded before tenants were
};

struct ListQuery {
  std::string tenant_id;
  std::string name_space;                      // empty: all
  std::string resource_id;                     // empty: all
  std::set<model::Availability> availability;  // empty: READY and DEGRADED
  uint32_t page_size = 0;                      // 0: 100; at most 1000
  std::string page_token;                      // from the page before; empty: the first
};
struct ListPage {
  std::vector<const Revision*> revisions;  // in identity order; valid until the next Apply
  std::string next_page_token;             // empty: this was the last page
};

class Catalog {
 public:
  // Total: an event that does not fit the state is CORRUPT (replay must stop) and changes nothing.
  [[nodiscard]] Status Apply(const Event& event, int64_t logged_ms);

  // Any record: IMPORTING ones and tombstones too. Callers that answer users go through decide.h.
  const Revision* Find(const model::WeightIdentity& identity) const;
  const Revision* FindImport(ImportId id) const;

  // OPEN, COMMITTED (whatever became of the revision since) or ABORTED. NOT_FOUND: never begun.
  Result<model::ImportState> StateOfImport(ImportId id) const;
  // Of one of the last kAbortReasonsKept aborted imports; else nullptr, and empty.
  const Abort* FindAbort(ImportId id) const;
  std::string AbortReason(ImportId id) const;

  const Lease* FindLease(LeaseId id) const;
  // NOT_FOUND: never given. LEASE_EXPIRED: given, and ended since.
  Result<const Lease*> GetLease(LeaseId id) const;

  // What users see of a revision.
  model::RevisionMetadata MetadataOf(const Revision& revision) const;

  // INVALID_ARGUMENT: no tenant, page_size above 1000, a token that is bad or of another query. A
  // call looks at a bounded number of records: a page may be short (even empty) and still have a
  // successor.
  Result<ListPage> List(const ListQuery& query) const;

  const WalkedMap<ImportId, Revision>& revisions() const { return revisions_; }
  const WalkedMap<LeaseId, Lease>& leases() const { return leases_; }
  const std::deque<Abort>& aborts() const { return aborts_; }
  const std::set<ImportId>& open_imports() const { return open_; }
  const std::set<ImportId>& deleting() const { return deleting_; }
  // Indexed by model::Availability.
  const std::array<uint64_t, model::kAvailabilityMax + 1>& counts() const { return counts_; }

  ImportId next_import_id() const { return ImportId(next_import_id_); }
  LeaseId next_lease_id() const { return LeaseId(next_lease_id_); }

  Status CheckInvariants() const;

  // SHA-256 over the whole state in a canonical order.
  Sha256Digest Digest() const;

  static constexpr size_t kAbortReasonsKept = 256;

 private:
  friend class SnapshotLoader;

  Status ApplyOne(const ImportBegun& event, int64_t logged_ms);
  Status ApplyOne(const Claimed& event, int64_t logged_ms);
  Status ApplyOne(const ReceiptAccepted& event, int64_t logged_ms);
  Status ApplyOne(const Committed& event, int64_t logged_ms);
  Status ApplyOne(const Aborted& event, int64_t logged_ms);
  Status ApplyOne(const AvailabilityChanged& event, int64_t logged_ms);
  Status ApplyOne(const LeaseAcquired& event, int64_t logged_ms);
  Status ApplyOne(const LeasesEnded& event, int64_t logged_ms);
  Status ApplyOne(const DeletionBegun& event, int64_t logged_ms);
  Status ApplyOne(const Deleted& event, int64_t logged_ms);

  Revision* FindMutable(ImportId id);
  void Move(Revision& revision, model::Availability to, model::Residency residency);

  WalkedMap<ImportId, Revision> revisions_;
  WalkedMap<model::WeightIdentity, ImportId> by_identity_;
  WalkedMap<LeaseId, Lease> leases_;
  std::set<ImportId> open_;
  std::set<ImportId> deleting_;
  std::array<uint64_t, model::kAvailabilityMax + 1> counts_{};
  std::deque<Abort> aborts_;  // oldest first
  uint64_t next_import_id_ = 1;
  uint64_t next_lease_id_ = 1;
};

}  // namespace mooncake::weights
