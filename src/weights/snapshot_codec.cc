#include "weights/snapshot_codec.h"

#include <utility>

#include "codec/values.h"
#include "weights/event_codec.h"

namespace mooncake::weights {
namespace {

using Record = v1::WeightsRecord;
using Sink = std::function<void(std::string_view)>;

void SaveParticipant(const Participant& participant, Record::Participant* out) {
  out->set_participant_id(participant.participant_id);
  out->set_state(static_cast<uint32_t>(participant.state));
  out->set_client_id(participant.client_id);
  out->set_ttl_ms(participant.ttl_ms);
  codec::ToProto(participant.digests, out->mutable_digests());
}

void SaveRevision(const Revision& revision, const Sink& add) {
  Record record;
  Record::Revision& out = *record.mutable_revision();
  codec::ToProto(revision.identity, out.mutable_identity());
  out.set_import_id(revision.import_id.value);
  out.set_availability(static_cast<v1::Availability>(revision.availability));
  out.set_residency(static_cast<v1::Residency>(revision.residency));
  codec::ToProto(revision.policy, out.mutable_policy());
  out.set_policy_note(revision.policy_note);
  out.set_metadata_generation(revision.metadata_generation.value);
  out.set_placement_id(revision.placement_id);
  out.set_plan_sha256(codec::BytesOf(revision.plan_sha256));
  out.set_created_at(revision.created_at);
  out.set_ttl_ms(revision.ttl_ms);
  for (const Participant& participant : revision.participants) {
    SaveParticipant(participant, out.add_participants());
  }
  for (const std::string& node_id : revision.metadata_node_ids) out.add_metadata_node_ids(node_id);
  codec::ToProto(revision.manifest, out.mutable_manifest());
  codec::ToProto(revision.affinity, out.mutable_affinity());
  out.set_payload_keys_sha256(codec::BytesOf(revision.payload_keys_sha256));
  out.set_payload_count(revision.payload_count);
  out.set_logical_payload_bytes(revision.logical_payload_bytes);
  out.set_affinity_count(revision.affinity_count);
  out.set_digests_root_sha256(codec::BytesOf(revision.digests_root_sha256));
  out.set_degraded_reason(revision.degraded_reason);
  out.set_last_access_ms(revision.last_access_ms);
  add(record.SerializeAsString());
}

Status LoadParticipant(const Record::Participant& record, Revision* revision) {
  if (record.state() > static_cast<uint32_t>(model::ParticipantState::kReceived)) {
    return Corrupt("participant " + record.participant_id() + " is in state " +
                   std::to_string(record.state()));
  }
  Participant& participant = revision->participants.emplace_back();
  participant.participant_id = record.participant_id();
  participant.state = static_cast<model::ParticipantState>(record.state());
  participant.client_id = record.client_id();
  participant.ttl_ms = record.ttl_ms();
  MC_ASSIGN_OR_RETURN(participant.digests, codec::FromLog(record.digests()));
  if (participant.state == model::ParticipantState::kReceived) ++revision->receipt_count;
  return OkStatus();
}

Status LoadFacts(const Record::Revision& record, Revision* revision) {
  revision->identity = codec::FromProto(record.identity());
  revision->import_id = ImportId(record.import_id());
  if (record.availability() < 1 || record.availability() > model::kAvailabilityMax ||
      record.residency() < model::kResidencyMin || record.residency() > model::kResidencyMax) {
    return Corrupt("availability " + std::to_string(record.availability()) + " and residency " +
                   std::to_string(record.residency()));
  }
  revision->availability = static_cast<model::Availability>(record.availability());
  revision->residency = static_cast<model::Residency>(record.residency());
  MC_ASSIGN_OR_RETURN(revision->policy, codec::FromLog(record.policy()));
  revision->policy_note = record.policy_note();
  revision->metadata_generation = model::MetadataGeneration(record.metadata_generation());
  revision->placement_id = record.placement_id();
  MC_ASSIGN_OR_RETURN(revision->plan_sha256,
                      codec::DigestFromLog("plan_sha256", record.plan_sha256()));
  revision->created_at = record.created_at();
  revision->ttl_ms = record.ttl_ms();
  revision->metadata_node_ids = {record.metadata_node_ids().begin(),
                                 record.metadata_node_ids().end()};
  MC_ASSIGN_OR_RETURN(revision->manifest, codec::FromLog(record.manifest()));
  MC_ASSIGN_OR_RETURN(revision->affinity, codec::FromLog(record.affinity()));
  MC_ASSIGN_OR_RETURN(revision->payload_keys_sha256,
                      codec::DigestFromLog("payload_keys_sha256", record.payload_keys_sha256()));
  revision->payload_count = record.payload_count();
  revision->logical_payload_bytes = record.logical_payload_bytes();
  revision->affinity_count = record.affinity_count();
  MC_ASSIGN_OR_RETURN(revision->digests_root_sha256,
                      codec::DigestFromLog("digests_root_sha256", record.digests_root_sha256()));
  revision->degraded_reason = record.degraded_reason();
  revision->last_access_ms = record.last_access_ms();
  for (const Record::Participant& participant : record.participants()) {
    MC_RETURN_IF_ERROR(LoadParticipant(participant, revision));
  }
  return OkStatus();
}

}  // namespace

void SaveSnapshot(const Catalog& catalog, const Sink& add) {
  Record counters;
  counters.mutable_counters()->set_next_import_id(catalog.next_import_id().value);
  counters.mutable_counters()->set_next_lease_id(catalog.next_lease_id().value);
  add(counters.SerializeAsString());
  for (const auto& [id, revision] : catalog.revisions()) SaveRevision(revision, add);
  for (const auto& [id, lease] : catalog.leases()) {
    Record record;
    Record::Lease& out = *record.mutable_lease();
    out.set_lease_id(id.value);
    out.set_import_id(lease.import_id.value);
    out.set_ttl_ms(lease.ttl_ms);
    out.set_holder(lease.holder);
    out.set_acquired_ms(lease.acquired_ms);
    add(record.SerializeAsString());
  }
  for (const Abort& abort : catalog.aborts()) {
    Record record;
    record.mutable_abort_reason()->set_import_id(abort.import_id.value);
    record.mutable_abort_reason()->set_reason(abort.reason);
    record.mutable_abort_reason()->set_code(AbortCodeToLog(abort.code));
    record.mutable_abort_reason()->set_tenant_id(abort.tenant_id);
    add(record.SerializeAsString());
  }
}

Status SnapshotLoader::Add(std::string_view bytes) {
  Record record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Corrupt(std::to_string(bytes.size()) + " bytes that are no WeightsRecord");
  }
  switch (record.record_case()) {
    case Record::kCounters:
      return Load(record.counters());
    case Record::kRevision:
      return Load(record.revision());
    case Record::kLease:
      return Load(record.lease());
    case Record::kAbortReason:
      return Load(record.abort_reason());
    case Record::RECORD_NOT_SET:
      break;
  }
  return Corrupt("a WeightsRecord without content, or of a kind that is not known here");
}

