// Decisions about imports: begin, receipt, commit, abort.

#include <algorithm>
#include <unordered_map>

#include "weights/decide.h"
#include "weights/refusal.h"

namespace mooncake::weights {
namespace {

using model::Availability;
using model::Effect;
using model::ImportState;
using model::ParticipantState;
using model::ParticipantTrigger;
using model::RevisionTrigger;

constexpr size_t kParticipantsMax = 1 << 16;
constexpr size_t kPlacementIdBytesMax = 1024;

std::string Text(ImportId id) { return "import " + std::to_string(id.value); }

std::string Versus(const Sha256Digest& recorded, const Sha256Digest& given) {
  return "recorded " + ToHex(recorded) + ", got " + ToHex(given);
}

Availability StateOf(const Revision* revision) {
  return revision == nullptr ? Availability::kAbsent : revision->availability;
}

// ---- begin ----

Status ValidateBegin(const BeginImport& command) {
  MC_RETURN_IF_ERROR(model::ValidateIdentityPart("client_id", command.client_id));
  MC_RETURN_IF_ERROR(model::ValidateIdentity(command.identity));
  MC_RETURN_IF_ERROR(
      model::ValidateText("placement_id", command.placement_id, kPlacementIdBytesMax));
  MC_RETURN_IF_ERROR(ValidateTtl(command.ttl_ms));
  if (command.participants.size() > kParticipantsMax) {
    return InvalidArgument("an import may have at most " + std::to_string(kParticipantsMax) +
                           " participants, got " + std::to_string(command.participants.size()));
  }
  std::set<std::string_view> distinct;
  for (const std::string& participant : command.participants) {
    MC_RETURN_IF_ERROR(model::ValidateIdentityPart("participant_id", participant));
    if (!distinct.insert(participant).second) {
      return InvalidArgument("participant " + participant + " is named twice");
    }
  }
  return OkStatus();
}

ImportBegun NewImport(const Catalog& catalog, const BeginImport& command, const BeginFacts& facts,
                      model::ResolvedPolicy policy) {
  ImportBegun begun;
  begun.identity = command.identity;
  begun.import_id = catalog.next_import_id();
  begun.placement_id = command.placement_id;
  begun.plan_sha256 = command.plan_sha256;
  begun.participants = command.participants;
  begun.created_at = facts.created_at;
  begun.policy = policy.policy;
  begun.policy_note = std::move(policy.note);
  begun.ttl_ms = command.ttl_ms;
  begun.metadata_node_ids = facts.metadata_node_ids;
  return begun;
}

// A joiner that lists participants must list the same ones.
Status CheckSameParticipants(const BeginImport& command, const Revision& revision) {
  if (command.participants.empty()) return OkStatus();
  const bool same = std::equal(
      command.participants.begin(), command.participants.end(), revision.participants.begin(),
      revision.participants.end(),
      [](const std::string& id, const Participant& known) { return id == known.participant_id; });
  if (same) return OkStatus();
  return InvalidArgument(Text(revision.import_id) + " has " +
                         std::to_string(revision.participants.size()) +
                         " other participants than the " +
                         std::to_string(command.participants.size()) + " of an equal plan_sha256");
}

// Adds a Claimed event for each participant of command.claim that nobody has. `known` may be null:
// a new import.
Status AddClaims(const BeginImport& command, ImportId id, const Revision* known,
                 const std::vector<std::string>& participants, std::vector<Event>* events) {
  std::unordered_map<std::string_view, uint32_t> index;
  for (size_t i = 0; i < participants.size(); ++i) {
    index.emplace(participants[i], static_cast<uint32_t>(i));
  }
  std::set<uint32_t> claimed;
  for (const std::string& name : command.claim) {
    const auto at = index.find(name);
    if (at == index.end()) {
      return InvalidArgument("claimed participant " + name + " is none of the " +
                             std::to_string(participants.size()) + " of the plan");
    }
    const Participant* participant = known == nullptr ? nullptr : &known->participants[at->second];
    const auto state = participant == nullptr ? ParticipantState::kUnclaimed : participant->state;
    const bool is_claimer = participant != nullptr && participant->client_id == command.client_id;
    const auto& row = LookUp(state, ParticipantTrigger::kClaim, {.is_claimer = is_claimer});
    if (row.effect == Effect::kChange && claimed.insert(at->second).second) {
      events->emplace_back(Claimed{id, at->second, command.client_id, command.ttl_ms});
    }
  }
  return OkStatus();
}

// ---- receipt ----

Status ValidateReceipt(const SubmitReceipt& command, const Revision& revision) {
  const model::MetadataObject& digests = command.digests;
  const std::string expected = model::DigestsName(command.participant_id);
  if (digests.name != expected) {
    return InvalidArgument("the digests object of participant " + command.participant_id +
                           " must be named " + expected + ", got '" + LoggableReason(digests.name) +
                           "'");
  }
  if (digests.bytes == 0) return InvalidArgument(expected + " has no bytes");
  if (command.compare_only) return OkStatus();
  const auto& nodes = revision.metadata_node_ids;
  if (std::find(nodes.begin(), nodes.end(), digests.node_id) == nodes.end()) {
    return InvalidArgument(expected + " must lie on a METADATA node of " + Text(command.import_id) +
                           ", got '" + LoggableReason(digests.node_id) + "'");
  }
  return OkStatus();
}

// ---- commit ----

Status Mismatch(const std::string& field, uint64_t expected, uint64_t got) {
  return InvalidArgument(field + ": the Master's objects have " + std::to_string(expected) +
                         ", the commit says " + std::to_string(got));
}

Status Mismatch(const std::string& field, const Sha256Digest& expected, const Sha256Digest& got) {
  return InvalidArgument(field + ": the Master's objects have " + ToHex(expected) +
                         ", the commit says " + ToHex(got));
}

Status CheckMetadataObject(const model::MetadataObject& object, std::string_view name,
                           const Revision& revision) {
  if (object.name != name) {
    return InvalidArgument("the METADATA object must be named " + std::string(name) + ", got '" +
                           LoggableReason(object.name) + "'");
  }
  if (object.bytes == 0) return InvalidArgument(std::string(name) + " has no bytes");
  const auto& nodes = revision.metadata_node_ids;
  if (std::find(nodes.begin(), nodes.end(), object.node_id) == nodes.end()) {
    return InvalidArgument(std::string(name) + " must lie on a METADATA node of " +
                           Text(revision.import_id) + ", got '" + LoggableReason(object.node_id) +
                           "'");
  }
  return OkStatus();
}

Status CheckAgainstFacts(const CommitImport& command, const model::GroupFacts& facts) {
  if (command.payload_count != facts.payload_count) {
    return Mismatch("payload_count", facts.payload_count, command.payload_count);
  }
  if (command.logical_payload_bytes != facts.logical_payload_bytes) {
    return Mismatch("logical_payload_bytes", facts.logical_payload_bytes,
                    command.logical_payload_bytes);
  }
  if (command.payload_keys_sha256 != facts.payload_keys_sha256) {
    return Mismatch("payload_keys_sha256", facts.payload_keys_sha256, command.payload_keys_sha256);
  }
  if (command.affinity_count != facts.affinity_count) {
    return Mismatch("affinity_count", facts.affinity_count, command.affinity_count);
  }
  if (command.affinity.bytes != facts.affinity_bytes) {
    return Mismatch("affinity.bytes", facts.affinity_bytes, command.affinity.bytes);
  }
  if (command.affinity.sha256 != facts.affinity_sha256) {
    return Mismatch("affinity.sha256", facts.affinity_sha256, command.affinity.sha256);
  }
  return OkStatus();
}

// The first immutable fact of a committed revision that the command contradicts; empty: none.
std::string FirstDifference(const Revision& revision, const CommitImport& command) {
  const auto numbers = [](const char* field, uint64_t recorded, uint64_t got) {
    return std::string(field) + ": recorded " + std::to_string(recorded) + ", got " +
           std::to_string(got);
  };
  if (!revision.manifest.SameContent(command.manifest)) {
    return "manifest: " + Versus(revision.manifest.sha256, command.manifest.sha256);
  }
  if (!revision.affinity.SameContent(command.affinity)) {
    return "affinity: " + Versus(revision.affinity.sha256, command.affinity.sha256);
  }
  if (revision.payload_count != command.payload_count) {
    return numbers("payload_count", revision.payload_count, command.payload_count);
  }
  if (revision.logical_payload_bytes != command.logical_payload_bytes) {
    return numbers("logical_payload_bytes", revision.logical_payload_bytes,
                   command.logical_payload_bytes);
  }
  if (revision.payload_keys_sha256 != command.payload_keys_sha256) {
    return "payload_keys_sha256: " +
           Versus(revision.payload_keys_sha256, command.payload_keys_sha256);
  }
  if (revision.affinity_count != command.affinity_count) {
    return numbers("affinity_count", revision.affinity_count, command.affinity_count);
  }
  return "";
}

std::string MissingReceipts(const Revision& revision) {
  for (const Participant& participant : revision.participants) {
    if (participant.state == ParticipantState::kReceived) continue;
    return std::to_string(revision.receipt_count) + " of " +
           std::to_string(revision.participants.size()) + " are in; " + participant.participant_id +
           " is " + std::string(Name(participant.state));
  }
  return "";
}

// Wraps what every command on an import id begins with: NOT_FOUND unless the id was ever given.
Status CheckEverBegun(const Catalog& catalog, ImportId id) {
  const Result<ImportState> state = catalog.StateOfImport(id);
  return state.status();
}

}  // namespace

Result<BeginDecision> DecideBeginImport(const Catalog& catalog, const BeginImport& command,
                                        const BeginFacts& facts) {
  MC_RETURN_IF_ERROR(ValidateBegin(command));
  // Resolved even when joining: an unsatisfiable policy is refused whichever rank comes first.
  MC_ASSIGN_OR_RETURN(model::ResolvedPolicy policy,
                      ResolvePolicy(command.policy, facts.default_policy, facts.has_cold_tier));
  const Revision* known = catalog.Find(command.identity);
  const bool same = known != nullptr && known->plan_sha256 == command.plan_sha256;
  const auto& row = LookUp(StateOf(known), RevisionTrigger::kBegin, {.same_content = same});
  if (row.effect == Effect::kRefuse) {
    const bool conflict = row.code == Code::kConflict;
    return Refusal(row, Describe(command.identity),
                   conflict ? "plan " + Versus(known->plan_sha256, command.plan_sha256) : "");
  }

  BeginDecision decision;
  if (known != nullptr) {
    decision.import_id = known->import_id;
    decision.state = known->availability == Availability::kImporting ? ImportState::kOpen
                                                                     : ImportState::kCommitted;
    MC_RETURN_IF_ERROR(CheckSameParticipants(command, *known));
    std::vector<std::string> participants;
    for (const Participant& one : known->participants) participants.push_back(one.participant_id);
    MC_RETURN_IF_ERROR(AddClaims(command, known->import_id, known, participants, &decision.events));
    return decision;
  }
  if (command.participants.empty()) {
    return NotFound(Describe(command.identity) +
                    ": no import to join; begin it with its participants and payloads");
  }
  if (facts.metadata_node_ids.empty()) {
    return Unavailable("no store node is reporting to the Master");
  }
  decision.created = true;
  decision.import_id = catalog.next_import_id();
  decision.events.emplace_back(NewImport(catalog, command, facts, std::move(policy)));
  MC_RETURN_IF_ERROR(
      AddClaims(command, decision.import_id, nullptr, command.participants, &decision.events));
  return decision;
}

ClaimView ViewClaim(const Participant& participant, std::string_view client_id) {
  switch (participant.state) {
    case ParticipantState::kUnclaimed:
      return ClaimView::kUnclaimed;
    case ParticipantState::kClaimed:
      return participant.client_id == client_id ? ClaimView::kYours : ClaimView::kOthers;
    case ParticipantState::kReceived:
      return ClaimView::kReceived;
  }
  return ClaimView::kUnclaimed;
}

Result<ReceiptDecision> DecideReceipt(const Catalog& catalog, const SubmitReceipt& command) {
  MC_RETURN_IF_ERROR(CheckEverBegun(catalog, command.import_id));
  const Revision* revision = catalog.FindImport(command.import_id);
  const auto index =
      revision == nullptr ? std::nullopt : revision->ParticipantIndex(command.participant_id);
  const uint32_t at = index.value_or(0);
  const Participant* participant = index ? &revision->participants[at] : nullptr;
  const bool same = participant != nullptr && participant->digests.SameContent(command.digests);
  const std::string what =
      Text(command.import_id) + ", participant " + LoggableReason(command.participant_id);
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kReceipt, {.same_content = same});
  if (row.effect == Effect::kRefuse && row.code != Code::kConflict) {
    return Refusal(row, what, catalog.AbortReason(command.import_id));
  }
  if (participant == nullptr) {
    return InvalidArgument(what + " is none of the " +
                           std::to_string(revision->participants.size()) + " of the plan");
  }
  MC_RETURN_IF_ERROR(ValidateReceipt(command, *revision));
  const std::string versus = Versus(participant->digests.sha256, command.digests.sha256);
  if (row.effect == Effect::kRefuse) return Refusal(row, what, versus);
  if (row.effect == Effect::kNothing) return ReceiptDecision{.complete = true, .events = {}};

