// Decisions about reading, availability and removal.

#include "weights/decide.h"

#include "weights/refusal.h"

namespace mooncake::weights {
namespace {

using model::Availability;
using model::Effect;
using model::RevisionTrigger;

constexpr size_t kHolderBytesMax = 256;

Availability StateOf(const Revision* revision) {
  return revision == nullptr ? Availability::kAbsent : revision->availability;
}

std::string DegradedReason(const Revision* revision) {
  return revision == nullptr ? "" : revision->degraded_reason;
}

std::string Holders(const Catalog& catalog, const Revision& revision) {
  const Lease& oldest = *catalog.FindLease(*revision.leases.begin());
  const size_t count = revision.leases.size();
  return std::to_string(count) + (count == 1 ? " active lease" : " active leases") +
         ", the oldest is lease " + std::to_string(oldest.lease_id.value) + " of " +
         (oldest.holder.empty() ? "an unnamed holder" : oldest.holder);
}

}  // namespace

Result<const Revision*> Query(const Catalog& catalog, const model::WeightIdentity& identity) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(identity));
  const Revision* revision = catalog.Find(identity);
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kQuery, {});
  if (row.effect == Effect::kRefuse) return Refusal(row, Describe(identity));
  return revision;
}

Result<OpenDecision> DecideOpen(const Catalog& catalog, const OpenRevision& command) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(command.identity));
  MC_RETURN_IF_ERROR(ValidateTtl(command.ttl_ms));
  MC_RETURN_IF_ERROR(model::ValidateText("holder", command.holder, kHolderBytesMax));
  const Revision* revision = catalog.Find(command.identity);
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kOpen, {});
  if (row.effect == Effect::kRefuse) {
    return Refusal(row, Describe(command.identity), DegradedReason(revision));
  }
  OpenDecision decision;
  decision.lease_id = catalog.next_lease_id();
  decision.events.emplace_back(
      LeaseAcquired{decision.lease_id, revision->import_id, command.ttl_ms, command.holder});
  return decision;
}

Result<std::vector<Event>> DecideReleaseLease(const Catalog& catalog, LeaseId id) {
  const Result<const Lease*> lease = catalog.GetLease(id);
  if (lease.ok()) return std::vector<Event>{LeasesEnded{{id}, /*expired=*/false}};
  if (lease.status().code() == Code::kLeaseExpired) return std::vector<Event>{};
  return lease.status();
}

std::vector<Event> DecideExpireLeases(const Catalog& catalog, const std::vector<LeaseId>& ids) {
  std::set<LeaseId> held;
  for (const LeaseId id : ids) {
    if (catalog.FindLease(id) != nullptr) held.insert(id);
  }
  if (held.empty()) return {};
  return {LeasesEnded{{held.begin(), held.end()}, /*expired=*/true}};
}

std::vector<Event> DecideMembers(const Catalog& catalog, ImportId id,
                                 const model::MemberFacts& facts) {
  const Revision* revision = catalog.FindImport(id);
  const auto trigger =
      facts.readable ? RevisionTrigger::kMembersBack : RevisionTrigger::kMemberLost;
  const auto& row = LookUp(StateOf(revision), trigger, {});
  if (row.effect != Effect::kChange) return {};
  const std::string reason = facts.readable ? "" : LoggableReason(facts.reason);
  if (row.next == revision->availability && reason == revision->degraded_reason) return {};
  return {AvailabilityChanged{id, row.next, reason}};
}

Result<std::vector<Event>> DecideRemove(const Catalog& catalog, const RemoveWeight& command) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(command.identity));
  const Revision* revision = catalog.Find(command.identity);
  const bool has_lease = revision != nullptr && !revision->leases.empty();
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kRemove, {.has_lease = has_lease});
  if (revision == nullptr) return Refusal(row, Describe(command.identity));
  // A stale caller learns that before it learns who reads: it must look again anyway.
  if (IsDiscoverable(revision->availability) && command.expected_metadata_generation &&
      *command.expected_metadata_generation != revision->metadata_generation) {
    return StaleGeneration(Describe(command.identity) + ": expected metadata_generation " +
                           std::to_string(command.expected_metadata_generation->value) +
                           ", it is " + std::to_string(revision->metadata_generation.value));
  }
  if (row.effect == Effect::kRefuse) {
    const std::string detail = row.code == Code::kBusy ? Holders(catalog, *revision) : "";
    return Refusal(row, Describe(command.identity), detail);
  }
  if (row.effect == Effect::kNothing) return std::vector<Event>{};
  return std::vector<Event>{DeletionBegun{revision->import_id}};
}

std::vector<Event> DecideGroupEmpty(const Catalog& catalog, ImportId id) {
  const auto& row = LookUp(StateOf(catalog.FindImport(id)), RevisionTrigger::kGroupEmpty, {});
  if (row.effect != Effect::kChange) return {};
  return {Deleted{id}};
}

}  // namespace mooncake::weights
