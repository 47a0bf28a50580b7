// Catalog::CheckInvariants and Catalog::Digest: both walk the whole state.

#include <algorithm>

#include "model/state_digest.h"
#include "weights/catalog.h"

namespace mooncake::weights {
namespace {

using model::Availability;
using model::ParticipantState;

Status CheckParticipants(const Revision& revision, const std::string& name) {
  uint32_t received = 0;
  for (const Participant& participant : revision.participants) {
    if (participant.state == ParticipantState::kReceived) ++received;
    const bool claimed = participant.state == ParticipantState::kClaimed;
    if (claimed && participant.client_id.empty()) return Internal(name + " has a claim of nobody");
  }
  if (received != revision.receipt_count) {
    return Internal(name + " counts " + std::to_string(revision.receipt_count) +
                    " receipts and has " + std::to_string(received));
  }
  const bool committed = revision.availability != Availability::kImporting;
  if (committed && !revision.AllReceived()) {
    return Internal(name + " is " + std::string(Name(revision.availability)) + " with " +
                    std::to_string(received) + " of " +
                    std::to_string(revision.participants.size()) + " receipts");
  }
  if (committed && revision.availability != Availability::kDeleted &&
      revision.participants.empty()) {
    return Internal(name + " has no participants");
  }
  return OkStatus();
}

}  // namespace

Status Catalog::CheckInvariants() const {
  std::array<uint64_t, model::kAvailabilityMax + 1> counts{};
  size_t leases = 0;
  for (const auto& [id, revision] : revisions_) {
    const std::string name = "import " + std::to_string(id.value);
    if (id != revision.import_id || id.value >= next_import_id_) {
      return Internal(name + " is recorded under a wrong id");
    }
    const auto named = by_identity_.find(revision.identity);
    if (named == by_identity_.end() || named->second != id) {
      return Internal(name + " is not found by its identity");
    }
    if (!IsAllowed(revision.availability, revision.residency)) {
      return Internal(name + " is " + std::string(Name(revision.availability)) + " and " +
                      std::string(Name(revision.residency)));
    }
    MC_RETURN_IF_ERROR(CheckParticipants(revision, name));
    counts[static_cast<size_t>(revision.availability)] += 1;
    if (open_.contains(id) != (revision.availability == Availability::kImporting) ||
        deleting_.contains(id) != (revision.availability == Availability::kDeleting)) {
      return Internal(name + " is indexed under another availability");
    }
    if (!revision.leases.empty() && !IsDiscoverable(revision.availability)) {
      return Internal(name + " is " + std::string(Name(revision.availability)) + " and has leases");
    }
    leases += revision.leases.size();
    for (const LeaseId lease_id : revision.leases) {
      const Lease* lease = FindLease(lease_id);
      if (lease == nullptr || lease->import_id != id || lease->lease_id != lease_id ||
          lease_id.value >= next_lease_id_) {
        return Internal(name + " names a lease that is not its own");
      }
    }
  }
  if (leases != leases_.size()) return Internal("a lease names no revision");
  if (by_identity_.size() != revisions_.size()) return Internal("an identity names no record");
  if (counts != counts_) return Internal("counts by availability differ");
  return OkStatus();
}

Sha256Digest Catalog::Digest() const {
  model::StateDigest digest;
  digest.Text("weights 1");
  digest.Number(next_import_id_);
  digest.Number(next_lease_id_);
  digest.Number(revisions_.size());
  for (const auto& [id, revision] : revisions_) {
    digest.Identity(revision.identity);
    digest.Number(id.value);
    digest.Number(static_cast<uint64_t>(revision.availability));
    digest.Number(static_cast<uint64_t>(revision.residency));
    digest.Policy(revision.policy);
    digest.Text(revision.policy_note);
    digest.Number(revision.metadata_generation.value);
    digest.Text(revision.placement_id);
    digest.Hash(revision.plan_sha256);
    digest.Text(revision.created_at);
    digest.Number(revision.ttl_ms);
    digest.Number(revision.participants.size());
    for (const Participant& participant : revision.participants) {
      digest.Text(participant.participant_id);
      digest.Number(static_cast<uint64_t>(participant.state));
      digest.Text(participant.client_id);
      digest.Number(participant.ttl_ms);
      digest.Metadata(participant.digests);
    }
    digest.Number(revision.metadata_node_ids.size());
    for (const std::string& node_id : revision.metadata_node_ids) digest.Text(node_id);
    digest.Metadata(revision.manifest);
    digest.Metadata(revision.affinity);
    digest.Hash(revision.payload_keys_sha256);
    digest.Number(revision.payload_count);
    digest.Number(revision.logical_payload_bytes);
    digest.Number(revision.affinity_count);
    digest.Hash(revision.digests_root_sha256);
    digest.Text(revision.degraded_reason);
    digest.Number(static_cast<uint64_t>(revision.last_access_ms));
  }
  digest.Number(leases_.size());
  for (const auto& [id, lease] : leases_) {
    digest.Number(id.value);
    digest.Number(lease.import_id.value);
    digest.Number(lease.ttl_ms);
    digest.Text(lease.holder);
    digest.Number(static_cast<uint64_t>(lease.acquired_ms));
  }
  digest.Number(aborts_.size());
  for (const Abort& abort : aborts_) {
    digest.Number(abort.import_id.value);
    digest.Text(abort.reason);
    // Only where it says something: snapshots that name their state's digest are older than codes
    // and tenants here.
    if (abort.code != Code::kCancelled) digest.Number(static_cast<uint64_t>(abort.code));
    if (!abort.tenant_id.empty()) digest.Text(abort.tenant_id);
  }
  return digest.Finish();
}

}  // namespace mooncake::weights
