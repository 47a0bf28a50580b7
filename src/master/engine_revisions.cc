// Discovery, reading and removal of revisions.

#include <fmt/format.h>

#include "codec/values.h"
#include "master/engine.h"
#include "master/permits.h"
#include "rpc/status_proto.h"
#include "weights/decide.h"

namespace mooncake::master {

Status Engine::Run(const v1::GetWeightRequest& request, v1::GetWeightReply* reply, Batch&) {
  MC_ASSIGN_OR_RETURN(const weights::Revision* revision,
                      weights::Query(state_.weights, codec::FromProto(request.identity())));
  FillMetadata(*revision, reply->mutable_metadata());
  return OkStatus();
}

Status Engine::Run(const v1::ListWeightsRequest& request, v1::ListWeightsReply* reply, Batch&) {
  weights::ListQuery query;
  query.tenant_id = request.tenant_id();
  query.name_space = request.name_space();
  query.resource_id = request.resource_id();
  for (const int number : request.availability()) {
    MC_ASSIGN_OR_RETURN(const model::Availability availability,
                        codec::AvailabilityFromProto(number));
    query.availability.insert(availability);
  }
  query.page_size = request.page_size();
  query.page_token = request.page_token();
  MC_ASSIGN_OR_RETURN(const weights::ListPage page, state_.weights.List(query));
  for (const weights::Revision* revision : page.revisions) {
    FillMetadata(*revision, reply->add_revisions());
  }
  reply->set_next_page_token(page.next_page_token);
  return OkStatus();
}

Status Engine::Run(const v1::OpenRevisionRequest& request, v1::OpenRevisionReply* reply,
                   Batch& batch) {
  if (request.ttl_ms() < options_.lease_ttl_min_ms ||
      request.ttl_ms() > options_.lease_ttl_max_ms) {
    return InvalidArgument(fmt::format("expected a lease ttl_ms from {} to {}, got {}",
                                       options_.lease_ttl_min_ms, options_.lease_ttl_max_ms,
                                       request.ttl_ms()));
  }
  const model::WeightIdentity identity = codec::FromProto(request.identity());
  MC_ASSIGN_OR_RETURN(
      const weights::OpenDecision decision,
      weights::DecideOpen(state_.weights, {identity, request.ttl_ms(), request.holder()}));
  batch.Emit(decision.events);
  const weights::Revision* revision = state_.weights.Find(identity);
  if (revision == nullptr) return Internal("the revision that was opened is not there");
  reply->set_lease_id(decision.lease_id.value);
  FillMetadata(*revision, reply->mutable_metadata());
  return OkStatus();
}

Status Engine::Run(const v1::LocateObjectsRequest& request, v1::LocateObjectsReply* reply,
                   Batch& batch) {
  const model::LeaseId lease_id(request.lease_id());
  EndLeases(batch);
  MC_RETURN_IF_ERROR(deadlines_.CheckLease(state_.weights, lease_id, batch.now_ms()));
  MC_ASSIGN_OR_RETURN(const weights::Lease* lease, state_.weights.GetLease(lease_id));
  const model::ImportId id = lease->import_id;
  const weights::Revision* revision = state_.weights.FindImport(id);
  if (revision == nullptr) return Internal(fmt::format("lease {} has no revision", lease_id.value));
  Permits permits(state_.objects, nodes_, revision->identity.tenant_id, id, reply->mutable_grants(),
                  reply->mutable_nodes());
  reply->mutable_objects()->Reserve(request.payload_names_size());
  for (const std::string& name : request.payload_names()) {
    MC_ASSIGN_OR_RETURN(const objects::PayloadLocation location,
                        state_.objects.FindPayload(id, name));
    v1::ObjectLocation* object = reply->add_objects();
    object->set_name(name);
    object->set_bytes(location.extent.bytes);
    object->set_participant(location.participant);
    codec::ToProto(location.extent, object->add_replicas());
    MC_RETURN_IF_ERROR(permits.AddArena(location.extent.arena_id, model::Access::kRead));
  }
  for (const weights::Participant& participant : revision->participants) {
    reply->add_participants(participant.participant_id);
  }
  if (!request.metadata_objects()) return OkStatus();
  const auto add = [&](const model::MetadataObject& object) {
    codec::ToProto(object, reply->add_metadata_objects());
    return permits.AddMetadata(object.node_id, model::Access::kMetadataRead);
  };
  MC_RETURN_IF_ERROR(add(revision->manifest));
  MC_RETURN_IF_ERROR(add(revision->affinity));
  for (const weights::Participant& participant : revision->participants) {
    MC_RETURN_IF_ERROR(add(participant.digests));
  }
  return OkStatus();
}

Status Engine::Run(const v1::RenewLeasesRequest& request, v1::RenewLeasesReply* reply,
                   Batch& batch) {
  EndLeases(batch);
  for (const uint64_t lease_id : request.lease_ids()) {
    rpc::SetStatus(reply->add_leases(),
                   deadlines_.RenewLease(state_.weights, model::LeaseId(lease_id), batch.now_ms()));
  }
  return OkStatus();
}

Status Engine::Run(const v1::ReleaseLeaseRequest& request, v1::ReleaseLeaseReply*, Batch& batch) {
  MC_ASSIGN_OR_RETURN(
      const std::vector<weights::Event> events,
      weights::DecideReleaseLease(state_.weights, model::LeaseId(request.lease_id())));
  batch.Emit(events);
  return OkStatus();
}

Status Engine::Run(const v1::RemoveWeightRequest& request, v1::RemoveWeightReply* reply,
                   Batch& batch) {
  // A reader whose time is over does not block a removal.
  EndLeases(batch);
  weights::RemoveWeight command;
  command.identity = codec::FromProto(request.identity());
  if (request.has_expected_metadata_generation()) {
    command.expected_metadata_generation =
        model::MetadataGeneration(request.expected_metadata_generation());
  }
  MC_ASSIGN_OR_RETURN(const std::vector<weights::Event> events,
                      weights::DecideRemove(state_.weights, command));
  batch.Emit(events);
  const weights::Revision* revision = state_.weights.Find(command.identity);
  if (revision == nullptr) return Internal("the revision that is removed is not there");
  FillMetadata(*revision, reply->mutable_metadata());
  return OkStatus();
}

void Engine::FillMetadata(const weights::Revision& revision, v1::RevisionMetadata* proto) const {
  codec::ToProto(state_.weights.MetadataOf(revision), proto);
  proto->set_physical_bytes(state_.objects.PhysicalBytes(revision.import_id));
}

}  // namespace mooncake::master
