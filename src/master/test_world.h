// A Master without threads, with nodes and publishers that exist only as far as the Master can
// tell: what tests (and nothing else) stand on. Requests are answered by Step, time moves by hand.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "codec/values.h"
#include "env/manual_clock.h"
#include "env/random.h"
#include "master/master.h"
#include "model/affinity.h"
#include "model/grant.h"
#include "oplog/memory_log.h"
#include "rpc/status_proto.h"

namespace mooncake::master {

// Answers by stepping the Master on the caller's thread.
class SteppedMaster final : public rpc::MasterApi {
 public:
  explicit SteppedMaster(std::function<Master&()> master,
                         rpc::Caller caller = rpc::Caller::Operator())
      : master_(std::move(master)), caller_(std::move(caller)) {}

#define MOONCAKE_DEFINE(Name)                                                   \
  v1::Name##Reply Name(const v1::Name##Request& request) override {             \
    v1::Name##Reply reply;                                                      \
    bool answered = false;                                                      \
    master_().Name(caller_, request, &reply, [&answered] { answered = true; }); \
    for (int i = 0; i < 100 && !answered; ++i) master_().Step();                \
    MC_CHECK(answered);                                                         \
    return reply;                                                               \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  std::function<Master&()> master_;
  const rpc::Caller caller_;
};

// A node that keeps books and no bytes. Checks every grant as a node does.
class BookNode {
 public:
  BookNode(std::string node_id, uint64_t capacity_bytes)
      : node_id_(std::move(node_id)), capacity_bytes_(capacity_bytes) {
    Restart();
  }

  const std::string& node_id() const { return node_id_; }
  const std::map<uint64_t, std::set<uint64_t>>& arenas() const { return arenas_; }
  size_t import_count() const { return arenas_.size(); }

  // Another process: nothing in memory, METADATA files still there.
  void Restart() {
    instance_id_ = node_id_ + "-" + std::to_string(++restarts_);
    arenas_.clear();
  }
  void Forget() {
    arenas_.clear();
    metadata_.clear();
  }

  // What it was told after a time that did not happen.
  void ForgetFrom(uint64_t import_id) {
    arenas_.erase(arenas_.lower_bound(import_id), arenas_.end());
    metadata_.erase(metadata_.lower_bound(import_id), metadata_.end());
  }

  Status Register(rpc::MasterApi& master) {
    v1::RegisterNodeRequest request;
    request.mutable_address()->set_node_id(node_id_);
    request.mutable_address()->set_instance_id(instance_id_);
    request.mutable_address()->set_host_id("host-" + node_id_);
    request.mutable_address()->set_socket_path("/run/" + node_id_);
    request.set_capacity_bytes(capacity_bytes_);
    request.set_grant_key(Key());
    return rpc::StatusFromProto(master.RegisterNode(request).status());
  }

  // Drops what the Master says; registers first when told so.
  Status Report(rpc::MasterApi& master) {
    v1::ReportNodeRequest request;
    request.set_node_id(node_id_);
    request.set_instance_id(instance_id_);
    std::set<uint64_t> imports;
    for (const auto& [id, held] : arenas_) imports.insert(id);
    for (const auto& [id, held] : metadata_) imports.insert(id);
    for (const uint64_t id : imports) {
      v1::HeldImport* held = request.add_held();
      held->set_import_id(id);
      for (const uint64_t arena : arenas_[id]) held->add_arena_ids(arena);
      held->set_metadata_objects(metadata_[id].size());
    }
    const v1::ReportNodeReply reply = master.ReportNode(request);
    for (const uint64_t arena : reply.drop_arena_ids()) {
      for (auto& [id, held] : arenas_) held.erase(arena);
    }
    for (const uint64_t id : reply.drop_import_ids()) {
      arenas_.erase(id);
      metadata_.erase(id);
    }
    return rpc::StatusFromProto(reply.status());
  }