  const auto trigger =
      command.compare_only ? ParticipantTrigger::kCompare : ParticipantTrigger::kReceipt;
  const auto& step =
      LookUp(participant->state, trigger,
             {.is_claimer = participant->client_id == command.client_id, .same_content = same});
  if (step.effect == Effect::kRefuse) {
    const bool received = participant->state == ParticipantState::kReceived;
    return Refusal(step, what, received ? versus : "");
  }
  ReceiptDecision decision;
  decision.complete = revision->AllReceived();
  if (step.effect == Effect::kChange) {
    decision.complete = revision->receipt_count + 1 == revision->participants.size();
    decision.events.emplace_back(ReceiptAccepted{command.import_id, at, command.digests});
  }
  return decision;
}

bool NeedsCommitFacts(const Catalog& catalog, ImportId id) {
  const Revision* revision = catalog.FindImport(id);
  return revision != nullptr && revision->availability == Availability::kImporting &&
         revision->AllReceived();
}

Result<std::vector<Event>> DecideCommit(const Catalog& catalog, const CommitImport& command,
                                        const CommitFacts& facts) {
  MC_RETURN_IF_ERROR(CheckEverBegun(catalog, command.import_id));
  const Revision* revision = catalog.FindImport(command.import_id);
  const bool open = StateOf(revision) == Availability::kImporting;
  const std::string difference =
      revision == nullptr || open ? "" : FirstDifference(*revision, command);
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kCommit,
                           {.same_content = difference.empty(),
                            .all_receipts = open && revision->AllReceived(),
                            .members_readable = facts.members.readable});
  if (row.effect == Effect::kRefuse) {
    std::string detail = difference;
    if (row.code == Code::kNotFound) detail = catalog.AbortReason(command.import_id);
    if (row.code == Code::kNotReady) detail = MissingReceipts(*revision);
    if (row.code == Code::kUnavailable) detail = facts.members.reason;
    return Refusal(row, Text(command.import_id), detail);
  }
  if (row.effect == Effect::kNothing) return std::vector<Event>{};

  MC_RETURN_IF_ERROR(CheckMetadataObject(command.manifest, model::kManifestName, *revision));
  MC_RETURN_IF_ERROR(CheckMetadataObject(command.affinity, model::kAffinityName, *revision));
  MC_RETURN_IF_ERROR(CheckAgainstFacts(command, facts.group));
  std::vector<model::MetadataObject> digests;
  for (const Participant& one : revision->participants) digests.push_back(one.digests);
  Committed committed;
  committed.import_id = command.import_id;
  committed.manifest = command.manifest;
  committed.affinity = command.affinity;
  committed.payload_keys_sha256 = command.payload_keys_sha256;
  committed.payload_count = command.payload_count;
  committed.logical_payload_bytes = command.logical_payload_bytes;
  committed.affinity_count = command.affinity_count;
  committed.digests_root_sha256 = model::DigestsRoot(digests);
  return std::vector<Event>{std::move(committed)};
}

