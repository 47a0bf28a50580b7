#include "codec/values.h"

#include <fmt/format.h>

#include <algorithm>

namespace mooncake::codec {
namespace {

Status BadNumber(std::string_view field, int least, int most, int got) {
  return InvalidArgument(fmt::format("expected {} from {} to {}, got {}", field, least, most, got));
}

Result<model::Residency> ResidencyFromProto(std::string_view field, int number) {
  if (number < model::kResidencyMin || number > model::kResidencyMax) {
    return BadNumber(field, model::kResidencyMin, model::kResidencyMax, number);
  }
  return static_cast<model::Residency>(number);
}

v1::Residency NumberOf(model::Residency residency) { return static_cast<v1::Residency>(residency); }

}  // namespace

Result<Sha256Digest> DigestFromBytes(std::string_view field, std::string_view bytes) {
  Sha256Digest digest;
  if (bytes.size() != digest.size()) {
    return InvalidArgument(
        fmt::format("expected {} bytes of {}, got {}", digest.size(), field, bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), digest.begin());
  return digest;
}

std::string BytesOf(const Sha256Digest& digest) { return {digest.begin(), digest.end()}; }

model::WeightIdentity FromProto(const v1::WeightIdentity& proto) {
  return {proto.tenant_id(), proto.name_space(), proto.resource_id(), proto.revision(),
          model::WeightGeneration(proto.weight_generation())};
}

void ToProto(const model::WeightIdentity& identity, v1::WeightIdentity* proto) {
  proto->set_tenant_id(identity.tenant_id);
  proto->set_name_space(identity.name_space);
  proto->set_resource_id(identity.resource_id);
  proto->set_revision(identity.revision);
  proto->set_weight_generation(identity.weight_generation.value);
}

Result<model::StoragePolicy> FromProto(const v1::StoragePolicy& proto) {
  model::StoragePolicy policy;
  MC_ASSIGN_OR_RETURN(policy.preferred_residency,
                      ResidencyFromProto("preferred_residency", proto.preferred_residency()));
  policy.mixed_hot_ratio = proto.mixed_hot_ratio();
  const int mode = proto.migration_mode();
  if (mode < model::kMigrationModeMin || mode > model::kMigrationModeMax) {
    return BadNumber("migration_mode", model::kMigrationModeMin, model::kMigrationModeMax, mode);
  }
  policy.migration_mode = static_cast<model::MigrationMode>(mode);
  return policy;
}

void ToProto(const model::StoragePolicy& policy, v1::StoragePolicy* proto) {
  proto->set_preferred_residency(NumberOf(policy.preferred_residency));
  proto->set_mixed_hot_ratio(policy.mixed_hot_ratio);
  proto->set_migration_mode(static_cast<v1::MigrationMode>(policy.migration_mode));
}

Result<model::MetadataObject> FromProto(const v1::MetadataObject& proto) {
  model::MetadataObject object;
  object.name = proto.name();
  object.bytes = proto.bytes();
  MC_ASSIGN_OR_RETURN(object.sha256, DigestFromBytes("sha256 of " + proto.name(), proto.sha256()));
  object.node_id = proto.node_id();
  return object;
}

void ToProto(const model::MetadataObject& object, v1::MetadataObject* proto) {
  proto->set_name(object.name);
  proto->set_bytes(object.bytes);
  proto->set_sha256(BytesOf(object.sha256));
  proto->set_node_id(object.node_id);
}

model::NodeAddress FromProto(const v1::NodeAddress& proto) {
  return {proto.node_id(), proto.instance_id(), proto.host_id(), proto.socket_path(),
          proto.tcp_address()};
}

void ToProto(const model::NodeAddress& address, v1::NodeAddress* proto) {
  proto->set_node_id(address.node_id);
  proto->set_instance_id(address.instance_id);
  proto->set_host_id(address.host_id);
  proto->set_socket_path(address.socket_path);
  proto->set_tcp_address(address.tcp_address);
}

model::Extent FromProto(const v1::Extent& proto) {
  return {proto.node_id(), model::ArenaId(proto.arena_id()), proto.offset(), proto.bytes()};
}

void ToProto(const model::Extent& extent, v1::Extent* proto) {
  proto->set_node_id(extent.node_id);
  proto->set_arena_id(extent.arena_id.value);
  proto->set_offset(extent.offset);
  proto->set_bytes(extent.bytes);
}

Result<model::Grant> FromProto(const v1::Grant& proto) {
  model::Grant grant;
  grant.instance_id = proto.instance_id();
  grant.tenant_id = proto.tenant_id();
  grant.import_id = model::ImportId(proto.import_id());
  grant.arena_id = model::ArenaId(proto.arena_id());
  grant.arena_bytes = proto.arena_bytes();
  MC_ASSIGN_OR_RETURN(grant.access, model::AccessFromNumber(proto.access()));
  return grant;
}

void ToProto(const model::Grant& grant, const Sha256Digest& mac, v1::Grant* proto) {
  proto->set_instance_id(grant.instance_id);
  proto->set_tenant_id(grant.tenant_id);
  proto->set_import_id(grant.import_id.value);
  proto->set_arena_id(grant.arena_id.value);
  proto->set_arena_bytes(grant.arena_bytes);
  proto->set_access(static_cast<v1::Access>(grant.access));
  proto->set_mac(BytesOf(mac));
}

Result<model::Availability> AvailabilityFromProto(int number) {
  if (number < 1 || number > model::kAvailabilityMax) {
    return BadNumber("availability", 1, model::kAvailabilityMax, number);
  }
  return static_cast<model::Availability>(number);
}

model::ExtentPermit FromProto(const v1::ExtentPermit& proto) {
  model::ExtentPermit permit;
  permit.instance_id = proto.instance_id();
  permit.tenant_id = proto.tenant_id();
  permit.slab_id = model::ArenaId(proto.slab_id());
  permit.slab_bytes = proto.slab_bytes();
  permit.offset = proto.offset();
  permit.bytes = proto.bytes();
  permit.object_id = model::ObjectId(proto.object_id());
  return permit;
}

void ToProto(const model::ExtentPermit& permit, const Sha256Digest& mac, v1::ExtentPermit* proto) {
  proto->Clear();
  proto->set_instance_id(permit.instance_id);
  proto->set_tenant_id(permit.tenant_id);
  proto->set_slab_id(permit.slab_id.value);
  proto->set_slab_bytes(permit.slab_bytes);
  proto->set_offset(permit.offset);
  proto->set_bytes(permit.bytes);
  proto->set_object_id(permit.object_id.value);
  proto->set_mac(mac.data(), mac.size());
}

Result<model::RevisionMetadata> FromProto(const v1::RevisionMetadata& proto) {
  model::RevisionMetadata metadata;
  metadata.identity = FromProto(proto.identity());
  metadata.import_id = model::ImportId(proto.import_id());
  MC_ASSIGN_OR_RETURN(metadata.availability, AvailabilityFromProto(proto.availability()));
  MC_ASSIGN_OR_RETURN(metadata.observed_residency,
                      ResidencyFromProto("observed_residency", proto.observed_residency()));
  metadata.observed_hot_ratio = proto.observed_hot_ratio();
  MC_ASSIGN_OR_RETURN(metadata.policy, FromProto(proto.policy()));
  metadata.metadata_generation = model::MetadataGeneration(proto.metadata_generation());
  metadata.group_id = proto.group_id();
  metadata.manifest_key = proto.manifest_key();
  MC_ASSIGN_OR_RETURN(metadata.manifest_sha256,
                      DigestFromBytes("manifest_sha256", proto.manifest_sha256()));
  MC_ASSIGN_OR_RETURN(metadata.payload_keys_sha256,
                      DigestFromBytes("payload_keys_sha256", proto.payload_keys_sha256()));
  metadata.payload_count = proto.payload_count();
  metadata.logical_payload_bytes = proto.logical_payload_bytes();
  metadata.affinity_count = proto.affinity_count();
  MC_ASSIGN_OR_RETURN(metadata.affinity_sha256,
                      DigestFromBytes("affinity_sha256", proto.affinity_sha256()));
  MC_ASSIGN_OR_RETURN(metadata.digests_root_sha256,
                      DigestFromBytes("digests_root_sha256", proto.digests_root_sha256()));
  metadata.created_at = proto.created_at();
  metadata.placement_id = proto.placement_id();
  metadata.state_reason = proto.state_reason();
  metadata.last_access_ms = proto.last_access_ms();
  metadata.active_lease_count = proto.active_lease_count();
  return metadata;
}

void ToProto(const model::RevisionMetadata& metadata, v1::RevisionMetadata* proto) {
  proto->Clear();
  ToProto(metadata.identity, proto->mutable_identity());
  proto->set_import_id(metadata.import_id.value);
  proto->set_availability(static_cast<v1::Availability>(metadata.availability));
  proto->set_observed_residency(NumberOf(metadata.observed_residency));
  proto->set_observed_hot_ratio(metadata.observed_hot_ratio);
  ToProto(metadata.policy, proto->mutable_policy());
  proto->set_metadata_generation(metadata.metadata_generation.value);
  proto->set_group_id(metadata.group_id);
  proto->set_manifest_key(metadata.manifest_key);
  proto->set_manifest_sha256(BytesOf(metadata.manifest_sha256));
  proto->set_payload_keys_sha256(BytesOf(metadata.payload_keys_sha256));
  proto->set_payload_count(metadata.payload_count);
  proto->set_logical_payload_bytes(metadata.logical_payload_bytes);
  proto->set_affinity_count(metadata.affinity_count);
  proto->set_affinity_sha256(BytesOf(metadata.affinity_sha256));
  proto->set_digests_root_sha256(BytesOf(metadata.digests_root_sha256));
  proto->set_created_at(metadata.created_at);
  proto->set_placement_id(metadata.placement_id);
  proto->set_state_reason(metadata.state_reason);
  proto->set_last_access_ms(metadata.last_access_ms);
  proto->set_active_lease_count(metadata.active_lease_count);
}

model::PlannedParticipant FromProto(const v1::PlannedParticipant& proto) {
  model::PlannedParticipant participant;
  participant.participant_id = proto.participant_id();
  participant.payloads.reserve(static_cast<size_t>(proto.payloads_size()));
  for (const v1::PlannedPayload& payload : proto.payloads()) {
    participant.payloads.push_back({payload.name(), payload.bytes(), payload.unit()});
  }
  return participant;
}

void ToProto(const model::PlannedParticipant& participant, v1::PlannedParticipant* proto) {
  proto->Clear();
  proto->set_participant_id(participant.participant_id);
  proto->mutable_payloads()->Reserve(static_cast<int>(participant.payloads.size()));
  for (const model::PlannedPayload& payload : participant.payloads) {
    v1::PlannedPayload* added = proto->add_payloads();
    added->set_name(payload.name);
    added->set_bytes(payload.bytes);
    added->set_unit(payload.unit);
  }
}

Status AsDamage(const Status& status) {
  if (status.code() != Code::kInvalidArgument) return status;
  return Corrupt(status.message());
}

Result<Sha256Digest> DigestFromLog(std::string_view field, std::string_view bytes) {
  const Result<Sha256Digest> digest = DigestFromBytes(field, bytes);
  if (digest.ok()) return *digest;
  return AsDamage(digest.status());
}

}  // namespace mooncake::codec