  // Whether this node would honour the grant.
  bool Honours(const v1::Grant& grant) const {
    return grant.instance_id() == instance_id_ &&
           model::GrantMacMatches(Key(), codec::FromProto(grant).value(), grant.mac());
  }
  void OpenForWriting(const v1::Grant& grant) {
    ASSERT_TRUE(Honours(grant));
    arenas_[grant.import_id()].insert(grant.arena_id());
  }
  bool Honours(const v1::ExtentPermit& permit) const {
    return permit.instance_id() == instance_id_ &&
           model::PermitMacMatches(Key(), codec::FromProto(permit), permit.mac());
  }
  void Fill(const v1::ExtentPermit& permit) {
    ASSERT_TRUE(Honours(permit));
    arenas_[0].insert(permit.slab_id());
  }
  void WriteMetadata(uint64_t import_id, const std::string& name) {
    metadata_[import_id].insert(name);
  }

 private:
  std::string Key() const { return std::string(32 - instance_id_.size(), 'k') + instance_id_; }

  const std::string node_id_;
  const uint64_t capacity_bytes_;
  int restarts_ = 0;
  std::string instance_id_;
  std::map<uint64_t, std::set<uint64_t>> arenas_;       // by import
  std::map<uint64_t, std::set<std::string>> metadata_;  // by import
};

// One client process: command ids, and the publish protocol step by step.
class BookClient {
 public:
  BookClient(rpc::MasterApi& master, int number)
      : master_(master),
        client_id_(HexOf(Sha256Text("client " + std::to_string(number))).substr(0, 32)) {}

  const std::string& client_id() const { return client_id_; }

  // Fills the next command id; everything before it counts as acknowledged.
  template <class Request>
  Request Numbered(Request request) {
    request.mutable_command()->set_client_id(client_id_);
    request.mutable_command()->set_sequence(++sequence_);
    request.mutable_command()->set_acked_below(sequence_);
    return request;
  }

  static v1::WeightIdentity Identity(uint64_t generation, const std::string& resource = "model") {
    v1::WeightIdentity identity;
    identity.set_tenant_id("default");
    identity.set_name_space("ns");
    identity.set_resource_id(resource);
    identity.set_revision("r");
    identity.set_weight_generation(generation);
    return identity;
  }

  // `ranks` participants with `payloads` payloads of `bytes` bytes each, one affinity unit a
  // payload.
  static v1::BeginImportRequest Plan(const v1::WeightIdentity& identity, int ranks, int payloads,
                                     uint64_t bytes) {
    v1::BeginImportRequest request;
    *request.mutable_identity() = identity;
    request.set_placement_id("placement");
    request.set_plan_sha256(Sha256Text(identity.SerializeAsString() + std::to_string(ranks)));
    request.set_ttl_ms(10'000);
    uint32_t unit = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      v1::PlannedParticipant* participant = request.add_participants();
      participant->set_participant_id("rank" + std::to_string(rank));
      request.add_claim(participant->participant_id());
      for (int i = 0; i < payloads; ++i) {
        v1::PlannedPayload* payload = participant->add_payloads();
        payload->set_name("w" + std::to_string(rank) + "." + std::to_string(i));
        payload->set_bytes(bytes);
        payload->set_unit(unit++);
      }
    }
    return request;
  }

  static v1::MetadataObject Metadata(const std::string& name, const std::string& content,
                                     const std::string& node_id) {
    v1::MetadataObject object;
    object.set_name(name);
    object.set_bytes(content.size());
    object.set_sha256(Sha256Text(content));
    object.set_node_id(node_id);
    return object;
  }

  // The commit that fits the plan.
  static v1::CommitImportRequest Commit(const v1::BeginImportRequest& plan, uint64_t import_id,
                                        const std::string& node_id) {
    const std::string group = model::GroupId(codec::FromProto(plan.identity()));
    std::vector<model::AffinityMember> members;
    std::vector<std::string> keys;
    uint64_t bytes = 0;
    for (const auto& participant : plan.participants()) {
      for (const auto& payload : participant.payloads()) {
        members.push_back({payload.name(), payload.bytes(), payload.unit()});
        keys.push_back(model::PayloadKey(group, payload.name()));
        bytes += payload.bytes();
      }
    }
    const model::AffinitySummary affinity = model::SummarizeAffinity(members);
    v1::CommitImportRequest request;
    request.set_import_id(import_id);
    *request.mutable_manifest() = Metadata("manifest", "manifest of " + group, node_id);
    *request.mutable_affinity() = Metadata("affinity", affinity.json, node_id);
    request.set_payload_count(members.size());
    request.set_logical_payload_bytes(bytes);
    request.set_payload_keys_sha256(
        codec::BytesOf(Sha256FromHex(model::PayloadKeyDigest({keys.begin(), keys.end()})).value()));
    request.set_affinity_count(affinity.unit_count);
    return request;
  }

