#include "master/replicated_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "codec/log_event.h"
#include "objects/event_codec.h"
#include "pool/event_codec.h"
#include "weights/event_codec.h"

namespace mooncake::master {
namespace {

Status ApplyEvent(const v1::LogEvent& logged, int64_t logged_ms, ReplicatedState* state) {
  if (objects::HandlesKind(logged.kind())) {
    MC_ASSIGN_OR_RETURN(const objects::Event event, objects::DecodeEvent(logged));
    return state->objects.Apply(event);
  }
  if (weights::HandlesKind(logged.kind())) {
    MC_ASSIGN_OR_RETURN(const weights::Event event, weights::DecodeEvent(logged));
    return state->weights.Apply(event, logged_ms);
  }
  if (pool::HandlesKind(logged.kind())) {
    MC_ASSIGN_OR_RETURN(const pool::Event event, pool::DecodeEvent(logged));
    return state->pool.Apply(event, logged_ms);
  }
  MC_ASSIGN_OR_RETURN(CommandOutcome outcome, DecodeOutcome(logged));
  return state->commands.Apply(std::move(outcome), logged_ms);
}

// The group that a revision in this state must have.
Status CheckGroup(const objects::Catalog& objects, const weights::Revision& revision) {
  const objects::Group* group = objects.FindGroup(revision.import_id);
  const std::string who =
      fmt::format("import {} ({})", revision.import_id.value, Name(revision.availability));
  const bool has_group = group != nullptr && !group->removed;
  if (revision.availability == model::Availability::kDeleted) {
    return has_group ? Internal(who + " still has a group") : OkStatus();
  }
  if (revision.availability == model::Availability::kDeleting) return OkStatus();
  if (!has_group) return Internal(who + " has no group");
  if (!model::IsDiscoverable(revision.availability)) return OkStatus();
  if (group->payloads.payload_count() != revision.payload_count ||
      group->payloads.payload_bytes() != revision.logical_payload_bytes) {
    return Internal(fmt::format("{}: expected {} payloads of {} bytes, its group has {} of {}", who,
                                revision.payload_count, revision.logical_payload_bytes,
                                group->payloads.payload_count(), group->payloads.payload_bytes()));
  }
  return OkStatus();
}

// The slabs that hold ordinary objects are the arenas without an import, of the same node and size.
Status CheckSlabs(const objects::Catalog& objects, const pool::Catalog& pool) {
  size_t arenas = 0;
  for (const auto& [id, arena] : objects.arenas()) {
    if (arena.import_id != model::ImportId() || arena.state != objects::ArenaState::kLive) continue;
    ++arenas;
    const pool::Slab* slab = pool.FindSlab(id);
    if (slab == nullptr || slab->bytes != arena.bytes ||
        slab->node_id != objects.node(arena.node).address.node_id) {
      return Internal(fmt::format("slab {} differs from the arena of that number", id.value));
    }
  }
  if (arenas == pool.slabs().size()) return OkStatus();
  return Internal(fmt::format("{} slabs lie in {} arenas", pool.slabs().size(), arenas));
}

}  // namespace

Status ReplicatedState::ApplyRecord(const oplog::LogRecordView& record) {
  const std::string where = fmt::format("log sequence {}", record.sequence);
  v1::LogBatch batch;
  if (!batch.ParseFromArray(record.payload.data(), static_cast<int>(record.payload.size()))) {
    return Corrupt(fmt::format("{}: {} bytes that are no LogBatch", where, record.payload.size()));
  }
  if (batch.time_ms() != record.time_ms || record.sequence != sequence + 1) {
    return Corrupt(fmt::format("{}: expected sequence {} and time {} ms, got time {}", where,
                               sequence + 1, record.time_ms, batch.time_ms()));
  }
  if (sequence > 0 && (record.term < term || record.time_ms < logged_ms)) {
    return Corrupt(fmt::format("{} runs back: expected term >= {} and time >= {} ms, got {} and {}",
                               where, term, logged_ms, record.term, record.time_ms));
  }
  commands.Forget(batch.time_ms());
  for (int i = 0; i < batch.events_size(); ++i) {
    const Status status = ApplyEvent(batch.events(i), batch.time_ms(), this);
    if (!status.ok()) return status.WithContext(fmt::format("{}, event {}", where, i));
  }
  logged_ms = batch.time_ms();
  sequence = record.sequence;
  term = record.term;
  return OkStatus();
}

Status ReplicatedState::CheckInvariants() const {
  MC_RETURN_IF_ERROR(objects.CheckInvariants().WithContext("objects"));
  MC_RETURN_IF_ERROR(weights.CheckInvariants().WithContext("weights"));
  MC_RETURN_IF_ERROR(pool.CheckInvariants().WithContext("pool"));
  MC_RETURN_IF_ERROR(CheckSlabs(objects, pool));
  for (const auto& [id, revision] : weights.revisions()) {
    MC_RETURN_IF_ERROR(CheckGroup(objects, revision));
  }
  for (const auto& [id, group] : objects.groups()) {
    if (!group.removed && weights.FindImport(id) == nullptr) {
      return Internal(fmt::format("the group of import {} belongs to no revision", id.value));
    }
    if (id >= weights.next_import_id()) {
      return Internal(fmt::format("the group of import {} is of the future: the next one is {}",
                                  id.value, weights.next_import_id().value));
    }
  }
  return OkStatus();
}

Sha256Digest ReplicatedState::Digest() const {
  model::StateDigest digest;
  digest.Hash(objects.Digest());
  digest.Hash(weights.Digest());
  // States from before there were ordinary objects have the digest that they had.
  if (!pool.empty()) digest.Hash(pool.Digest());
  commands.AddTo(&digest);
  digest.Number(static_cast<uint64_t>(logged_ms));
  digest.Number(sequence);
  return digest.Finish();
}

v1::LogEvent EncodeOutcome(const CommandOutcome& outcome) {
  v1::CommandOutcome body;
  body.set_client_id(outcome.client_id);
  body.set_sequence(outcome.sequence);
  body.set_acked_below(outcome.acked_below);
  body.set_request_sha256(outcome.request_sha256.data(), outcome.request_sha256.size());
  body.set_reply(outcome.reply);
  return codec::SealEvent(v1::EVENT_KIND_COMMAND_OUTCOME, kOutcomeVersion, body);
}

Result<CommandOutcome> DecodeOutcome(const v1::LogEvent& logged) {
  if (logged.kind() != v1::EVENT_KIND_COMMAND_OUTCOME) {
    return Unsupported(fmt::format("event kind {} is not known here", logged.kind()));
  }
  MC_RETURN_IF_ERROR(codec::CheckReader(logged, kOutcomeVersion));
  v1::CommandOutcome body;
  CommandOutcome outcome;
  if (!body.ParseFromString(logged.body()) ||
      body.request_sha256().size() != outcome.request_sha256.size() || body.sequence() == 0) {
    return Corrupt(fmt::format("{} bytes that are no CommandOutcome", logged.body().size()));
  }
  std::copy(body.request_sha256().begin(), body.request_sha256().end(),
            outcome.request_sha256.begin());
  outcome.client_id = std::move(*body.mutable_client_id());
  outcome.sequence = body.sequence();
  outcome.acked_below = body.acked_below();
  outcome.reply = std::move(*body.mutable_reply());
  return outcome;
}

}  // namespace mooncake::master
