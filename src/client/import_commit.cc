#include "client/import_commit.h"

#include <algorithm>
#include <map>

#include "client/replica_check.h"
#include "client/steps.h"
#include "codec/values.h"
#include "env/clock.h"
#include "env/sync.h"
#include "manifest/canonical.h"

namespace mooncake::client {
namespace {

constexpr int64_t kLookPauseMsMin = 2;
constexpr int64_t kLookPauseMsMax = 100;
// Whose receipt completed the set compares and commits at once. How long the others wait for it.
constexpr int64_t kTakeOverMs = 300;
constexpr int64_t kTakeOverStepMs = 20;
constexpr int64_t kTakeOverStepsMax = 250;

const v1::NodeAddress* FindNode(const v1::GetImportReply& import, const std::string& node_id) {
  for (const v1::NodeAddress& node : import.nodes()) {
    if (node.node_id() == node_id) return &node;
  }
  return nullptr;
}

const v1::Grant* FindGrant(const v1::GetImportReply& import, const std::string& instance_id,
                           v1::Access access) {
  for (const v1::Grant& grant : import.grants()) {
    if (grant.access() == access && grant.instance_id() == instance_id) {
      return &grant;
    }
  }
  return nullptr;
}

bool AllReceived(const v1::GetImportReply& import) {
  return std::all_of(import.participants().begin(), import.participants().end(),
                     [](const v1::ParticipantProgress& progress) {
                       return progress.state() == v1::PARTICIPANT_STATE_RECEIVED;
                     });
}

// What is waited for, for people.
std::string NamesOfMissing(const reshard::UploadPlan& plan, const v1::GetImportReply& import) {
  std::string names;
  if (AllReceived(import)) return "the commit";
  for (const v1::ParticipantProgress& progress : import.participants()) {
    if (progress.state() == v1::PARTICIPANT_STATE_RECEIVED) continue;
    names += (names.empty() ? "the receipts of " : ", ") + progress.participant_id();
    for (const reshard::ParticipantUpload& upload : plan.participants) {
      if (upload.participant_id != progress.participant_id() || !upload.objects.empty()) continue;
      names += " (which has replicas only: without verify_replicas nobody waits for it)";
    }
  }
  return names;
}

}  // namespace

Status AbortOutcome(const v1::GetImportReply& import) {
  if (import.abort_code() == static_cast<uint32_t>(Code::kConflict)) {
    return Conflict(import.abort_reason());
  }
  return Cancelled("the import was aborted: " + import.abort_reason());
}

// An abort may come at any step here. The step that meets it says NOT_FOUND, a later look says why:
// every writer is to hear the same outcome, whichever it met first.
Result<model::RevisionMetadata> ImportCommit::Run() {
  Result<model::RevisionMetadata> metadata = SubmitAndWait();
  if (metadata.status().code() != Code::kNotFound) return metadata;
  const Result<v1::GetImportReply> import = Look();
  if (import.ok() && import->state() == v1::IMPORT_STATE_ABORTED) return AbortOutcome(*import);
  return metadata;
}

Result<model::RevisionMetadata> ImportCommit::SubmitAndWait() {
  if (!import_.already_published_) {
    MC_ASSIGN_OR_RETURN(const v1::GetImportReply import, Look());
    if (import.state() == v1::IMPORT_STATE_OPEN) MC_RETURN_IF_ERROR(SubmitOwn(import));
  }
  MC_ASSIGN_OR_RETURN(model::RevisionMetadata metadata, WaitUntilOver());
  MC_RETURN_IF_ERROR(CompareOthers());
  return metadata;
}

Result<v1::GetImportReply> ImportCommit::Look() {
  v1::GetImportRequest get;
  get.set_import_id(import_.import_id_);
  get.set_client_id(import_.calls_->client_id());
  return import_.calls_->Ask(&rpc::MasterApi::GetImport, get,
                             import_.session_->Limits(wait_.cancel));
}

Status ImportCommit::SubmitOwn(const v1::GetImportReply& import) {
  for (const auto& [id, writer] : import_.writers_) {
    if (writer->hands_in()) MC_RETURN_IF_ERROR(SubmitOne(import, *writer));
  }
  return OkStatus();
}

Status ImportCommit::SubmitOne(const v1::GetImportReply& import, const ParticipantWriter& writer) {
  const std::string& id = writer.participant_id();
  MC_ASSIGN_OR_RETURN(
      const model::MetadataObject digests,
      WriteObject(import, writer.participant(), model::DigestsName(id), writer.Digests()));
  MC_RETURN_IF_ERROR(import_.session_->Step(import_step::kDigestsWritten));
  v1::SubmitReceiptRequest submit;
  submit.set_import_id(import_.import_id_);
  submit.set_participant_id(id);
  codec::ToProto(digests, submit.mutable_digests());
  MC_ASSIGN_OR_RETURN(const v1::SubmitReceiptReply reply,
                      import_.calls_->Command(&rpc::MasterApi::SubmitReceipt, std::move(submit),
                                              import_.session_->Limits(wait_.cancel)));
  if (reply.complete()) completed_the_set_ = true;
  return import_.session_->Step(import_step::kReceiptAccepted);
}

Status ImportCommit::CompareOthers() {
  for (const auto& [id, writer] : import_.writers_) {
    if (writer->hands_in() || writer->Wanted().empty() || compared_.contains(id)) continue;
    const std::string digests = writer->Digests();
    v1::SubmitReceiptRequest submit;
    submit.set_import_id(import_.import_id_);
    submit.set_participant_id(id);
    submit.set_compare_only(true);
    codec::ToProto(
        model::MetadataObject{model::DigestsName(id), digests.size(), Sha256Of(digests), {}},
        submit.mutable_digests());
    MC_RETURN_IF_ERROR(import_.calls_
                           ->Command(&rpc::MasterApi::SubmitReceipt, std::move(submit),
                                     import_.session_->Limits(wait_.cancel))
                           .status());
    compared_.insert(id);
  }
  return OkStatus();
}

Status ImportCommit::CompareReplicas(const v1::GetImportReply& import) {
  const reshard::UploadPlan& plan = import_.plan_;
  if (plan.replicas.empty()) return OkStatus();
  std::map<std::string, model::MetadataObject> receipts;  // by name
  for (const v1::MetadataObject& proto : import.receipts()) {
    MC_ASSIGN_OR_RETURN(model::MetadataObject object, codec::FromProto(proto));
    receipts[object.name] = std::move(object);
  }
  DigestsByParticipant tables;
  for (const uint32_t participant : ParticipantsToCompare(plan)) {
    const std::string& id = plan.participants[participant].participant_id;
    const auto receipt = receipts.find(model::DigestsName(id));
    if (receipt == receipts.end()) return Internal("the Master has no receipt of " + id);
    MC_ASSIGN_OR_RETURN(std::string bytes, ReadObject(import, receipt->second));
    Result<DigestsTable> table = DigestsTable::Decode(std::move(bytes));
    if (!table.ok()) return table.status().WithContext("participant " + id);
    tables.emplace(participant, *std::move(table));
  }
  const Status equal = client::CompareReplicas(plan, tables);
  if (equal.code() == Code::kConflict) return AbortAsConflict(equal);
  MC_RETURN_IF_ERROR(equal);
  return import_.session_->Step(import_step::kReplicasCompared);
}

// Everybody is told what the Master has recorded, the one who found it too.
Status ImportCommit::AbortAsConflict(const Status& difference) {
  v1::AbortImportRequest abort;
  abort.set_import_id(import_.import_id_);
  abort.set_reason(difference.message());
  abort.set_code(static_cast<uint32_t>(difference.code()));
  MC_RETURN_IF_ERROR(import_.calls_
                         ->Command(&rpc::MasterApi::AbortImport, std::move(abort),
                                   import_.session_->Limits(wait_.cancel))
                         .status());
  MC_ASSIGN_OR_RETURN(const v1::GetImportReply import, Look());
  return import.state() == v1::IMPORT_STATE_ABORTED ? AbortOutcome(import) : difference;
}

bool ImportCommit::IsMyTurn(int64_t complete_ms) const {
  if (completed_the_set_) return true;
  // In a large job all others see it within one look: if the first one has died, they take over one
  // after the other.
  const auto position = static_cast<int64_t>(import_.writers_.begin()->second->participant());
  return complete_ms >= kTakeOverMs + kTakeOverStepMs * std::min(position, kTakeOverStepsMax);
}

Status ImportCommit::KeepWaiting(int64_t begin_ms, const v1::GetImportReply& import) const {
  if (wait_.cancel.stop_requested() || (wait_.keep_waiting && !wait_.keep_waiting())) {
    return Cancelled("cancelled by the caller while waiting for " +
                     NamesOfMissing(import_.plan_, import));
  }
  const int64_t waited_ms = env::SystemClock::Instance().MonotonicMs() - begin_ms;
  if (wait_.timeout_ms >= 0 && waited_ms > wait_.timeout_ms) {
    return Unavailable("waited " + std::to_string(waited_ms) + " ms for " +
                       NamesOfMissing(import_.plan_, import));
  }
  return OkStatus();
}

Result<model::RevisionMetadata> ImportCommit::WaitUntilOver() {
  const int64_t begin_ms = env::SystemClock::Instance().MonotonicMs();
  int64_t pause_ms = kLookPauseMsMin;
  int64_t complete_since_ms = -1;
  while (true) {
    MC_ASSIGN_OR_RETURN(const v1::GetImportReply import, Look());
    if (import.state() == v1::IMPORT_STATE_COMMITTED) return codec::FromProto(import.metadata());
    if (import.state() == v1::IMPORT_STATE_ABORTED) return AbortOutcome(import);
    if (import_.claimed_any_ && AllReceived(import)) {
      if (complete_since_ms < 0) complete_since_ms = env::SystemClock::Instance().MonotonicMs();
    }
    if (complete_since_ms >= 0 &&
        IsMyTurn(env::SystemClock::Instance().MonotonicMs() - complete_since_ms)) {
      // Before anything becomes READY: a set that is partly ours and partly a different publisher's
      // must not.
      MC_RETURN_IF_ERROR(CompareOthers());
      MC_RETURN_IF_ERROR(CompareReplicas(import));
      return Commit(import);
    }
    MC_RETURN_IF_ERROR(KeepWaiting(begin_ms, import));
    env::PauseMs(pause_ms, wait_.cancel);
    pause_ms = std::min(pause_ms * 2, kLookPauseMsMax);
  }
}

Result<model::MetadataObject> ImportCommit::WriteObject(const v1::GetImportReply& import,
                                                        uint32_t spread, const std::string& name,
                                                        const std::string& content) {
  if (import.metadata_node_ids().empty()) {
    return Internal("the Master names no node for METADATA object " + name);
  }
  const std::string& node_id =
      import.metadata_node_ids(static_cast<int>(spread % import.metadata_node_ids_size()));
  const v1::NodeAddress* node = FindNode(import, node_id);
  if (node == nullptr) {
    return Unavailable("node " + node_id + " of METADATA object " + name + " is not registered");
  }
  const v1::Grant* grant = FindGrant(import, node->instance_id(), v1::ACCESS_METADATA_WRITE);
  if (grant == nullptr) {
    return Internal("no METADATA_WRITE grant for node " + node_id + " of METADATA object " + name);
  }
  const CallLimits limits = import_.session_->Limits(wait_.cancel);
  const rpc::CallBounds bounds = limits.Bounds();
  MC_RETURN_IF_ERROR(Repeat(limits, [&]() -> Status {
    MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel,
                        import_.session_->nodes.Get(*node, bounds));
    return channel->WriteMetadata(*grant, name, content, bounds);
  }));
  return model::MetadataObject{name, content.size(), Sha256Of(content), node_id};
}

