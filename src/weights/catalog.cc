#include "weights/catalog.h"

#include <algorithm>
#include <utility>

namespace mooncake::weights {
namespace {

using model::Availability;
using model::ParticipantState;
using model::Residency;

std::string Text(ImportId id) { return "import " + std::to_string(id.value); }
std::string Text(LeaseId id) { return "lease " + std::to_string(id.value); }

Status WrongState(const char* what, const Revision& revision) {
  return Corrupt(std::string(what) + " of " + Text(revision.import_id) + ", which is " +
                 std::string(Name(revision.availability)));
}

Status Unknown(const char* what, ImportId id) {
  return Corrupt(std::string(what) + " of " + Text(id) + ", which does not exist");
}

bool HasDuplicates(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

}  // namespace

std::optional<uint32_t> Revision::ParticipantIndex(std::string_view participant_id) const {
  for (size_t i = 0; i < participants.size(); ++i) {
    if (participants[i].participant_id == participant_id) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

// ---- lookups ----

const Revision* Catalog::Find(const model::WeightIdentity& identity) const {
  const auto it = by_identity_.find(identity);
  return it == by_identity_.end() ? nullptr : FindImport(it->second);
}

const Revision* Catalog::FindImport(ImportId id) const {
  const auto it = revisions_.find(id);
  return it == revisions_.end() ? nullptr : &it->second;
}

Revision* Catalog::FindMutable(ImportId id) {
  const auto it = revisions_.find(id);
  return it == revisions_.end() ? nullptr : &it->second;
}

Result<model::ImportState> Catalog::StateOfImport(ImportId id) const {
  if (id.value == 0 || id.value >= next_import_id_) return NotFound("no " + Text(id));
  const Revision* revision = FindImport(id);
  if (revision == nullptr) return model::ImportState::kAborted;
  return revision->availability == Availability::kImporting ? model::ImportState::kOpen
                                                            : model::ImportState::kCommitted;
}

const Abort* Catalog::FindAbort(ImportId id) const {
  for (const Abort& abort : aborts_) {
    if (abort.import_id == id) return &abort;
  }
  return nullptr;
}

std::string Catalog::AbortReason(ImportId id) const {
  const Abort* abort = FindAbort(id);
  return abort == nullptr ? "" : abort->reason;
}

const Lease* Catalog::FindLease(LeaseId id) const {
  const auto it = leases_.find(id);
  return it == leases_.end() ? nullptr : &it->second;
}

Result<const Lease*> Catalog::GetLease(LeaseId id) const {
  if (id.value == 0 || id.value >= next_lease_id_) return NotFound("no " + Text(id));
  const Lease* lease = FindLease(id);
  if (lease == nullptr) return LeaseExpired(Text(id) + " has ended");
  return lease;
}

model::RevisionMetadata Catalog::MetadataOf(const Revision& revision) const {
  model::RevisionMetadata metadata;
  metadata.identity = revision.identity;
  metadata.import_id = revision.import_id;
  metadata.availability = revision.availability;
  metadata.observed_residency = revision.residency;
  metadata.observed_hot_ratio = revision.residency == Residency::kHot ? 1.0 : 0.0;
  metadata.policy = revision.policy;
  metadata.metadata_generation = revision.metadata_generation;
  metadata.group_id = model::GroupId(revision.identity);
  metadata.manifest_key = model::ManifestKey(metadata.group_id);
  metadata.manifest_sha256 = revision.manifest.sha256;
  metadata.payload_keys_sha256 = revision.payload_keys_sha256;
  metadata.payload_count = revision.payload_count;
  metadata.logical_payload_bytes = revision.logical_payload_bytes;
  metadata.affinity_count = revision.affinity_count;
  metadata.affinity_sha256 = revision.affinity.sha256;
  metadata.digests_root_sha256 = revision.digests_root_sha256;
  metadata.created_at = revision.created_at;
  metadata.placement_id = revision.placement_id;
  metadata.state_reason =
      revision.degraded_reason.empty() ? revision.policy_note : revision.degraded_reason;
  metadata.last_access_ms = revision.last_access_ms;
  metadata.active_lease_count = revision.leases.size();
  return metadata;
}

// ---- apply ----

Status Catalog::Apply(const Event& event, int64_t logged_ms) {
  return std::visit([&](const auto& one) { return ApplyOne(one, logged_ms); }, event);
}

void Catalog::Move(Revision& revision, Availability to, Residency residency) {
  counts_[static_cast<size_t>(revision.availability)] -= 1;
  counts_[static_cast<size_t>(to)] += 1;
  revision.availability = to;
  revision.residency = residency;
  revision.metadata_generation.value += 1;
}

Status Catalog::ApplyOne(const ImportBegun& event, int64_t) {
  if (event.import_id.value < next_import_id_ || event.import_id.value == UINT64_MAX) {
    return Corrupt(Text(event.import_id) + " was given already: the next one is " +
                   std::to_string(next_import_id_));
  }
  if (by_identity_.contains(event.identity)) {
    return Corrupt(Text(event.import_id) + " begins " + Describe(event.identity) +
                   ", which has a record already");
  }
  if (event.participants.empty() || HasDuplicates(event.participants)) {
    return Corrupt(Text(event.import_id) + " begins without participants, or names one twice");
  }
  next_import_id_ = event.import_id.value + 1;
  by_identity_.emplace(event.identity, event.import_id);
  open_.insert(event.import_id);
  counts_[static_cast<size_t>(Availability::kImporting)] += 1;
  Revision& revision = revisions_[event.import_id];
  revision.identity = event.identity;
  revision.import_id = event.import_id;
  revision.policy = event.policy;
  revision.policy_note = event.policy_note;
  revision.placement_id = event.placement_id;
  revision.plan_sha256 = event.plan_sha256;
  revision.created_at = event.created_at;
  revision.ttl_ms = event.ttl_ms;
  revision.metadata_node_ids = event.metadata_node_ids;
  revision.participants.resize(event.participants.size());
  for (size_t i = 0; i < event.participants.size(); ++i) {
    revision.participants[i].participant_id = event.participants[i];
  }
  return OkStatus();
}

Status Catalog::ApplyOne(const Claimed& event, int64_t) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a claim", event.import_id);
  if (revision->availability != Availability::kImporting) return WrongState("a claim", *revision);
  if (event.participant >= revision->participants.size() || event.client_id.empty() ||
      revision->participants[event.participant].state != ParticipantState::kUnclaimed) {
    return Corrupt("participant " + std::to_string(event.participant) + " of " +
                   Text(event.import_id) + " cannot be claimed");
  }
  Participant& participant = revision->participants[event.participant];
  participant.state = ParticipantState::kClaimed;
  participant.client_id = event.client_id;
  participant.ttl_ms = event.ttl_ms;
  return OkStatus();
}

Status Catalog::ApplyOne(const ReceiptAccepted& event, int64_t) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a receipt", event.import_id);
  if (revision->availability != Availability::kImporting) {
    return WrongState("a receipt", *revision);
  }
  if (event.participant >= revision->participants.size() ||
      revision->participants[event.participant].state != ParticipantState::kClaimed) {
    return Corrupt("participant " + std::to_string(event.participant) + " of " +
                   Text(event.import_id) + " has no receipt to give");
  }
  Participant& participant = revision->participants[event.participant];
  participant.state = ParticipantState::kReceived;
  participant.digests = event.digests;
  revision->receipt_count += 1;
  return OkStatus();
}

Status Catalog::ApplyOne(const Committed& event, int64_t) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a commit", event.import_id);
  if (revision->availability != Availability::kImporting) return WrongState("a commit", *revision);
  if (!revision->AllReceived()) {
    return Corrupt(Text(event.import_id) + " is committed with " +
                   std::to_string(revision->receipt_count) + " of " +
                   std::to_string(revision->participants.size()) + " receipts");
  }
  revision->manifest = event.manifest;
  revision->affinity = event.affinity;
  revision->payload_keys_sha256 = event.payload_keys_sha256;
  revision->payload_count = event.payload_count;
  revision->logical_payload_bytes = event.logical_payload_bytes;
  revision->affinity_count = event.affinity_count;
  revision->digests_root_sha256 = event.digests_root_sha256;
  for (Participant& participant : revision->participants) {
    participant.client_id.clear();
    participant.ttl_ms = 0;
  }
  open_.erase(event.import_id);
  Move(*revision, Availability::kReady, Residency::kHot);
  return OkStatus();
}

Status Catalog::ApplyOne(const Aborted& event, int64_t) {
  const auto it = revisions_.find(event.import_id);
  if (it == revisions_.end()) return Unknown("an abort", event.import_id);
  if (it->second.availability != Availability::kImporting) {
    return WrongState("an abort", it->second);
  }
  counts_[static_cast<size_t>(Availability::kImporting)] -= 1;
  open_.erase(event.import_id);
  by_identity_.erase(it->second.identity);
  revisions_.erase(it);
  aborts_.push_back({event.import_id, event.reason, event.code, event.tenant_id});
  if (aborts_.size() > kAbortReasonsKept) aborts_.pop_front();
  return OkStatus();
}

Status Catalog::ApplyOne(const AvailabilityChanged& event, int64_t) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a change of availability", event.import_id);
  if (!IsDiscoverable(revision->availability) || !IsDiscoverable(event.availability)) {
    return WrongState("a change of availability", *revision);
  }
  const bool degraded = event.availability == Availability::kDegraded;
  revision->degraded_reason = degraded ? event.reason : "";
  // Until there is a cold tier, what is readable as a whole is in memory as a whole.
  Move(*revision, event.availability, degraded ? Residency::kUnknown : Residency::kHot);
  return OkStatus();
}