Status SnapshotLoader::Load(const Record::Counters& counters) {
  if (std::exchange(has_counters_, true)) return Corrupt("the counters are there twice");
  catalog_.next_import_id_ = counters.next_import_id();
  catalog_.next_lease_id_ = counters.next_lease_id();
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::Revision& record) {
  const ImportId id(record.import_id());
  const std::string what = "import " + std::to_string(id.value);
  Revision revision;
  MC_RETURN_IF_ERROR(LoadFacts(record, &revision).WithContext(what));
  if (!catalog_.by_identity_.emplace(revision.identity, id).second ||
      catalog_.revisions_.contains(id)) {
    return Corrupt(what + " (" + Describe(revision.identity) + ") is there twice");
  }
  catalog_.counts_[static_cast<size_t>(revision.availability)] += 1;
  if (revision.availability == model::Availability::kImporting) catalog_.open_.insert(id);
  if (revision.availability == model::Availability::kDeleting) catalog_.deleting_.insert(id);
  catalog_.revisions_.emplace(id, std::move(revision));
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::Lease& record) {
  const LeaseId id(record.lease_id());
  Revision* revision = catalog_.FindMutable(ImportId(record.import_id()));
  if (revision == nullptr || !revision->leases.insert(id).second) {
    return Corrupt("lease " + std::to_string(id.value) + " of import " +
                   std::to_string(record.import_id()) + " names no revision, or is there twice");
  }
  catalog_.leases_[id] = {id, revision->import_id, record.ttl_ms(), record.holder(),
                          record.acquired_ms()};
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::AbortReason& record) {
  MC_ASSIGN_OR_RETURN(const Code code, AbortCodeFromLog(record.code()));
  catalog_.aborts_.push_back(
      {ImportId(record.import_id()), record.reason(), code, record.tenant_id()});
  if (catalog_.aborts_.size() <= Catalog::kAbortReasonsKept) return OkStatus();
  return Corrupt("more than " + std::to_string(Catalog::kAbortReasonsKept) + " abort reasons");
}

}  // namespace mooncake::weights