  rpc::MasterApi& master() { return master_; }

  static std::string Sha256Text(const std::string& text) { return codec::BytesOf(Sha256Of(text)); }

 private:
  rpc::MasterApi& master_;
  const std::string client_id_;
  uint64_t sequence_ = 0;
};

// One Master over a MemoryLog, two nodes, and the means to publish.
class TestWorld {
 public:
  explicit TestWorld(MasterOptions options = TestOptions())
      : options_(options), api_([this]() -> Master& { return *master_; }) {
    log_ = std::make_unique<oplog::MemoryLog>();
    nodes_.emplace_back(std::make_unique<BookNode>("n1", 1 << 20));
    nodes_.emplace_back(std::make_unique<BookNode>("n2", 1 << 20));
    OpenMaster();
    for (auto& node : nodes_) MC_CHECK(node->Register(api_).ok());
    Report();
  }

  // Compares live and replayed state after every single batch.
  static MasterOptions TestOptions() {
    MasterOptions options;
    options.verify_replay_every = 1;
    options.removal_batch_members = 2;
    return options;
  }

  rpc::MasterApi& api() { return api_; }
  Master& master() { return *master_; }
  oplog::MemoryLog& log() { return *log_; }
  env::ManualClock& clock() { return clock_; }
  BookNode& node(size_t index) { return *nodes_.at(index); }
  BookNode& node(const std::string& id) { return id == "n1" ? node(0) : node(1); }

  // Every node reports, registering first where it must; what the Master tells them to drop is
  // confirmed by the second round. A report that fails is a report lost.
  void Report() {
    for (int round = 0; round < 2; ++round) {
      for (auto& node : nodes_) {
        if (node->Report(api_).code() != Code::kNotFound) continue;
        if (node->Register(api_).ok()) (void)node->Report(api_);
      }
    }
  }
  // Until there is nothing left to do at this time.
  void Settle() {
    for (int i = 0; i < 10'000 && master_->Step(); ++i) {
    }
  }
  // Time passes; nodes go on reporting.
  void Pass(int64_t ms) {
    constexpr int64_t kStepMs = 500;
    for (; ms > 0; ms -= kStepMs) {
      clock_.AdvanceMs(std::min(ms, kStepMs));
      Report();
      Settle();
    }
  }

  // The Master's process ends after `records` records were durable (all: what is there) and begins
  // anew.
  void RestartMaster() { RestartMaster(log_->size()); }
  void RestartMaster(size_t records) {
    master_.reset();
    log_ = oplog::MemoryLog::CopyOf(*log_, records);
    const std::vector<uint64_t> sequences = snapshots_.List().value();
    for (const uint64_t sequence : sequences) {
      if (sequence > records) MC_CHECK(snapshots_.Remove(sequence).ok());
    }
    OpenMaster();
  }
  oplog::MemorySnapshots& snapshots() { return snapshots_; }
  SnapshotSeams Snapshots() {
    return {
        .snapshots = &snapshots_, .open_log = [this]() -> Result<std::unique_ptr<oplog::LogStore>> {
          return std::unique_ptr<oplog::LogStore>(oplog::MemoryLog::CopyOf(*log_, log_->size()));
        }};
  }

  // Publishes whole, by the book. OK with the committed metadata, or the first refusal.
  Result<v1::RevisionMetadata> Publish(BookClient& client, const v1::BeginImportRequest& plan) {
    const v1::BeginImportReply begun = api_.BeginImport(client.Numbered(plan));
    MC_RETURN_IF_ERROR(rpc::StatusFromProto(begun.status()));
    MC_ASSIGN_OR_RETURN(const std::string node_id, WritePayloads(client, plan, begun.import_id()));
    for (const auto& participant : plan.participants()) {
      MC_RETURN_IF_ERROR(
          SubmitReceipt(client, begun.import_id(), participant.participant_id(), node_id));
    }
    return Commit(client, plan, begun.import_id(), node_id);
  }