Status Catalog::ApplyOne(const LeaseAcquired& event, int64_t logged_ms) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a lease", event.import_id);
  if (revision->availability != Availability::kReady) return WrongState("a lease", *revision);
  if (event.lease_id.value < next_lease_id_ || event.lease_id.value == UINT64_MAX) {
    return Corrupt(Text(event.lease_id) + " was given already: the next one is " +
                   std::to_string(next_lease_id_));
  }
  next_lease_id_ = event.lease_id.value + 1;
  leases_[event.lease_id] = {event.lease_id, event.import_id, event.ttl_ms, event.holder,
                             logged_ms};
  revision->leases.insert(event.lease_id);
  revision->last_access_ms = logged_ms;
  return OkStatus();
}

Status Catalog::ApplyOne(const LeasesEnded& event, int64_t) {
  std::set<LeaseId> distinct;
  for (const LeaseId id : event.lease_ids) {
    if (!leases_.contains(id) || !distinct.insert(id).second) {
      return Corrupt(Text(id) + " ends but is not held");
    }
  }
  for (const LeaseId id : event.lease_ids) {
    const auto it = leases_.find(id);
    FindMutable(it->second.import_id)->leases.erase(id);
    leases_.erase(it);
  }
  return OkStatus();
}

Status Catalog::ApplyOne(const DeletionBegun& event, int64_t) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a deletion", event.import_id);
  if (!IsDiscoverable(revision->availability)) return WrongState("a deletion", *revision);
  if (!revision->leases.empty()) {
    return Corrupt(Text(event.import_id) + " is deleted under " +
                   std::to_string(revision->leases.size()) + " leases");
  }
  revision->degraded_reason.clear();
  deleting_.insert(event.import_id);
  Move(*revision, Availability::kDeleting, Residency::kUnknown);
  return OkStatus();
}

Status Catalog::ApplyOne(const Deleted& event, int64_t) {
  Revision* revision = FindMutable(event.import_id);
  if (revision == nullptr) return Unknown("a tombstone", event.import_id);
  if (revision->availability != Availability::kDeleting) {
    return WrongState("a tombstone", *revision);
  }
  deleting_.erase(event.import_id);
  // What only readers and publishers needed.
  revision->participants.clear();
  revision->participants.shrink_to_fit();
  revision->receipt_count = 0;
  revision->metadata_node_ids.clear();
  Move(*revision, Availability::kDeleted, Residency::kAbsent);
  return OkStatus();
}

}  // namespace mooncake::weights