Result<std::string> ImportCommit::ReadObject(const v1::GetImportReply& import,
                                             const model::MetadataObject& object) {
  const v1::NodeAddress* node = FindNode(import, object.node_id);
  if (node == nullptr) {
    return Unavailable("node " + object.node_id + " of METADATA object " + object.name +
                       " is not registered");
  }
  const v1::Grant* grant = FindGrant(import, node->instance_id(), v1::ACCESS_METADATA_READ);
  if (grant == nullptr) {
    return Internal("no METADATA_READ grant for node " + object.node_id + " of METADATA object " +
                    object.name);
  }
  std::string content;
  const CallLimits limits = import_.session_->Limits(wait_.cancel);
  const rpc::CallBounds bounds = limits.Bounds();
  MC_RETURN_IF_ERROR(Repeat(limits, [&]() -> Status {
    MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel,
                        import_.session_->nodes.Get(*node, bounds));
    MC_ASSIGN_OR_RETURN(content, channel->ReadMetadata(*grant, object.name, bounds));
    return OkStatus();
  }));
  const Sha256Digest actual = Sha256Of(content);
  if (content.size() == object.bytes && actual == object.sha256) return content;
  return Corrupt("METADATA object " + object.name + " on node " + object.node_id + ": expected " +
                 std::to_string(object.bytes) + " bytes with SHA-256 " + ToHex(object.sha256) +
                 ", got " + std::to_string(content.size()) + " with " + ToHex(actual));
}

