#include "client/import_session.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/probe.h"
#include "client/import_commit.h"
#include "client/steps.h"
#include "codec/values.h"
#include "env/clock.h"
#include "env/deadline.h"
#include "env/random.h"
#include "env/sync.h"
#include "manifest/lookup.h"

namespace mooncake::client {
namespace {

// An abort is a courtesy: without it the Master reclaims the import when its lease runs out.
constexpr int64_t kAbortRetryMs = 2'000;
constexpr size_t kNamesInMessage = 8;
constexpr int64_t kReturningPauseMs = 50;
constexpr int64_t kSignOfLifePauseMs = 50;

Status CheckIdentity(const model::WeightIdentity& identity, const manifest::Placement& placement) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(identity));
  const auto differ = [](std::string_view field, const std::string& expected,
                         const std::string& got) {
    return InvalidArgument("placement and identity differ in " + std::string(field) +
                           ": the identity has " + expected + ", the placement " + got);
  };
  if (placement.resource_id != identity.resource_id) {
    return differ("resource_id", identity.resource_id, placement.resource_id);
  }
  if (placement.revision != identity.revision) {
    return differ("revision", identity.revision, placement.revision);
  }
  if (placement.weight_generation != identity.weight_generation.value) {
    return differ("weight_generation", std::to_string(identity.weight_generation.value),
                  std::to_string(placement.weight_generation));
  }
  return OkStatus();
}