Result<std::vector<Event>> DecideAbort(const Catalog& catalog, const AbortImport& command) {
  MC_RETURN_IF_ERROR(CheckEverBegun(catalog, command.import_id));
  const Revision* revision = catalog.FindImport(command.import_id);
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kAbort, {});
  if (row.effect == Effect::kRefuse) return Refusal(row, Text(command.import_id));
  if (row.effect == Effect::kNothing) return std::vector<Event>{};
  const bool takes_part = std::any_of(revision->participants.begin(), revision->participants.end(),
                                      [&](const Participant& participant) {
                                        return !participant.client_id.empty() &&
                                               participant.client_id == command.client_id;
                                      });
  if (!takes_part) {
    return Conflict(Text(command.import_id) + ": client " + LoggableReason(command.client_id) +
                    " has claimed none of its participants");
  }
  if (command.code != Code::kCancelled && command.code != Code::kConflict) {
    return InvalidArgument(Text(command.import_id) +
                           " can be aborted as CANCELLED or CONFLICT, got " +
                           std::string(CodeName(command.code)));
  }
  return std::vector<Event>{Aborted{command.import_id, LoggableReason(command.reason), command.code,
                                    revision->identity.tenant_id}};
}

std::vector<Event> DecideExpireImport(const Catalog& catalog, ImportId id,
                                      std::string_view reason) {
  const Revision* revision = catalog.FindImport(id);
  const auto& row = LookUp(StateOf(revision), RevisionTrigger::kAbort, {});
  if (row.effect != Effect::kChange) return {};
  return {Aborted{id, LoggableReason(reason), Code::kCancelled, revision->identity.tenant_id}};
}

}  // namespace mooncake::weights
