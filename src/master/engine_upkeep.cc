// What happens without being asked: time-outs, nodes that fall silent, revisions whose members come
// and go, deletions. Each round is bounded; what is left waits for the next batch. Level-triggered:
// every decision looks at the present state, so that a restart needs no special code.

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/probe.h"
#include "master/engine.h"
#include "weights/decide.h"

namespace mooncake::master {
namespace {

constexpr size_t kLeasesPerRound = 1024;
constexpr size_t kImportsPerRound = 64;
constexpr size_t kRechecksPerRound = 512;
constexpr size_t kNamesInReason = 8;

// The arena whose loss makes it pointless to go on writing; 0: none.
model::ArenaId LostArena(const objects::Catalog& objects, model::ImportId id) {
  const objects::Group* group = objects.FindGroup(id);
  if (group == nullptr) return {};
  for (const model::ArenaId arena_id : group->arenas) {
    const objects::Arena* arena = objects.FindArena(arena_id);
    if (arena != nullptr && arena->state == objects::ArenaState::kLost) return arena_id;
  }
  return {};
}

}  // namespace

void Engine::Serve(ReplicatedState state, int64_t now_ms) {
  state_ = std::move(state);
  deadlines_ = weights::Deadlines();
  deadlines_.Restart(state_.weights, now_ms);
  nodes_.DropStrangers(state_.objects);
  activity_.Begin(now_ms, options_.object_lease_ms, NextObjectId());
  grace_until_ms_ = now_ms + options_.node_dead_after_ms;
  grace_over_ = false;
  // What was decided but not logged before an append failed is found again so.
  recheck_.clear();
  for (const auto& [id, revision] : state_.weights.revisions()) {
    if (revision.availability != model::Availability::kDeleted) recheck_.insert(id);
  }
}

bool Engine::Upkeep(Batch& batch) {
  bool more = ExpireLeases(batch);
  more = ExpireImports(batch) || more;
  NoticeSilence(batch.now_ms());
  more = Recheck(batch) || more;
  more = ObjectUpkeep(batch) || more;
  return RemoveMembers(batch) || more;
}

bool Engine::EndClients(Batch& batch) {
  std::vector<model::LeaseId> leases;
  for (const auto& [id, lease] : state_.weights.leases()) {
    if (leases.size() == kLeasesPerRound) break;
    leases.push_back(id);
  }
  if (!leases.empty()) batch.Emit(weights::DecideExpireLeases(state_.weights, leases));
  std::vector<model::ImportId> imports;
  for (const model::ImportId id : state_.weights.open_imports()) {
    if (imports.size() == kImportsPerRound) break;
    imports.push_back(id);
  }
  for (const model::ImportId id : imports) Abort(id, "the process that wrote it has ended", batch);
  return !state_.weights.leases().empty() || !state_.weights.open_imports().empty();
}

bool Engine::ExpireLeases(Batch& batch) {
  const std::vector<model::LeaseId> expired =
      deadlines_.ExpiredLeases(batch.now_ms(), kLeasesPerRound);
  if (expired.empty()) return false;
  MC_PROBE("master.leases_expired");
  batch.Emit(weights::DecideExpireLeases(state_.weights, expired));
  return expired.size() == kLeasesPerRound;
}

bool Engine::ExpireImports(Batch& batch) {
  const auto expired = deadlines_.ExpiredImports(batch.now_ms(), kImportsPerRound);
  for (const auto& [import_id, client_id, reason] : expired) {
    Abort(import_id, reason + UnfinishedOf(import_id, client_id), batch);
  }
  return expired.size() == kImportsPerRound;
}

// What the writer had not handed in, for people: " (p1, p2)".
std::string Engine::UnfinishedOf(model::ImportId id, std::string_view client_id) const {
  const weights::Revision* revision = state_.weights.FindImport(id);
  if (revision == nullptr || client_id.empty()) return "";
  std::string names;
  size_t count = 0;
  for (const weights::Participant& participant : revision->participants) {
    if (participant.client_id != client_id) continue;
    if (participant.state == model::ParticipantState::kReceived) continue;
    if (++count <= kNamesInReason)
      names += (names.empty() ? "" : ", ") + participant.participant_id;
  }
  if (count > kNamesInReason) names += fmt::format(" and {} more", count - kNamesInReason);
  return names.empty() ? "" : " (" + names + ")";
}

void Engine::Abort(model::ImportId id, const std::string& reason, Batch& batch) {
  MC_PROBE("master.import_aborted");
  Log().info("master: import {} is aborted: {}", id.value, reason);
  const std::vector<weights::Event> events =
      weights::DecideExpireImport(state_.weights, id, reason);
  batch.Emit(events);
  if (!events.empty()) batch.Emit(objects::PlanGroupDrop(state_.objects, id));
}

void Engine::NoticeSilence(int64_t now_ms) {
  for (const std::string& node_id : nodes_.FindSilent(now_ms, options_.node_dead_after_ms)) {
    MC_PROBE("master.node_silent");
    Log().warn("master: node {} has not reported for {} ms", node_id, options_.node_dead_after_ms);
    LookAgain(node_id);
  }
  if (grace_over_ || InGrace(now_ms)) return;
  grace_over_ = true;
  for (const objects::Node& node : state_.objects.nodes()) LookAgain(node.address.node_id);
}

bool Engine::Recheck(Batch& batch) {
  if (recheck_.empty()) return false;
  const objects::NodeLiveness assumed = nodes_.Assumed(state_.objects, InGrace(batch.now_ms()));
  const objects::NodeLiveness confirmed = nodes_.Confirmed();
  for (size_t i = 0; i < kRechecksPerRound && !recheck_.empty(); ++i) {
    const model::ImportId id = *recheck_.begin();
    recheck_.erase(recheck_.begin());
    RecheckOne(id, assumed, confirmed, batch);
  }
  return !recheck_.empty();
}

// A READY revision is DEGRADED only by evidence; a DEGRADED one is READY again only by evidence.
void Engine::RecheckOne(model::ImportId id, const objects::NodeLiveness& assumed,
                        const objects::NodeLiveness& confirmed, Batch& batch) {
  const weights::Revision* revision = state_.weights.FindImport(id);
  if (revision == nullptr) return;
  if (revision->availability == model::Availability::kImporting) {
    const model::ArenaId lost = LostArena(state_.objects, id);
    if (lost == model::ArenaId()) return;
    Abort(id, fmt::format("the node of arena {} restarted and lost its memory", lost.value), batch);
    return;
  }
  if (!model::IsDiscoverable(revision->availability)) return;
  const bool ready = revision->availability == model::Availability::kReady;
  const model::MemberFacts facts =
      objects::ObserveMembers(state_.objects, id, ready ? assumed : confirmed);
  // Until the nodes are back, what a DEGRADED revision waits for says less than its old reason.
  if (!ready && !facts.readable && InGrace(batch.now_ms())) return;
  batch.Emit(weights::DecideMembers(state_.weights, id, facts));
}

bool Engine::RemoveMembers(Batch& batch) {
  if (state_.weights.deleting().empty()) return false;
  const auto before = state_.objects.payload_count();
  // By value: a finished deletion leaves the set.
  const std::set<model::ImportId> deleting = state_.weights.deleting();
  for (const model::ImportId id : deleting) {
    const uint64_t removed = before - state_.objects.payload_count();
    if (removed >= options_.removal_batch_members) break;
    const auto budget = static_cast<uint32_t>(options_.removal_batch_members - removed);
    const std::vector<objects::Event> step = objects::NextRemovalStep(state_.objects, id, budget);
    batch.Emit(step);
    if (step.empty()) batch.Emit(weights::DecideGroupEmpty(state_.weights, id));
  }
  return !state_.weights.deleting().empty();
}

}  // namespace mooncake::master
