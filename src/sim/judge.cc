#include "sim/judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "codec/values.h"
#include "model/states.h"
#include "mooncake/v1/log.pb.h"
#include "node/node.h"
#include "rpc/status_proto.h"

namespace mooncake::sim {
namespace {

using model::Availability;

std::string TextOf(const model::WeightIdentity& identity) {
  return identity.tenant_id + ":" + model::GroupId(identity);
}

std::pair<std::string, uint64_t> KeyOf(const v1::CommandId& command) {
  return {command.client_id(), command.sequence()};
}

bool IsReadable(int availability) {
  return availability == v1::AVAILABILITY_READY || availability == v1::AVAILABILITY_DEGRADED;
}

bool IsGoing(int availability) {
  return availability == v1::AVAILABILITY_DELETING || availability == v1::AVAILABILITY_DELETED;
}

// Nobody knows what became of the command.
bool IsUnclear(Code code) {
  return code == Code::kUnavailable || code == Code::kDurabilityFailed ||
         code == Code::kOutcomeUnknown;
}

// "Method\nmessage" as the network carries it.
struct Message {
  std::string method;
  std::string body;
};
Message Split(const std::string& request) {
  const size_t end = request.find('\n');
  return {request.substr(0, end), request.substr(end + 1)};
}

template <class Proto>
Proto Parse(const std::string& bytes) {
  Proto proto;
  MC_CHECK(proto.ParseFromString(bytes));
  return proto;
}

}  // namespace

std::string_view Name(Rule rule) {
  switch (rule) {
    case Rule::kOneManifest:
      return "one-manifest";
    case Rule::kReadyIsComplete:
      return "ready-is-complete";
    case Rule::kImmutableAfterReady:
      return "immutable-after-ready";
    case Rule::kNoStaleGeneration:
      return "no-stale-generation";
    case Rule::kLeaseProtects:
      return "lease-protects";
    case Rule::kColdBeforeRelease:
      return "cold-before-release";
    case Rule::kGroupIsWhole:
      return "group-is-whole";
    case Rule::kTerminalIsIdle:
      return "terminal-is-idle";
    case Rule::kNoTensorsInMetadata:
      return "no-tensors-in-metadata";
    case Rule::kReplicasDecide:
      return "replicas-decide";
    case Rule::kWatermarkIsNoHead:
      return "watermark-is-no-head";
    case Rule::kReplacementOrder:
      return "replacement-order";
    case Rule::kAcknowledgedIsKept:
      return "acknowledged-is-kept";
    case Rule::kReadyIsReadable:
      return "ready-is-readable";
    case Rule::kExtentsAreDisjoint:
      return "extents-are-disjoint";
    case Rule::kBytesAreCounted:
      return "bytes-are-counted";
    case Rule::kReaderGetsItsBytes:
      return "reader-gets-its-bytes";
    case Rule::kLeaseNotBoth:
      return "lease-not-both";
    case Rule::kOneOutcome:
      return "one-outcome";
  }
  return "?";
}

std::string_view ArrivesWith(Rule rule) {
  switch (rule) {
    case Rule::kColdBeforeRelease:
      return "the disk tier";
    case Rule::kWatermarkIsNoHead:
    case Rule::kReplacementOrder:
      return "generation replacement";
    default:
      return "";
  }
}

void Judge::Check(Rule rule, bool holds, const std::string& text) {
  ++checks_[static_cast<size_t>(rule)];
  if (!holds && !violation_) violation_ = Violation{rule, text};
}

Judge::RevisionFacts& Judge::FactsOf(const v1::WeightIdentity& identity) {
  const model::WeightIdentity value = codec::FromProto(identity);
  identities_.emplace(TextOf(value), value);
  return revisions_[TextOf(value)];
}

// ------------------------------------------------------------------- what passes the network

void Judge::OnMasterRequest(const std::string& request) {
  const Message message = Split(request);
  const int64_t now_ns = cluster_.simulation().now_ns();
  if (message.method == "OpenRevision") {
    arrived_ns_.try_emplace(KeyOf(Parse<v1::OpenRevisionRequest>(message.body).command()), now_ns);
  } else if (message.method == "ReleaseLease") {
    // From here on nobody relies on it.
    EndLease(Parse<v1::ReleaseLeaseRequest>(message.body).lease_id());
  }
}

void Judge::EndLease(uint64_t lease_id) {
  if (const auto found = leases_.find(lease_id); found != leases_.end()) {
    found->second.protected_until_ns = 0;
  }
}

void Judge::OnLogRecord(std::string_view payload) {
  // What a dead process does on its way out reaches no log.
  if (cluster_.simulation().CutOff()) return;
  if (on_log_record) on_log_record(payload);
  v1::LogBatch batch = Parse<v1::LogBatch>(std::string(payload));
  for (v1::LogEvent& event : *batch.mutable_events()) {
    // Why an import was given up is told to people, in the words of the client that found out; the
    // answer to it has them, too.
    v1::RevisionEvent revision;
    const bool aborted = event.kind() == v1::EVENT_KIND_REVISION &&
                         revision.ParseFromString(event.body()) && revision.has_aborted();
    if (aborted || event.kind() == v1::EVENT_KIND_COMMAND_OUTCOME) continue;
    Check(Rule::kNoTensorsInMetadata, event.body().find(kTensorMark) == std::string::npos,
          fmt::format("a log event of kind {} has a tensor's name", event.kind()));
  }
}

void Judge::OnMasterAnswer(const std::string& request, const std::string& answer) {
  const auto [method, body] = Split(request);
  if (method == "GetWeight") {
    const auto reply = Parse<v1::GetWeightReply>(answer);
    if (reply.status().code() == 0) SeeMetadata(reply.metadata());
  } else if (method == "ListWeights") {
    const auto reply = Parse<v1::ListWeightsReply>(answer);
    for (const v1::RevisionMetadata& metadata : reply.revisions()) SeeMetadata(metadata);
  } else if (method == "CommitImport") {
    const auto reply = Parse<v1::CommitImportReply>(answer);
    SeeOutcome(Parse<v1::CommitImportRequest>(body).command(), method, reply.status(),
               reply.metadata().import_id());
  } else if (method == "BeginImport") {
    const auto reply = Parse<v1::BeginImportReply>(answer);
    SeeOutcome(Parse<v1::BeginImportRequest>(body).command(), method, reply.status(),
               reply.import_id());
  } else if (method == "SubmitReceipt") {
    const auto reply = Parse<v1::SubmitReceiptReply>(answer);
    SeeOutcome(Parse<v1::SubmitReceiptRequest>(body).command(), method, reply.status(),
               reply.complete() ? 1 : 0);
  } else if (method == "AbortImport") {
    const auto reply = Parse<v1::AbortImportReply>(answer);
    SeeOutcome(Parse<v1::AbortImportRequest>(body).command(), method, reply.status(), 0);
  } else if (method == "OpenRevision") {
    const auto reply = Parse<v1::OpenRevisionReply>(answer);
    const auto asked = Parse<v1::OpenRevisionRequest>(body);
    SeeOutcome(asked.command(), method, reply.status(), reply.lease_id());
    SeeOpened(asked, reply);
  } else if (method == "RenewLeases") {
    SeeRenewed(Parse<v1::RenewLeasesRequest>(body), Parse<v1::RenewLeasesReply>(answer));
  } else if (method == "ReleaseLease") {
    const auto reply = Parse<v1::ReleaseLeaseReply>(answer);
    const auto asked = Parse<v1::ReleaseLeaseRequest>(body);
    SeeOutcome(asked.command(), method, reply.status(), 0);
    if (reply.status().code() == 0) leases_[asked.lease_id()].over = true;
  } else if (method == "LocateObjects") {
    const auto reply = Parse<v1::LocateObjectsReply>(answer);
    const uint64_t lease_id = Parse<v1::LocateObjectsRequest>(body).lease_id();
    if (reply.status().code() == 0) {
      Check(Rule::kLeaseNotBoth, !leases_[lease_id].over,
            fmt::format("lease {} is over and served all the same", lease_id));
    }
  } else if (method == "RemoveWeight") {
    const auto reply = Parse<v1::RemoveWeightReply>(answer);
    SeeOutcome(Parse<v1::RemoveWeightRequest>(body).command(), method, reply.status(), 0);
  }
}

void Judge::SeeMetadata(const v1::RevisionMetadata& metadata) {
  RevisionFacts& facts = FactsOf(metadata.identity());
  const std::string identity = TextOf(codec::FromProto(metadata.identity()));
  Check(Rule::kNoStaleGeneration, metadata.metadata_generation() >= facts.metadata_generation,
        fmt::format("{}: metadata generation {} was told after {}", identity,
                    metadata.metadata_generation(), facts.metadata_generation));
  facts.metadata_generation = std::max(facts.metadata_generation, metadata.metadata_generation());
  const auto [said, is_new] = facts.availability_of.try_emplace(
      metadata.metadata_generation(), static_cast<int>(metadata.availability()));
  Check(Rule::kNoStaleGeneration, said->second == static_cast<int>(metadata.availability()),
        fmt::format("{}: metadata generation {} is availability {} and {}", identity,
                    metadata.metadata_generation(), said->second,
                    static_cast<int>(metadata.availability())));
  if (IsReadable(metadata.availability())) {
    v1::RevisionMetadata fixed;
    fixed.set_manifest_key(metadata.manifest_key());
    fixed.set_manifest_sha256(metadata.manifest_sha256());
    fixed.set_payload_keys_sha256(metadata.payload_keys_sha256());
    fixed.set_payload_count(metadata.payload_count());
    fixed.set_logical_payload_bytes(metadata.logical_payload_bytes());
    fixed.set_affinity_count(metadata.affinity_count());
    fixed.set_affinity_sha256(metadata.affinity_sha256());
    fixed.set_digests_root_sha256(metadata.digests_root_sha256());
    fixed.set_placement_id(metadata.placement_id());
    fixed.set_created_at(metadata.created_at());
    fixed.set_import_id(metadata.import_id());
    const std::string text = fixed.SerializeAsString();
    if (facts.immutable.empty()) facts.immutable = text;
    v1::RevisionMetadata first = Parse<v1::RevisionMetadata>(facts.immutable);
    Check(Rule::kOneManifest, first.manifest_sha256() == metadata.manifest_sha256(),
          identity + " had another manifest before");
    Check(Rule::kImmutableAfterReady, facts.immutable == text,
          identity + " was told READY with another summary before");
    Check(Rule::kAcknowledgedIsKept, !facts.remove_told,
          identity + " is READY again after its removal was acknowledged");
  }
  if (IsGoing(metadata.availability())) SeeGone(identity, "is going away");
}

void Judge::SeeGone(const std::string& identity, std::string_view how) {
  const int64_t now_ns = cluster_.simulation().now_ns();
  for (const auto& [id, lease] : leases_) {
    if (lease.identity != identity) continue;
    Check(Rule::kLeaseProtects, lease.over || lease.protected_until_ns <= now_ns,
          fmt::format("{} {} though lease {} protects it for {} ms more", identity, how, id,
                      (lease.protected_until_ns - now_ns) / kMillisecond));
  }
}

void Judge::SeeOutcome(const v1::CommandId& command, const std::string& method,
                       const v1::StatusProto& status, uint64_t id) {
  const auto code = static_cast<Code>(status.code());
  if (IsUnclear(code)) return;
  const std::string outcome = fmt::format("{} {}", CodeName(code), code == Code::kOk ? id : 0);
  const auto [first, is_new] = outcomes_.try_emplace(KeyOf(command), outcome);
  // Refused for want of space in the log it left no trace.
  if (first->second.starts_with("EXHAUSTED")) first->second = outcome;
  // A straggler of a command whose outcome was acknowledged and forgotten is refused.
  if (!is_new && code == Code::kInvalidArgument) return;
  Check(Rule::kOneOutcome, first->second == outcome,
        fmt::format("{} command {} of client {} was answered '{}' and '{}'", method,
                    command.sequence(), command.client_id(), first->second, outcome));
}

void Judge::SeeOpened(const v1::OpenRevisionRequest& request, const v1::OpenRevisionReply& reply) {
  if (reply.status().code() != 0) return;
  LeaseFacts& lease = leases_[reply.lease_id()];
  // A repeated command gets its first answer, whatever has become of the revision since.
  if (lease.identity.empty()) SeeMetadata(reply.metadata());
  const std::string identity = TextOf(codec::FromProto(request.identity()));
  if (lease.identity.empty()) {
    lease.identity = identity;
    lease.command = KeyOf(request.command());
    lease.ttl_ms = request.ttl_ms();
    // Its holder counts from before it asked.
    lease.protected_until_ns =
        arrived_ns_.at(lease.command) + static_cast<int64_t>(request.ttl_ms()) * kMillisecond;
  }
  Check(Rule::kLeaseNotBoth,
        lease.identity == identity && lease.command == KeyOf(request.command()),
        fmt::format("lease {} was given twice", reply.lease_id()));
}

void Judge::SeeRenewed(const v1::RenewLeasesRequest& request, const v1::RenewLeasesReply& reply) {
  if (reply.status().code() != 0) return;
  for (int i = 0; i < reply.leases_size() && i < request.lease_ids_size(); ++i) {
    const uint64_t id = request.lease_ids(i);
    LeaseFacts& lease = leases_[id];
    const auto code = static_cast<Code>(reply.leases(i).code());
    if (code == Code::kOk) {
      Check(Rule::kLeaseNotBoth, !lease.over, fmt::format("lease {} was over and is renewed", id));
    } else if (!IsUnclear(code)) {
      lease.over = true;
    }
  }
}

// ------------------------------------------------------------- what clients did and were told

void Judge::PublishTried(const Content& content) {
  identities_.emplace(TextOf(content.identity), content.identity);
  revisions_[TextOf(content.identity)].variants_tried.insert(content.variant);
}

void Judge::PublishTold(const Content& content) {
  RevisionFacts& facts = revisions_[TextOf(content.identity)];
  if (!facts.variant_told) facts.variant_told = content.variant;
  Check(Rule::kOneManifest, *facts.variant_told == content.variant,
        fmt::format("{}: variants {} and {} were both told READY", TextOf(content.identity),
                    *facts.variant_told, content.variant));
}

void Judge::RemoveTried(const model::WeightIdentity& identity) {
  revisions_[TextOf(identity)].remove_tried = true;
}

void Judge::RemoveTold(const model::WeightIdentity& identity) {
  revisions_[TextOf(identity)].remove_told = true;
}

void Judge::LoadTold(const model::WeightIdentity& identity, const std::string& wrong) {
  Check(Rule::kReaderGetsItsBytes, wrong.empty(), TextOf(identity) + ": " + wrong);
}

void Judge::LoadFailed(const model::WeightIdentity& identity, const Status& why) {
  const bool says_damage = why.code() == Code::kCorrupt || why.code() == Code::kInternal;
  Check(Rule::kReadyIsReadable, damaged_ || !says_damage,
        TextOf(identity) + " cannot be read: " + why.ToString());
}

void Judge::ReadAtRest(const model::WeightIdentity& identity, const Status& loaded) {
  Check(Rule::kReadyIsReadable, loaded.ok() || damaged_,
        TextOf(identity) + " is READY, everything is up, and reading it says " + loaded.ToString());
}

std::vector<uint32_t> Judge::VariantsOf(const model::WeightIdentity& identity) const {
  const auto found = revisions_.find(TextOf(identity));
  if (found == revisions_.end()) return {};
  // Once one was told, no other may ever be read.
  if (found->second.variant_told) return {*found->second.variant_told};
  return {found->second.variants_tried.begin(), found->second.variants_tried.end()};
}

std::vector<model::WeightIdentity> Judge::Published() const {
  std::vector<model::WeightIdentity> published;
  for (const auto& [text, facts] : revisions_) {
    if (facts.variant_told && !facts.remove_tried) published.push_back(identities_.at(text));
  }
  return published;
}

std::vector<model::WeightIdentity> Judge::Tried() const {
  std::vector<model::WeightIdentity> tried;
  for (const auto& [text, facts] : revisions_) {
    if (!facts.variants_tried.empty()) tried.push_back(identities_.at(text));
  }
  return tried;
}

// ------------------------------------------------------------- what Master and nodes hold

void Judge::Inspect() {
  const std::shared_ptr<master::Master> master = cluster_.master();
  if (master == nullptr) return;
  InspectCatalogues(master->state());
  InspectHoldings(master->state());
}

void Judge::InspectCatalogues(const master::ReplicatedState& state) {
  const Status agreed = state.CheckInvariants();
  Check(Rule::kGroupIsWhole, agreed.ok(), agreed.ToString());
  std::map<uint64_t, std::vector<std::pair<uint64_t, uint64_t>>> extents;  // by arena
  std::map<uint32_t, uint64_t> live_bytes;
  for (const auto& [id, group] : state.objects.groups()) {
    for (uint32_t number = 0; number < group.payloads.row_count(); ++number) {
      const objects::PayloadTable::Row& row = group.payloads.row(number);
      if (row.arena == objects::PayloadTable::kRemoved) continue;
      extents[group.arenas[row.arena].value].emplace_back(row.offset, row.offset + row.bytes);
    }
  }
  for (auto& [arena, ranges] : extents) {
    std::sort(ranges.begin(), ranges.end());
    for (size_t i = 1; i < ranges.size(); ++i) {
      Check(Rule::kExtentsAreDisjoint, ranges[i - 1].second <= ranges[i].first,
            fmt::format("two payloads share bytes of arena {}", arena));
    }
  }
  for (const auto& [id, arena] : state.objects.arenas()) {
    if (arena.state == objects::ArenaState::kLive) live_bytes[arena.node] += arena.bytes;
  }
  for (size_t i = 0; i < state.objects.nodes().size(); ++i) {
    const objects::Node& node = state.objects.node(static_cast<uint32_t>(i));
    Check(Rule::kBytesAreCounted, node.live_bytes == live_bytes[static_cast<uint32_t>(i)],
          fmt::format("node {}: {} live bytes are charged, its arenas have {}",
                      node.address.node_id, node.live_bytes, live_bytes[static_cast<uint32_t>(i)]));
    // METADATA objects are charged as they come and may go beyond it.
    Check(
        Rule::kBytesAreCounted, node.live_bytes + node.releasing_bytes <= node.capacity_bytes,
        fmt::format("node {}: arenas of {} bytes are charged, capacity is {}", node.address.node_id,
                    node.live_bytes + node.releasing_bytes, node.capacity_bytes));
  }
  for (const auto& [import_id, revision] : state.weights.revisions()) {
    const bool terminal = revision.availability == Availability::kDeleting ||
                          revision.availability == Availability::kDeleted;
    Check(Rule::kTerminalIsIdle, !terminal || revision.leases.empty(),
          fmt::format("{} is {} and has {} leases", TextOf(revision.identity),
                      model::Name(revision.availability), revision.leases.size()));
    if (terminal) SeeGone(TextOf(revision.identity), "is going away at the Master");
    if (revision.availability != Availability::kReady) continue;
    const objects::Group* group = state.objects.FindGroup(import_id);
    Check(Rule::kReadyIsComplete, group != nullptr && !group->removed,
          TextOf(revision.identity) + " is READY without objects");
    if (group == nullptr) continue;
    Check(Rule::kReadyIsComplete,
          group->payloads.payload_count() == revision.payload_count &&
              group->payloads.payload_bytes() == revision.logical_payload_bytes &&
              revision.AllReceived() && group->metadata.size() >= revision.participants.size() + 2,
          fmt::format("{} is READY with {} of {} payloads, {} of {} bytes, {} METADATA objects",
                      TextOf(revision.identity), group->payloads.payload_count(),
                      revision.payload_count, group->payloads.payload_bytes(),
                      revision.logical_payload_bytes, group->metadata.size()));
  }
}

void Judge::InspectHoldings(const master::ReplicatedState& state) {
  // What each living instance holds, asked of the nodes themselves.
  std::map<std::string, std::map<uint64_t, node::HeldImport>> held;
  for (size_t i = 0; i < cluster_.node_count(); ++i) {
    const std::shared_ptr<node::Node> node = cluster_.node(i);
    if (node == nullptr) continue;
    for (node::HeldImport& import : node->Report()) {
      held[node->instance_id()][import.import_id] = std::move(import);
    }
  }
  for (const auto& [import_id, revision] : state.weights.revisions()) {
    if (revision.availability != Availability::kReady) continue;
    const objects::Group* group = state.objects.FindGroup(import_id);
    if (group == nullptr) continue;
    for (const objects::ArenaId arena_id : group->arenas) {
      const objects::Arena* arena = state.objects.FindArena(arena_id);
      if (arena == nullptr || arena->state != objects::ArenaState::kLive) continue;
      const std::string& instance = state.objects.node(arena->node).address.instance_id;
      if (!cluster_.InstanceIsAlive(instance)) continue;
      const std::vector<uint64_t>& arenas = held[instance][import_id.value].arena_ids;
      Check(Rule::kReadyIsReadable,
            std::find(arenas.begin(), arenas.end(), arena_id.value) != arenas.end(),
            fmt::format("{} is READY, and its arena {} is gone from a living node",
                        TextOf(revision.identity), arena_id.value));
    }
  }
}

void Judge::InspectAtRest() {
  const std::shared_ptr<master::Master> master = cluster_.master();
  Check(Rule::kAcknowledgedIsKept, master != nullptr, "the Master does not come back");
  if (master == nullptr) return;
  const master::ReplicatedState& state = master->state();
  InspectCatalogues(state);
  InspectHoldings(state);
  for (const auto& [text, facts] : revisions_) {
    const weights::Revision* revision = state.weights.Find(identities_.at(text));
    if (facts.variant_told && !facts.remove_tried) {
      const bool kept = revision != nullptr && IsReadable(static_cast<int>(revision->availability));
      Check(Rule::kAcknowledgedIsKept, kept, text + " was told READY and is not there");
    }
    if (facts.remove_told) {
      const bool gone = revision == nullptr || revision->availability == Availability::kDeleted;
      Check(Rule::kAcknowledgedIsKept, gone, text + " was told removed and is there");
    }
  }
  // Whatever the Master remembered of progress: what is there decides.
  for (const auto& [import_id, revision] : state.weights.revisions()) {
    const objects::Group* group = state.objects.FindGroup(import_id);
    if (group == nullptr || group->removed) continue;
    bool lost = false;
    for (const objects::ArenaId arena_id : group->arenas) {
      const objects::Arena* arena = state.objects.FindArena(arena_id);
      lost = lost || arena == nullptr || arena->state == objects::ArenaState::kLost ||
             !cluster_.InstanceIsAlive(state.objects.node(arena->node).address.instance_id);
    }
    if (revision.availability == Availability::kReady) {
      Check(Rule::kReplicasDecide, !lost, TextOf(revision.identity) + " is READY without bytes");
    } else if (revision.availability == Availability::kDegraded) {
      Check(Rule::kReplicasDecide, lost || damaged_,
            TextOf(revision.identity) +
                " is DEGRADED with all its bytes: " + revision.degraded_reason);
    }
  }
  Check(Rule::kTerminalIsIdle,
        state.weights.open_imports().empty() && state.weights.leases().empty() &&
            state.weights.deleting().empty(),
        fmt::format("at rest there are {} open imports, {} leases, {} deletions",
                    state.weights.open_imports().size(), state.weights.leases().size(),
                    state.weights.deleting().size()));
  for (size_t i = 0; i < cluster_.node_count(); ++i) {
    const std::shared_ptr<node::Node> node = cluster_.node(i);
    const objects::Node* known =
        node == nullptr ? nullptr : state.objects.FindNode(node->node_id());
    Check(
        Rule::kBytesAreCounted,
        known != nullptr && known->releasing_bytes == 0 && node->used_bytes() == known->live_bytes,
        fmt::format("node {}: the Master charges {} bytes, {} are held", i,
                    known == nullptr ? 0 : known->live_bytes + known->releasing_bytes,
                    node == nullptr ? 0 : node->used_bytes()));
  }
}

}  // namespace mooncake::sim
