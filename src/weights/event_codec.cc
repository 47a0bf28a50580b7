#include "weights/event_codec.h"

#include "codec/log_event.h"
#include "codec/values.h"

namespace mooncake::weights {
namespace {

// ---- encode ----

v1::LogEvent Encode(const ImportBegun& event) {
  v1::RevisionEvent body;
  auto& begun = *body.mutable_import_begun();
  codec::ToProto(event.identity, begun.mutable_identity());
  begun.set_import_id(event.import_id.value);
  begun.set_placement_id(event.placement_id);
  begun.set_plan_sha256(codec::BytesOf(event.plan_sha256));
  for (const std::string& participant : event.participants) begun.add_participants(participant);
  begun.set_created_at(event.created_at);
  codec::ToProto(event.policy, begun.mutable_policy());
  begun.set_policy_note(event.policy_note);
  begun.set_ttl_ms(event.ttl_ms);
  for (const std::string& node_id : event.metadata_node_ids) begun.add_metadata_node_ids(node_id);
  return codec::SealEvent(v1::EVENT_KIND_REVISION, kEventVersion, body);
}

v1::LogEvent Encode(const Claimed& event) {
  v1::RevisionEvent body;
  auto& claimed = *body.mutable_claimed();
  claimed.set_import_id(event.import_id.value);
  claimed.set_participant(event.participant);
  claimed.set_client_id(event.client_id);
  claimed.set_ttl_ms(event.ttl_ms);
  return codec::SealEvent(v1::EVENT_KIND_REVISION, kEventVersion, body);
}

v1::LogEvent Encode(const ReceiptAccepted& event) {
  v1::RevisionEvent body;
  auto& receipt = *body.mutable_receipt_accepted();
  receipt.set_import_id(event.import_id.value);
  receipt.set_participant(event.participant);
  codec::ToProto(event.digests, receipt.mutable_digests());
  return codec::SealEvent(v1::EVENT_KIND_REVISION, kEventVersion, body);
}

v1::LogEvent Encode(const Committed& event) {
  v1::RevisionEvent body;
  auto& committed = *body.mutable_committed();
  committed.set_import_id(event.import_id.value);
  codec::ToProto(event.manifest, committed.mutable_manifest());
  codec::ToProto(event.affinity, committed.mutable_affinity());
  committed.set_payload_keys_sha256(codec::BytesOf(event.payload_keys_sha256));
  committed.set_payload_count(event.payload_count);
  committed.set_logical_payload_bytes(event.logical_payload_bytes);
  committed.set_affinity_count(event.affinity_count);
  committed.set_digests_root_sha256(codec::BytesOf(event.digests_root_sha256));
  return codec::SealEvent(v1::EVENT_KIND_REVISION, kEventVersion, body);
}

v1::LogEvent Encode(const Aborted& event) {
  v1::RevisionEvent body;
  body.mutable_aborted()->set_import_id(event.import_id.value);
  body.mutable_aborted()->set_reason(event.reason);
  body.mutable_aborted()->set_code(AbortCodeToLog(event.code));
  body.mutable_aborted()->set_tenant_id(event.tenant_id);
  return codec::SealEvent(v1::EVENT_KIND_REVISION, kEventVersion, body);
}

v1::LogEvent Encode(const AvailabilityChanged& event) {
  v1::RevisionEvent body;
  auto& changed = *body.mutable_availability_changed();
  changed.set_import_id(event.import_id.value);
  changed.set_availability(static_cast<v1::Availability>(event.availability));
  changed.set_reason(event.reason);
  return codec::SealEvent(v1::EVENT_KIND_REVISION, kEventVersion, body);
}

v1::LogEvent Encode(const LeaseAcquired& event) {
  v1::LeaseEvent body;
  auto& acquired = *body.mutable_acquired();
  acquired.set_lease_id(event.lease_id.value);
  acquired.set_import_id(event.import_id.value);
  acquired.set_ttl_ms(event.ttl_ms);
  acquired.set_holder(event.holder);
  return codec::SealEvent(v1::EVENT_KIND_LEASE, kEventVersion, body);
}

v1::LogEvent Encode(const LeasesEnded& event) {
  v1::LeaseEvent body;
  auto& ended = *body.mutable_ended();
  for (const LeaseId id : event.lease_ids) ended.add_lease_ids(id.value);
  ended.set_expired(event.expired);
  return codec::SealEvent(v1::EVENT_KIND_LEASE, kEventVersion, body);
}

v1::LogEvent Encode(const DeletionBegun& event) {
  v1::TombstoneEvent body;
  body.mutable_deletion_begun()->set_import_id(event.import_id.value);
  return codec::SealEvent(v1::EVENT_KIND_TOMBSTONE, kEventVersion, body);
}

v1::LogEvent Encode(const Deleted& event) {
  v1::TombstoneEvent body;
  body.mutable_deleted()->set_import_id(event.import_id.value);
  return codec::SealEvent(v1::EVENT_KIND_TOMBSTONE, kEventVersion, body);
}

// ---- decode ----

Result<Event> DecodeBegun(const v1::RevisionEvent::ImportBegun& begun) {
  ImportBegun event;
  event.identity = codec::FromProto(begun.identity());
  event.import_id = ImportId(begun.import_id());
  event.placement_id = begun.placement_id();
  MC_ASSIGN_OR_RETURN(event.plan_sha256, codec::DigestFromLog("plan_sha256", begun.plan_sha256()));
  event.participants = {begun.participants().begin(), begun.participants().end()};
  event.created_at = begun.created_at();
  MC_ASSIGN_OR_RETURN(event.policy, codec::FromLog(begun.policy()));
  if (const Status valid = ValidatePolicy(event.policy); !valid.ok()) return codec::AsDamage(valid);
  event.policy_note = begun.policy_note();
  event.ttl_ms = begun.ttl_ms();
  event.metadata_node_ids = {begun.metadata_node_ids().begin(), begun.metadata_node_ids().end()};
  return Event(std::move(event));
}

Result<Event> DecodeCommitted(const v1::RevisionEvent::Committed& committed) {
  Committed event;
  event.import_id = ImportId(committed.import_id());
  MC_ASSIGN_OR_RETURN(event.manifest, codec::FromLog(committed.manifest()));
  MC_ASSIGN_OR_RETURN(event.affinity, codec::FromLog(committed.affinity()));
  MC_ASSIGN_OR_RETURN(event.payload_keys_sha256,
                      codec::DigestFromLog("payload_keys_sha256", committed.payload_keys_sha256()));
  event.payload_count = committed.payload_count();
  event.logical_payload_bytes = committed.logical_payload_bytes();
  event.affinity_count = committed.affinity_count();
  MC_ASSIGN_OR_RETURN(event.digests_root_sha256,
                      codec::DigestFromLog("digests_root_sha256", committed.digests_root_sha256()));
  return Event(std::move(event));
}

Result<Event> DecodeAborted(const v1::RevisionEvent::Aborted& aborted) {
  Aborted event{ImportId(aborted.import_id()), aborted.reason()};
  MC_ASSIGN_OR_RETURN(event.code, AbortCodeFromLog(aborted.code()));
  event.tenant_id = aborted.tenant_id();
  return Event(std::move(event));
}

Result<Event> DecodeRevision(const std::string& bytes) {
  v1::RevisionEvent body;
  if (!body.ParseFromString(bytes)) return Corrupt("a logged revision event is malformed");
  switch (body.event_case()) {
    case v1::RevisionEvent::kImportBegun:
      return DecodeBegun(body.import_begun());
    case v1::RevisionEvent::kClaimed: {
      const auto& claimed = body.claimed();
      return Event(Claimed{ImportId(claimed.import_id()), claimed.participant(),
                           claimed.client_id(), claimed.ttl_ms()});
    }
    case v1::RevisionEvent::kReceiptAccepted: {
      const auto& receipt = body.receipt_accepted();
      ReceiptAccepted event{ImportId(receipt.import_id()), receipt.participant(), {}};
      MC_ASSIGN_OR_RETURN(event.digests, codec::FromLog(receipt.digests()));
      return Event(std::move(event));
    }
    case v1::RevisionEvent::kCommitted:
      return DecodeCommitted(body.committed());
    case v1::RevisionEvent::kAborted:
      return DecodeAborted(body.aborted());
    case v1::RevisionEvent::kAvailabilityChanged: {
      const auto& changed = body.availability_changed();
      if (changed.availability() != v1::AVAILABILITY_READY &&
          changed.availability() != v1::AVAILABILITY_DEGRADED) {
        return Corrupt("a logged change of availability is to number " +
                       std::to_string(static_cast<int>(changed.availability())));
      }
      return Event(AvailabilityChanged{ImportId(changed.import_id()),
                                       static_cast<model::Availability>(changed.availability()),
                                       changed.reason()});
    }
    case v1::RevisionEvent::EVENT_NOT_SET:
      break;
  }
  return Corrupt("a logged revision event is empty");
}

Result<Event> DecodeLease(const std::string& bytes) {
  v1::LeaseEvent body;
  if (!body.ParseFromString(bytes)) return Corrupt("a logged lease event is malformed");
  switch (body.event_case()) {
    case v1::LeaseEvent::kAcquired: {
      const auto& acquired = body.acquired();
      return Event(LeaseAcquired{LeaseId(acquired.lease_id()), ImportId(acquired.import_id()),
                                 acquired.ttl_ms(), acquired.holder()});
    }
    case v1::LeaseEvent::kEnded: {
      LeasesEnded event;
      for (const uint64_t id : body.ended().lease_ids()) event.lease_ids.emplace_back(id);
      event.expired = body.ended().expired();
      return Event(std::move(event));
    }
    case v1::LeaseEvent::EVENT_NOT_SET:
      break;
  }
  return Corrupt("a logged lease event is empty");
}

Result<Event> DecodeTombstone(const std::string& bytes) {
  v1::TombstoneEvent body;
  if (!body.ParseFromString(bytes)) return Corrupt("a logged tombstone event is malformed");
  switch (body.event_case()) {
    case v1::TombstoneEvent::kDeletionBegun:
      return Event(DeletionBegun{ImportId(body.deletion_begun().import_id())});
    case v1::TombstoneEvent::kDeleted:
      return Event(Deleted{ImportId(body.deleted().import_id())});
    case v1::TombstoneEvent::EVENT_NOT_SET:
      break;
  }
  return Corrupt("a logged tombstone event is empty");
}

}  // namespace

uint32_t AbortCodeToLog(Code code) {
  return code == Code::kCancelled ? 0 : static_cast<uint32_t>(code);
}

Result<Code> AbortCodeFromLog(uint32_t number) {
  if (number == 0) return Code::kCancelled;
  if (number == static_cast<uint32_t>(Code::kConflict)) return Code::kConflict;
  return Corrupt("an import is aborted with code " + std::to_string(number) + ": expected 0 or " +
                 std::to_string(static_cast<int>(Code::kConflict)));
}

bool HandlesKind(uint32_t kind) {
  return kind == v1::EVENT_KIND_REVISION || kind == v1::EVENT_KIND_LEASE ||
         kind == v1::EVENT_KIND_TOMBSTONE;
}

v1::LogEvent EncodeEvent(const Event& event) {
  return std::visit([](const auto& one) { return Encode(one); }, event);
}

Result<Event> DecodeEvent(const v1::LogEvent& logged) {
  if (!HandlesKind(logged.kind())) {
    return Unsupported("event kind " + std::to_string(logged.kind()) +
                       " is not the weight catalogue's");
  }
  MC_RETURN_IF_ERROR(codec::CheckReader(logged, kEventVersion));
  switch (logged.kind()) {
    case v1::EVENT_KIND_REVISION:
      return DecodeRevision(logged.body());
    case v1::EVENT_KIND_LEASE:
      return DecodeLease(logged.body());
    default:
      return DecodeTombstone(logged.body());
  }
}

}  // namespace mooncake::weights