Status ImportCommit::SealAll(const v1::GetImportReply& import) {
  for (const v1::Grant& grant : import.grants()) {
    if (grant.access() != v1::ACCESS_METADATA_WRITE) continue;
    const auto node = std::find_if(import.nodes().begin(), import.nodes().end(),
                                   [&](const v1::NodeAddress& address) {
                                     return address.instance_id() == grant.instance_id();
                                   });
    if (node == import.nodes().end()) {
      return Internal("no address of node instance " + grant.instance_id());
    }
    const CallLimits limits = import_.session_->Limits(wait_.cancel);
    const rpc::CallBounds bounds = limits.Bounds();
    MC_RETURN_IF_ERROR(Repeat(limits, [&]() -> Status {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<rpc::NodeChannel> channel,
                          import_.session_->nodes.Get(*node, bounds));
      return channel->SealImport(grant, bounds);
    }));
    MC_RETURN_IF_ERROR(import_.session_->Step(import_step::kSealed));
  }
  return OkStatus();
}

Result<model::RevisionMetadata> ImportCommit::Commit(const v1::GetImportReply& import) {
  const reshard::UploadPlan& plan = import_.plan_;
  MC_ASSIGN_OR_RETURN(
      const manifest::StoredManifestPtr manifest,
      reshard::BuildStoredManifest(plan, import_.identity_.name_space, import_.created_at_));
  MC_ASSIGN_OR_RETURN(const model::MetadataObject manifest_object,
                      WriteObject(import, 0, std::string(model::kManifestName),
                                  manifest::StoredManifestToJson(*manifest)));
  MC_RETURN_IF_ERROR(import_.session_->Step(import_step::kManifestWritten));
  const model::AffinitySummary affinity = reshard::BuildAffinitySummary(plan);
  MC_ASSIGN_OR_RETURN(const model::MetadataObject affinity_object,
                      WriteObject(import, 0, std::string(model::kAffinityName), affinity.json));
  MC_RETURN_IF_ERROR(import_.session_->Step(import_step::kAffinityWritten));
  MC_RETURN_IF_ERROR(SealAll(import));

  v1::CommitImportRequest commit;
  commit.set_import_id(import_.import_id_);
  codec::ToProto(manifest_object, commit.mutable_manifest());
  codec::ToProto(affinity_object, commit.mutable_affinity());
  commit.set_payload_count(plan.objects.size());
  commit.set_logical_payload_bytes(plan.nbytes);
  MC_ASSIGN_OR_RETURN(const Sha256Digest keys, Sha256FromHex(reshard::BuildPayloadKeyDigest(plan)));
  commit.set_payload_keys_sha256(codec::BytesOf(keys));
  commit.set_affinity_count(affinity.unit_count);
  MC_ASSIGN_OR_RETURN(const v1::CommitImportReply reply,
                      import_.calls_->Command(&rpc::MasterApi::CommitImport, std::move(commit),
                                              import_.session_->Limits(wait_.cancel)));
  MC_RETURN_IF_ERROR(import_.session_->Step(import_step::kCommitted));
  return codec::FromProto(reply.metadata());
}

}  // namespace mooncake::client