  // Opens every arena of the client's participants; the node for METADATA.
  Result<std::string> WritePayloads(BookClient& client, const v1::BeginImportRequest& plan,
                                    uint64_t import_id) {
    v1::GetImportRequest request;
    request.set_import_id(import_id);
    request.set_client_id(client.client_id());
    for (const auto& participant : plan.claim()) request.add_extents_of(participant);
    const v1::GetImportReply reply = api_.GetImport(request);
    MC_RETURN_IF_ERROR(rpc::StatusFromProto(reply.status()));
    for (const v1::Grant& grant : reply.grants()) {
      if (grant.access() != v1::ACCESS_WRITE) continue;
      for (auto& node : nodes_) {
        if (node->Honours(grant)) node->OpenForWriting(grant);
      }
    }
    MC_CHECK(reply.metadata_node_ids_size() == 1);
    return reply.metadata_node_ids(0);
  }

  Status SubmitReceipt(BookClient& client, uint64_t import_id, const std::string& participant,
                       const std::string& node_id, const std::string& content = "bytes") {
    v1::SubmitReceiptRequest request;
    request.set_import_id(import_id);
    request.set_participant_id(participant);
    const std::string name = model::DigestsName(participant);
    *request.mutable_digests() = BookClient::Metadata(name, content + participant, node_id);
    node(node_id).WriteMetadata(import_id, name);
    return rpc::StatusFromProto(api_.SubmitReceipt(client.Numbered(request)).status());
  }

  Result<v1::RevisionMetadata> Commit(BookClient& client, const v1::BeginImportRequest& plan,
                                      uint64_t import_id, const std::string& node_id) {
    node(node_id).WriteMetadata(import_id, "manifest");
    node(node_id).WriteMetadata(import_id, "affinity");
    const v1::CommitImportReply reply =
        api_.CommitImport(client.Numbered(BookClient::Commit(plan, import_id, node_id)));
    MC_RETURN_IF_ERROR(rpc::StatusFromProto(reply.status()));
    return reply.metadata();
  }

  v1::GetWeightReply Get(const v1::WeightIdentity& identity) {
    v1::GetWeightRequest request;
    *request.mutable_identity() = identity;
    return api_.GetWeight(request);
  }
  v1::Availability AvailabilityOf(const v1::WeightIdentity& identity) {
    return Get(identity).metadata().availability();
  }
  v1::OpenRevisionReply Open(BookClient& client, const v1::WeightIdentity& identity,
                             uint64_t ttl_ms = 10'000) {
    v1::OpenRevisionRequest request;
    *request.mutable_identity() = identity;
    request.set_ttl_ms(ttl_ms);
    request.set_holder("test");
    return api_.OpenRevision(client.Numbered(request));
  }
  v1::LocateObjectsReply Locate(uint64_t lease_id, std::vector<std::string> names = {}) {
    v1::LocateObjectsRequest request;
    request.set_lease_id(lease_id);
    request.set_metadata_objects(true);
    for (std::string& name : names) request.add_payload_names(std::move(name));
    return api_.LocateObjects(request);
  }
  v1::RemoveWeightReply Remove(BookClient& client, const v1::WeightIdentity& identity) {
    v1::RemoveWeightRequest request;
    *request.mutable_identity() = identity;
    return api_.RemoveWeight(client.Numbered(request));
  }
  // used, releasing bytes over all nodes.
  std::pair<uint64_t, uint64_t> Space() {
    std::pair<uint64_t, uint64_t> space;
    const v1::GetClusterReply cluster = api_.GetCluster({});
    for (const auto& node : cluster.nodes()) {
      space.first += node.used_bytes();
      space.second += node.releasing_bytes();
    }
    return space;
  }

 private:
  void OpenMaster() {
    auto master = Master::Open(options_, {*log_, clock_, random_, Snapshots()});
    MC_CHECK(master.ok());
    master_ = *std::move(master);
  }

  const MasterOptions options_;
  env::ManualClock clock_;
  env::SeededRandom random_{1};
  std::unique_ptr<oplog::MemoryLog> log_;
  oplog::MemorySnapshots snapshots_;
  std::unique_ptr<Master> master_;
  SteppedMaster api_;
  std::vector<std::unique_ptr<BookNode>> nodes_;
};

inline Code CodeOf(const v1::StatusProto& status) { return static_cast<Code>(status.code()); }

}  // namespace mooncake::master
