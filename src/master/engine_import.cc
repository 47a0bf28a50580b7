// Imports: begin, progress, receipts, commit, abort (the publisher's protocol is client/'s to write
// down).

#include <fmt/format.h>

#include "codec/values.h"
#include "master/engine.h"
#include "master/permits.h"
#include "objects/reservation.h"
#include "weights/decide.h"
#include "weights/event_codec.h"

namespace mooncake::master {
namespace {

Status CheckTtl(std::string_view kind, uint64_t ttl_ms, uint64_t least, uint64_t most) {
  if (ttl_ms >= least && ttl_ms <= most) return OkStatus();
  return InvalidArgument(
      fmt::format("expected a {} ttl_ms from {} to {}, got {}", kind, least, most, ttl_ms));
}

Result<weights::BeginImport> CommandOf(const v1::BeginImportRequest& request) {
  weights::BeginImport command;
  command.client_id = request.command().client_id();
  command.identity = codec::FromProto(request.identity());
  command.placement_id = request.placement_id();
  MC_ASSIGN_OR_RETURN(command.plan_sha256,
                      codec::DigestFromBytes("plan_sha256", request.plan_sha256()));
  for (const v1::PlannedParticipant& participant : request.participants()) {
    command.participants.push_back(participant.participant_id());
  }
  command.claim.assign(request.claim().begin(), request.claim().end());
  if (request.has_policy()) {
    MC_ASSIGN_OR_RETURN(command.policy, codec::FromProto(request.policy()));
  }
  command.ttl_ms = request.ttl_ms();
  return command;
}

}  // namespace

Status Engine::Run(const v1::BeginImportRequest& request, v1::BeginImportReply* reply,
                   Batch& batch) {
  MC_RETURN_IF_ERROR(
      CheckTtl("import", request.ttl_ms(), options_.import_ttl_min_ms, options_.import_ttl_max_ms));
  // A writer whose time is over does not block the identity or its space.
  ExpireImports(batch);
  MC_ASSIGN_OR_RETURN(const weights::BeginImport command, CommandOf(request));
  weights::BeginFacts facts;
  facts.default_policy = options_.default_policy;
  facts.created_at = env::Iso8601Utc(clock_.WallMs());
  facts.metadata_node_ids = MetadataNodes(request.preferred_host_id());
  MC_ASSIGN_OR_RETURN(const weights::BeginDecision decision,
                      weights::DecideBeginImport(state_.weights, command, facts));
  if (decision.created) {
    MC_RETURN_IF_ERROR(log_space_.WithContext("nothing new can be published"));
    std::vector<model::PlannedParticipant> participants;
    participants.reserve(static_cast<size_t>(request.participants_size()));
    for (const auto& one : request.participants()) participants.push_back(codec::FromProto(one));
    const Result<std::vector<objects::Event>> space =
        objects::PlanReservation(state_.objects, {.import_id = decision.import_id,
                                                  .participants = &participants,
                                                  .preferred_host_id = request.preferred_host_id(),
                                                  .usable_nodes = UsableNodes()});
    if (space.status().code() == Code::kExhausted)
      return MakeRoomFor(participants, space.status(), batch);
    MC_RETURN_IF_ERROR(space.status());
    batch.Emit(decision.events);
    batch.Emit(*space);
  } else {
    batch.Emit(decision.events);
  }
  const weights::Revision* revision = state_.weights.FindImport(decision.import_id);
  if (revision == nullptr) return Internal("the import that was begun is not there");
  reply->set_state(static_cast<v1::ImportState>(decision.state));
  reply->set_import_id(decision.import_id.value);
  reply->set_created_at(revision->created_at);
  reply->set_group_id(model::GroupId(revision->identity));
  for (const std::string& participant_id : command.claim) {
    const std::optional<uint32_t> index = revision->ParticipantIndex(participant_id);
    if (!index) continue;
    FillProgress(revision->participants[*index], command.client_id, reply->add_participants());
  }
  codec::ToProto(revision->policy, reply->mutable_policy());
  reply->set_policy_note(revision->policy_note);
  return OkStatus();
}

Status Engine::Run(const v1::GetImportRequest& request, v1::GetImportReply* reply, Batch& batch) {
  const model::ImportId id(request.import_id());
  // As with leases (EndLeases): nobody is told of an end that the log may not have.
  while (ExpireImports(batch)) {
  }
  MC_ASSIGN_OR_RETURN(const model::ImportState state, state_.weights.StateOfImport(id));
  reply->set_state(static_cast<v1::ImportState>(state));
  if (state == model::ImportState::kAborted) {
    if (const weights::Abort* abort = state_.weights.FindAbort(id)) {
      reply->set_abort_reason(abort->reason);
      reply->set_abort_code(weights::AbortCodeToLog(abort->code));
    }
    return OkStatus();
  }
  const weights::Revision* revision = state_.weights.FindImport(id);
  if (revision == nullptr) return Internal(fmt::format("import {} has no revision", id.value));
  for (const weights::Participant& participant : revision->participants) {
    v1::ParticipantProgress* progress = reply->add_participants();
    FillProgress(participant, request.client_id(), progress);
    const auto silent_ms = deadlines_.SilentMs(id, participant.client_id, batch.now_ms());
    if (silent_ms) progress->set_silent_ms(static_cast<uint64_t>(*silent_ms));
    if (participant.state != model::ParticipantState::kReceived) continue;
    codec::ToProto(participant.digests, reply->add_receipts());
  }
  for (const std::string& node_id : revision->metadata_node_ids) {
    reply->add_metadata_node_ids(node_id);
  }
  if (state == model::ImportState::kCommitted) {
    FillMetadata(*revision, reply->mutable_metadata());
    return OkStatus();
  }
  return FillOpenImport(*revision, request, reply);
}

// Weights come before ordinary objects: what those can give up makes room, and the caller is to ask
// again. EXHAUSTED, as it was: that is not enough.
Status Engine::MakeRoomFor(const std::vector<model::PlannedParticipant>& participants,
                           const Status& exhausted, Batch& batch) {
  uint64_t needed = 0;
  uint64_t largest = 0;
  for (const model::PlannedParticipant& participant : participants) {
    for (const model::PlannedPayload& payload : participant.payloads) {
      needed += objects::ChargedBytes(payload.bytes);
      largest = std::max(largest, objects::ChargedBytes(payload.bytes));
    }
  }
  // What is free lies in pieces on several nodes, and a payload in one.
  const std::set<std::string> usable = UsableNodes();
  needed += largest * usable.size();
  uint64_t free = 0;
  for (const objects::Node& node : state_.objects.nodes()) {
    if (usable.contains(node.address.node_id)) free += node.free_bytes();
  }
  const uint64_t short_of = needed > free ? needed - free : objects::kChargeUnit;
  if (!ReclaimForImport(short_of, batch)) return exhausted;
  return Unavailable(fmt::format("{} bytes of ordinary objects are making room, ask again: {}",
                                 short_of, exhausted.message()));
}

// Extents and WRITE grants of the participants asked for; METADATA_WRITE (which seals too) of every
// node of the import and METADATA_READ of those that hold digests objects, for whoever claimed a
// part of it.
Status Engine::FillOpenImport(const weights::Revision& revision,
                              const v1::GetImportRequest& request,
                              v1::GetImportReply* reply) const {
  const model::ImportId id = revision.import_id;
  const auto claimed_by_caller = [&request](const weights::Participant& participant) {
    return !participant.client_id.empty() && participant.client_id == request.client_id();
  };
  Permits permits(state_.objects, nodes_, revision.identity.tenant_id, id, reply->mutable_grants(),
                  reply->mutable_nodes());
  for (const std::string& participant_id : request.extents_of()) {
    const std::optional<uint32_t> index = revision.ParticipantIndex(participant_id);
    if (!index) {
      return InvalidArgument(fmt::format("import {} has no participant {} among its {}", id.value,
                                         participant_id, revision.participants.size()));
    }
    if (!claimed_by_caller(revision.participants[*index])) {
      return Conflict(fmt::format("participant {} of import {} is not claimed by client {}",
                                  participant_id, id.value, request.client_id()));
    }
    v1::ParticipantExtents* extents = reply->add_extents();
    extents->set_participant_id(participant_id);
    for (const objects::PayloadLocation& location : state_.objects.PayloadsOf(id, *index)) {
      v1::PayloadExtent* payload = extents->add_payloads();
      payload->set_name(location.name.data(), location.name.size());
      codec::ToProto(location.extent, payload->mutable_extent());
      MC_RETURN_IF_ERROR(permits.AddArena(location.extent.arena_id, model::Access::kWrite));
    }
  }
  const bool takes_part =
      std::any_of(revision.participants.begin(), revision.participants.end(), claimed_by_caller);
  if (!takes_part) return OkStatus();
  for (const std::string& node_id : revision.metadata_node_ids) {
    MC_RETURN_IF_ERROR(permits.AddMetadata(node_id, model::Access::kMetadataWrite));
    MC_RETURN_IF_ERROR(permits.AddMetadata(node_id, model::Access::kMetadataRead));
  }
  const objects::Group* group = state_.objects.FindGroup(id);
  if (group == nullptr) return Internal(fmt::format("import {} has no group", id.value));
  for (const model::ArenaId arena_id : group->arenas) {
    const objects::Arena* arena = state_.objects.FindArena(arena_id);
    if (arena == nullptr) continue;
    MC_RETURN_IF_ERROR(permits.AddMetadata(state_.objects.node(arena->node).address.node_id,
                                           model::Access::kMetadataWrite));
  }
  return OkStatus();
}

Status Engine::Run(const v1::KeepImportRequest& request, v1::KeepImportReply* reply, Batch& batch) {
  const model::ImportId id(request.import_id());
  // As with leases (EndLeases): nobody is told of an end that the log may not have.
  while (ExpireImports(batch)) {
  }
  MC_ASSIGN_OR_RETURN(const model::ImportState state, state_.weights.StateOfImport(id));
  reply->set_state(static_cast<v1::ImportState>(state));
  if (state != model::ImportState::kOpen) return OkStatus();
  return deadlines_.KeepImport(state_.weights, id, request.client_id(), batch.now_ms());
}

Status Engine::Run(const v1::SubmitReceiptRequest& request, v1::SubmitReceiptReply* reply,
                   Batch& batch) {
  weights::SubmitReceipt command;
  command.client_id = request.command().client_id();
  command.import_id = model::ImportId(request.import_id());
  command.participant_id = request.participant_id();
  MC_ASSIGN_OR_RETURN(command.digests, codec::FromProto(request.digests()));
  command.compare_only = request.compare_only();
  MC_ASSIGN_OR_RETURN(const weights::ReceiptDecision decision,
                      weights::DecideReceipt(state_.weights, command));
  batch.Emit(decision.events);
  if (!decision.events.empty()) {
    batch.Emit(objects::Event(objects::MetadataStored{command.import_id, {command.digests}}));
  }
  reply->set_complete(decision.complete);
  return OkStatus();
}

Status Engine::Run(const v1::CommitImportRequest& request, v1::CommitImportReply* reply,
                   Batch& batch) {
  weights::CommitImport command;
  command.import_id = model::ImportId(request.import_id());
  MC_ASSIGN_OR_RETURN(command.manifest, codec::FromProto(request.manifest()));
  MC_ASSIGN_OR_RETURN(command.affinity, codec::FromProto(request.affinity()));
  command.payload_count = request.payload_count();
  command.logical_payload_bytes = request.logical_payload_bytes();
  MC_ASSIGN_OR_RETURN(command.payload_keys_sha256,
                      codec::DigestFromBytes("payload_keys_sha256", request.payload_keys_sha256()));
  command.affinity_count = request.affinity_count();
  weights::CommitFacts facts;
  if (weights::NeedsCommitFacts(state_.weights, command.import_id)) {
    const weights::Revision& revision = *state_.weights.FindImport(command.import_id);
    facts.group = state_.objects.FactsOf(command.import_id, model::GroupId(revision.identity));
    facts.members = objects::ObserveMembers(
        state_.objects, command.import_id, nodes_.Assumed(state_.objects, InGrace(batch.now_ms())));
  }
  MC_ASSIGN_OR_RETURN(const std::vector<weights::Event> events,
                      weights::DecideCommit(state_.weights, command, facts));
  batch.Emit(events);
  if (!events.empty()) {
    batch.Emit(objects::Event(
        objects::MetadataStored{command.import_id, {command.manifest, command.affinity}}));
  }
  const weights::Revision* revision = state_.weights.FindImport(command.import_id);
  if (revision == nullptr) return Internal("the import that was committed is not there");
  FillMetadata(*revision, reply->mutable_metadata());
  return OkStatus();
}

Status Engine::Run(const v1::AbortImportRequest& request, v1::AbortImportReply*, Batch& batch) {
  const model::ImportId id(request.import_id());
  weights::AbortImport command{request.command().client_id(), id, request.reason()};
  if (request.code() > kCodeMax) {
    return InvalidArgument(fmt::format("unknown abort code {}", request.code()));
  }
  if (request.code() != 0) command.code = static_cast<Code>(request.code());
  MC_ASSIGN_OR_RETURN(const std::vector<weights::Event> events,
                      weights::DecideAbort(state_.weights, command));
  batch.Emit(events);
  if (!events.empty()) batch.Emit(objects::PlanGroupDrop(state_.objects, id));
  return OkStatus();
}

void Engine::FillProgress(const weights::Participant& participant, std::string_view client_id,
                          v1::ParticipantProgress* progress) const {
  progress->set_participant_id(participant.participant_id);
  progress->set_state(
      static_cast<v1::ParticipantState>(weights::ViewClaim(participant, client_id)));
}

std::set<std::string> Engine::UsableNodes() const {
  const objects::NodeLiveness liveness = nodes_.Assumed(state_.objects, /*grace=*/false);
  std::set<std::string> usable;
  for (const std::string& node_id : liveness.reporting) {
    const objects::Node* node = state_.objects.FindNode(node_id);
    if (node != nullptr && !node->objects_only) usable.insert(node_id);
  }
  return usable;
}

// One node: the one where the reservation begins (objects/reservation.h), so that a small import
// depends on that node alone.
std::vector<std::string> Engine::MetadataNodes(std::string_view preferred_host_id) const {
  const objects::NodeLiveness liveness = nodes_.Assumed(state_.objects, /*grace=*/false);
  const objects::Node* best = nullptr;
  const auto preferred = [preferred_host_id](const objects::Node& node) {
    return !preferred_host_id.empty() && node.address.host_id == preferred_host_id;
  };
  for (const objects::Node& node : state_.objects.nodes()) {
    if (!liveness.reporting.contains(node.address.node_id) || node.objects_only) continue;
    const bool better =
        best == nullptr || preferred(node) > preferred(*best) ||
        (preferred(node) == preferred(*best) && (node.free_bytes() > best->free_bytes() ||
                                                 (node.free_bytes() == best->free_bytes() &&
                                                  node.address.node_id < best->address.node_id)));
    if (better) best = &node;
  }
  if (best == nullptr) return {};
  return {best->address.node_id};
}

}  // namespace mooncake::master