std::string ListNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamesInMessage; ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamesInMessage) {
    text += " and " + std::to_string(names.size() - kNamesInMessage) + " more";
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<ImportSession>> ImportSession::Begin(std::shared_ptr<Session> session,
                                                            const ImportRequest& request) {
  if (request.placement == nullptr) return InvalidArgument("placement is missing");
  MC_RETURN_IF_ERROR(CheckIdentity(request.identity, *request.placement));
  MC_ASSIGN_OR_RETURN(reshard::UploadPlan plan,
                      reshard::PlanUpload(request.placement, model::GroupId(request.identity),
                                          reshard::kDefaultPackThreshold, request.verify_replicas));
  std::unique_ptr<ImportSession> import(
      new ImportSession(std::move(session), request, std::move(plan)));
  MC_RETURN_IF_ERROR(import->CheckParticipants());
  Status status = import->Join(request);
  if (!status.ok()) {
    // Destroying it aborts what it may have begun.
    return status.WithContext("publishing " + model::Describe(request.identity));
  }
  return import;
}

ImportSession::ImportSession(std::shared_ptr<Session> session, const ImportRequest& request,
                             reshard::UploadPlan plan)
    : session_(std::move(session)),
      identity_(request.identity),
      plan_(std::move(plan)),
      participants_(request.participants),
      calls_(&session_->calls),
      arenas_(plan_, session_->nodes, session_->options.retry_ms) {
  if (participants_.empty()) {
    for (const reshard::ParticipantUpload& upload : plan_.participants) {
      participants_.push_back(upload.participant_id);
    }
  }
}

ImportSession::~ImportSession() {
  const Status status = Abort("the importer was destroyed before it was finished");
  if (!status.ok())
    Log().info("client: abort of {}: {}", model::Describe(identity_), status.ToString());
  session_->claims.Give(claims_);
}

Status ImportSession::CheckParticipants() {
  std::set<std::string> seen;
  for (const std::string& id : participants_) {
    if (manifest::FindPart(*plan_.placement, id) == nullptr) {
      return InvalidArgument("participants: " + id + " is not in the placement");
    }
    if (!seen.insert(id).second) return InvalidArgument("participants: " + id + " occurs twice");
  }
  return OkStatus();
}

Result<v1::BeginImportReply> ImportSession::CallBegin(const ImportRequest& request,
                                                      bool with_list) {
  v1::BeginImportRequest begin;
  codec::ToProto(identity_, begin.mutable_identity());
  begin.set_placement_id(plan_.placement->placement_id);
  MC_ASSIGN_OR_RETURN(const Sha256Digest plan_sha256, Sha256FromHex(plan_.plan_sha256));
  begin.set_plan_sha256(codec::BytesOf(plan_sha256));
  begin.set_ttl_ms(session_->options.import_ttl_ms);
  begin.set_preferred_host_id(session_->options.host_id);
  const std::optional<model::StoragePolicy>& policy =
      request.policy ? request.policy : session_->options.default_policy;
  if (policy) codec::ToProto(*policy, begin.mutable_policy());
  for (const ImportClaims::Claim& claim : claims_) begin.add_claim(claim.second);
  if (with_list) {
    for (const reshard::ParticipantUpload& upload : plan_.participants) {
      if (!upload.hands_in()) continue;  // no receipt to wait for
      v1::PlannedParticipant* participant = begin.add_participants();
      participant->set_participant_id(upload.participant_id);
      for (const uint32_t index : upload.objects) {
        const reshard::PayloadObject& object = plan_.objects[index];
        v1::PlannedPayload* payload = participant->add_payloads();
        payload->set_name(object.name);
        payload->set_bytes(object.nbytes);
        payload->set_unit(object.unit);
      }
    }
  }
  return calls_->Command(&rpc::MasterApi::BeginImport, std::move(begin), session_->Limits());
}

// What a removal gave up is free again once the nodes have let go of it, a report or two later: a
// full store that is just being emptied is worth that wait.
bool ImportSession::SpaceIsReturning() {
  const Result<v1::GetClusterReply> cluster =
      calls_->Ask(&rpc::MasterApi::GetCluster, v1::GetClusterRequest(), session_->Limits());
  if (!cluster.ok()) return false;
  return std::any_of(cluster->nodes().begin(), cluster->nodes().end(),
                     [](const auto& node) { return node.alive() && node.releasing_bytes() > 0; });
}

Status ImportSession::Join(const ImportRequest& request) {
  for (const std::string& id : participants_) {
    for (const reshard::ParticipantUpload& upload : plan_.participants) {
      if (upload.participant_id == id && upload.hands_in()) claims_.emplace_back(identity_, id);
    }
  }
  if (!session_->claims.Take(claims_)) {
    own_calls_ = std::make_unique<MasterCalls>(
        session_->master, HexOf(env::SystemRandom::Instance().RandomBytes(16)));
    calls_ = own_calls_.get();
  }
  Result<v1::BeginImportReply> begun = BeginOrJoin(request);
  while (begun.ok() && IsLeftToOthers(*begun)) {
    MC_PROBE("client.waits_for_earlier_writer");
    MC_ASSIGN_OR_RETURN(const bool alive, AwaitSignOfLife(begun->import_id(), request));
    if (alive) break;
    begun = BeginOrJoin(request);
  }
  if (begun.status().code() == Code::kConflict) {
    return begun.status().WithContext("a plan is a placement and what verify_replicas is");
  }
  if (!begun.ok()) return begun.status();
  return TakePart(*begun);
}

Result<v1::BeginImportReply> ImportSession::BeginOrJoin(const ImportRequest& request) {
  Result<v1::BeginImportReply> begun = CallBegin(request, /*with_list=*/false);
  if (begun.status().code() == Code::kNotFound) begun = CallBegin(request, /*with_list=*/true);
  const env::Deadline deadline = env::Deadline::AfterMs(session_->options.retry_ms);
  for (bool returning = true;
       returning && begun.status().code() == Code::kExhausted && !deadline.Expired();) {
    // Asked once more when nothing is returning: it may have come between the refusal and the look.
    returning = SpaceIsReturning();
    if (returning) env::PauseMs(kReturningPauseMs, {});
    begun = CallBegin(request, /*with_list=*/true);
  }
  return begun;
}

bool ImportSession::IsLeftToOthers(const v1::BeginImportReply& begun) const {
  return begun.state() == v1::IMPORT_STATE_OPEN &&
         std::none_of(begun.participants().begin(), begun.participants().end(),
                      [](const v1::ParticipantProgress& progress) {
                        return progress.state() == v1::PARTICIPANT_STATE_YOURS;
                      });
}

Result<bool> ImportSession::AwaitSignOfLife(uint64_t import_id, const ImportRequest& request) {
  const env::Clock& clock = env::SystemClock::Instance();
  const int64_t begin_ms = clock.MonotonicMs();
  const auto concerns_us = [this](const std::string& participant) {
    return claims_.empty() || std::any_of(claims_.begin(), claims_.end(), [&](const auto& claim) {
             return claim.second == participant;
           });
  };
  v1::GetImportRequest get;
  get.set_import_id(import_id);
  get.set_client_id(calls_->client_id());
  while (true) {
    const auto waited_ms = static_cast<uint64_t>(clock.MonotonicMs() - begin_ms);
    const Result<v1::GetImportReply> import =
        calls_->Ask(&rpc::MasterApi::GetImport, get, session_->Limits());
    if (import.status().code() == Code::kNotFound) return false;
    if (!import.ok()) return import.status();
    if (import->state() != v1::IMPORT_STATE_OPEN) return false;
    bool has_writer = false;
    for (const v1::ParticipantProgress& progress : import->participants()) {
      if (!progress.has_silent_ms() || !concerns_us(progress.participant_id())) continue;
      has_writer = true;
      if (progress.silent_ms() < waited_ms) return true;
    }
    if (!has_writer) return true;
    if (request.keep_waiting && !request.keep_waiting()) {
      return Cancelled("cancelled by the caller while waiting for an earlier writer");
    }
    env::PauseMs(kSignOfLifePauseMs, {});
  }
}

Status ImportSession::TakePart(const v1::BeginImportReply& begun) {
  import_id_ = begun.import_id();
  created_at_ = begun.created_at();
  policy_note_ = begun.policy_note();
  already_published_ = begun.state() == v1::IMPORT_STATE_COMMITTED;
  std::set<std::string, std::less<>> ours;
  for (const v1::ParticipantProgress& progress : begun.participants()) {
    if (progress.state() == v1::PARTICIPANT_STATE_YOURS) ours.insert(progress.participant_id());
  }
  claimed_any_ = !already_published_ && !ours.empty();
  if (claimed_any_) {
    kept_ = session_->keeper.KeepImport(import_id_, calls_->client_id(),
                                        session_->options.import_ttl_ms);
  }
  for (uint32_t index = 0; index < plan_.participants.size(); ++index) {
    const std::string& id = plan_.participants[index].participant_id;
    if (std::find(participants_.begin(), participants_.end(), id) == participants_.end()) continue;
    const bool claimed = claimed_any_ && ours.contains(id);
    writers_[id] = std::make_unique<ParticipantWriter>(plan_, index, claimed ? &arenas_ : nullptr);
  }
  MC_RETURN_IF_ERROR(session_->Step(import_step::kBegun));
  MC_RETURN_IF_ERROR(LocateOwn());
  MC_RETURN_IF_ERROR(ReserveOwn());
  return session_->Step(import_step::kLocated);
}

Status ImportSession::LocateOwn() {
  for (const auto& [id, writer] : writers_) {
    if (!writer->hands_in()) continue;
    v1::GetImportRequest get;
    get.set_import_id(import_id_);
    get.set_client_id(calls_->client_id());
    get.add_extents_of(id);
    MC_ASSIGN_OR_RETURN(const v1::GetImportReply reply,
                        calls_->Ask(&rpc::MasterApi::GetImport, get, session_->Limits()));
    if (reply.state() == v1::IMPORT_STATE_ABORTED) return AbortOutcome(reply);
    MC_RETURN_IF_ERROR(arenas_.Locate(reply));
  }
  return OkStatus();
}

// Before a byte is written: what the Master counts as free may not be on the disk.
Status ImportSession::ReserveOwn() {
  const env::Deadline deadline = env::Deadline::AfterMs(session_->options.retry_ms);
  Status reserved = arenas_.Reserve();
  for (bool returning = true;
       returning && reserved.code() == Code::kExhausted && !deadline.Expired();) {
    returning = SpaceIsReturning();
    if (returning) env::PauseMs(kReturningPauseMs, {});
    reserved = arenas_.Reserve();
  }
  return reserved;
}

Result<std::vector<std::string>> ImportSession::WantedFragments(
    std::string_view participant) const {
  const auto found = writers_.find(participant);
  if (found == writers_.end()) {
    return InvalidArgument("participant " + std::string(participant) +
                           " is not one of this importer's");
  }
  return found->second->Wanted();
}

Status ImportSession::PutFragment(std::string_view participant,
                                  std::string_view placement_fragment_id,
                                  const FragmentSource& source) {
  std::shared_lock putting(putting_);
  {
    std::lock_guard lock(phase_mutex_);
    if (phase_ != Phase::kOpen) return Cancelled("the import is over: nothing can be put any more");
  }
  const auto found = writers_.find(participant);
  if (found == writers_.end()) {
    return InvalidArgument("participant " + std::string(participant) +
                           " is not one of this importer's");
  }
  if (kept_ != nullptr) MC_RETURN_IF_ERROR(kept_->state().WithContext("the import was lost"));
  const env::Clock& clock = env::SystemClock::Instance();
  const int64_t begin_ns = clock.MonotonicNs();
  Status status = found->second->Put(placement_fragment_id, source, *session_);
  put_ns_.fetch_add(clock.MonotonicNs() - begin_ns, std::memory_order_relaxed);
  return status;
}

Status ImportSession::CheckComplete() const {
  std::set<std::string> tensors;
  for (const auto& [id, writer] : writers_) {
    for (std::string& tensor : writer->Missing()) tensors.insert(std::move(tensor));
  }
  if (tensors.empty()) return OkStatus();
  const std::vector<std::string> names(tensors.begin(), tensors.end());
  return InvalidArgument("fragments were not put of " + std::to_string(names.size()) +
                         " tensors: " + ListNames(names));
}

Result<ImportReport> ImportSession::Finish(const WaitOptions& options) {
  {
    std::lock_guard lock(phase_mutex_);
    if (phase_ != Phase::kOpen) return InvalidArgument("the import is over: it cannot be finished");
    phase_ = Phase::kFinishing;
  }
  Result<ImportReport> report = FinishOpen(options);
  if (!report.ok()) {
    const Status aborted = AbortAtMaster(report.status().message(), kAbortRetryMs);
    if (!aborted.ok()) {
      MC_PROBE("client.abort_failed");
      Log().info("client: abort of {}: {}", model::Describe(identity_), aborted.ToString());
    }
  }
  std::lock_guard lock(phase_mutex_);
  phase_ = Phase::kOver;
  kept_.reset();
  if (!report.ok()) return report.status().WithContext("publishing " + model::Describe(identity_));
  return report;
}

Result<ImportReport> ImportSession::FinishOpen(const WaitOptions& options) {
  {
    std::unique_lock nobody_putting(putting_);
    MC_RETURN_IF_ERROR(CheckComplete());
    arenas_.Clear();
  }
  ImportCommit commit(*this, options);
  const env::Clock& clock = env::SystemClock::Instance();
  const int64_t begin_ns = clock.MonotonicNs();
  ImportReport report;
  MC_ASSIGN_OR_RETURN(report.metadata, commit.Run());
  report.already_published = already_published_;
  report.seconds_commit = static_cast<double>(clock.MonotonicNs() - begin_ns) / 1e9;
  report.seconds_copy = static_cast<double>(put_ns_.load()) / 1e9;
  for (const auto& [id, writer] : writers_) {
    report.bytes_uploaded += writer->bytes_uploaded();
    report.bytes_compared += writer->bytes_compared();
  }
  return report;
}

Status ImportSession::Abort(std::string_view reason) {
  {
    std::lock_guard lock(phase_mutex_);
    if (phase_ == Phase::kOver) return OkStatus();
    // A Finish under way in another thread sees the abort at the Master and ends by itself.
    if (phase_ == Phase::kOpen) phase_ = Phase::kOver;
  }
  {
    std::unique_lock nobody_putting(putting_);
    arenas_.Clear();
  }
  return AbortAtMaster(reason, kAbortRetryMs);
}

Status ImportSession::AbortAtMaster(std::string_view reason, int64_t retry_ms) {
  if (!claimed_any_) return OkStatus();
  v1::AbortImportRequest abort;
  abort.set_import_id(import_id_);
  abort.set_reason(std::string(reason));
  const Status status =
      calls_->Command(&rpc::MasterApi::AbortImport, std::move(abort), {retry_ms, {}}).status();
  return status.code() == Code::kNotFound ? OkStatus() : status;
}

}  // namespace mooncake::client
