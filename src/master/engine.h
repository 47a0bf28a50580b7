// Engine: what each request and each time-out means, over the catalogues. The Master's mind without
// its mouth, ears and memory: no threads, no queue, no log.
//
// Owns the replicated state and its volatile companions (deadlines, node registry, the set of
// revisions to look at again). Every change goes through a Batch. Deterministic given the order of
// calls, the times in the batches and the wall clock. Single-threaded (the sequencer owns it).
//
// Each Run answers one request: OK with `reply` filled, or a refusal that left no trace; the caller
// puts the Status into the reply, records the outcome of commands, and replies once the batch is
// durable.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "env/clock.h"
#include "master/batch.h"
#include "master/node_registry.h"
#include "master/object_activity.h"
#include "master/options.h"
#include "master/replicated_state.h"
#include "model/grant.h"
#include "mooncake/v1/master.pb.h"
#include "pool/eviction.h"
#include "pool/placement.h"
#include "weights/deadlines.h"

namespace mooncake::master {

class Engine {
 public:
  Engine(const MasterOptions& options, std::string cluster_id, const env::Clock& clock)
      : options_(options), cluster_id_(std::move(cluster_id)), clock_(clock) {}

  // `state` was read from the log; serving begins (again) at `now_ms`: leases and imports get full
  // TTLs, nodes a time of grace unless they are known already.
  void Serve(ReplicatedState state, int64_t now_ms);

  ReplicatedState& state() { return state_; }
  const ReplicatedState& state() const { return state_; }
  weights::Deadlines& deadlines() { return deadlines_; }

  // Time-outs, revisions to look at again, steps of deletions: a bounded round of each. True: more
  // is due now.
  bool Upkeep(Batch& batch);

  // What the log says of its space: while that is not OK nothing new is begun.
  void SetLogSpace(Status space) { log_space_ = std::move(space); }
  const Status& log_space() const { return log_space_; }

  // Every lease and open import ends now: nobody is left who holds them. A bounded round; true:
  // there are more.
  bool EndClients(Batch& batch);

  // engine_nodes.cc
  Status Run(const v1::RegisterNodeRequest& request, v1::RegisterNodeReply* reply, Batch& batch);
  Status Run(const v1::ReportNodeRequest& request, v1::ReportNodeReply* reply, Batch& batch);
  Status Run(const v1::GetClusterRequest& request, v1::GetClusterReply* reply, Batch& batch);
  Status Run(const v1::LeaveNodeRequest& request, v1::LeaveNodeReply* reply, Batch& batch);
  // engine_import.cc
  Status Run(const v1::BeginImportRequest& request, v1::BeginImportReply* reply, Batch& batch);
  Status Run(const v1::GetImportRequest& request, v1::GetImportReply* reply, Batch& batch);
  Status Run(const v1::KeepImportRequest& request, v1::KeepImportReply* reply, Batch& batch);
  Status Run(const v1::SubmitReceiptRequest& request, v1::SubmitReceiptReply* reply, Batch& batch);
  Status Run(const v1::CommitImportRequest& request, v1::CommitImportReply* reply, Batch& batch);
  Status Run(const v1::AbortImportRequest& request, v1::AbortImportReply* reply, Batch& batch);
  // engine_revisions.cc
  Status Run(const v1::GetWeightRequest& request, v1::GetWeightReply* reply, Batch& batch);
  Status Run(const v1::ListWeightsRequest& request, v1::ListWeightsReply* reply, Batch& batch);
  Status Run(const v1::OpenRevisionRequest& request, v1::OpenRevisionReply* reply, Batch& batch);
  Status Run(const v1::LocateObjectsRequest& request, v1::LocateObjectsReply* reply, Batch& batch);
  Status Run(const v1::RenewLeasesRequest& request, v1::RenewLeasesReply* reply, Batch& batch);
  Status Run(const v1::ReleaseLeaseRequest& request, v1::ReleaseLeaseReply* reply, Batch& batch);
  Status Run(const v1::RemoveWeightRequest& request, v1::RemoveWeightReply* reply, Batch& batch);
  // engine_objects.cc
  Status Run(const v1::PutStartRequest& request, v1::PutStartReply* reply, Batch& batch);
  Status Run(const v1::PutEndRequest& request, v1::PutEndReply* reply, Batch& batch);
  Status Run(const v1::PutRevokeRequest& request, v1::PutRevokeReply* reply, Batch& batch);
  Status Run(const v1::KeepPutsRequest& request, v1::KeepPutsReply* reply, Batch& batch);
  Status Run(const v1::LookupObjectsRequest& request, v1::LookupObjectsReply* reply, Batch& batch);
  Status Run(const v1::RemoveObjectsRequest& request, v1::RemoveObjectsReply* reply, Batch& batch);
  Status Run(const v1::RemoveAllObjectsRequest& request, v1::RemoveAllObjectsReply* reply,
             Batch& batch);
  Status Run(const v1::ListObjectsRequest& request, v1::ListObjectsReply* reply, Batch& batch);
  Status Run(const v1::ReportUnreadableRequest& request, v1::ReportUnreadableReply* reply,
             Batch& batch);
  Status Run(const v1::SetTenantRequest& request, v1::SetTenantReply* reply, Batch& batch);
  Status Run(const v1::ListTenantsRequest& request, v1::ListTenantsReply* reply, Batch& batch);

 private:
  // engine_import.cc
  Status MakeRoomFor(const std::vector<model::PlannedParticipant>& participants,
                     const Status& exhausted, Batch& batch);

  // engine_nodes.cc
  // INVALID_ARGUMENT: the folder of another cluster. CORRUPT: not this log's data.
  Status CheckIsOurs(const v1::RegisterNodeRequest& request) const;
  // CORRUPT: the import has a number that this log has not given.
  Status CheckIsNumbered(model::ImportId id) const;

  // engine_upkeep.cc
  bool ExpireLeases(Batch& batch);
  // All of those that ran out. Before anybody is told that one did: the answer waits for the log,
  // as a lease that a failed append brings back must not have been told over.
  void EndLeases(Batch& batch) {
    while (ExpireLeases(batch)) {
    }
  }
  bool ExpireImports(Batch& batch);
  std::string UnfinishedOf(model::ImportId id, std::string_view client_id) const;
  void NoticeSilence(int64_t now_ms);
  bool Recheck(Batch& batch);
  void RecheckOne(model::ImportId id, const objects::NodeLiveness& assumed,
                  const objects::NodeLiveness& confirmed, Batch& batch);
  bool RemoveMembers(Batch& batch);
  void Abort(model::ImportId id, const std::string& reason, Batch& batch);

  // engine_room.cc
  pool::EvictionRules EvictionRulesAt(int64_t now_ms) const;
  std::vector<pool::NodeRoom> RoomsOfNodes() const;
  model::ArenaId AddSlab(std::string_view tenant_id, const std::string& node_id, uint64_t bytes,
                         Batch& batch);
  void RemoveSlabs(const std::vector<model::ArenaId>& ids, Batch& batch);
  std::vector<model::ArenaId> SlabsOn(std::string_view node_id) const;
  void Evict(const std::vector<model::ObjectId>& ids, Batch& batch);
  bool EvictOneStep(const pool::Tenant& tenant, uint64_t extent_bytes,
                    const pool::SlabFilter& filter, Batch& batch);
  std::vector<pool::PlannedReplica> PlaceOrEvict(const pool::PlaceRequest& request, bool may_evict,
                                                 Batch& batch);
  void EvictToQuota(const pool::Tenant& tenant, uint64_t bytes, Batch& batch);
  bool EvictAboveWatermark(Batch& batch);
  void ExpirePuts(Batch& batch);
  void ReleaseEmptySlabs(Batch& batch);
  void DropSilentLenders(Batch& batch);
  void Leave(std::string node_id, Batch& batch);
  bool ObjectUpkeep(Batch& batch);
  bool ReclaimForImport(uint64_t needed_bytes, Batch& batch);

  // engine_objects.cc
  struct PutTerms;
  Result<PutTerms> CheckPutStart(const v1::PutStartRequest& request) const;
  // Whether the key is part of a weight revision, which ordinary requests never touch. Counted.
  bool IsManaged(std::string_view tenant_id, std::string_view key);
  model::ObjectId NextObjectId() const;
  void PutOne(PutTerms& terms, int index, v1::PutEntry* entry, Batch& batch);
  void Place(PutTerms& terms, int index, const std::string& group_id, v1::PutEntry* entry,
             Batch& batch);
  void RefuseForRoom(std::string_view tenant_id, uint64_t extent_bytes, v1::PutEntry* entry);
  void FillPermits(const std::string& tenant_id, v1::PutStartReply* reply) const;
  Status CheckPutEnd(const v1::PutEndRequest& request, model::ObjectId id) const;
  bool IsReadableOn(const pool::Slab& slab) const;
  void GrantSlab(const pool::Slab& slab, const std::string& tenant_id,
                 v1::LookupObjectsReply* reply) const;
  void FillObjectInfo(const pool::Object& object, int64_t now_ms, v1::ObjectInfo* info) const;

  bool InGrace(int64_t now_ms) const { return now_ms < grace_until_ms_; }
  void LookAgain(std::string_view node_id);
  std::set<std::string> UsableNodes() const;
  // Where METADATA objects of a new import go.
  std::vector<std::string> MetadataNodes(std::string_view preferred_host_id) const;
  void FillProgress(const weights::Participant& participant, std::string_view client_id,
                    v1::ParticipantProgress* progress) const;
  void FillMetadata(const weights::Revision& revision, v1::RevisionMetadata* proto) const;
  Status FillOpenImport(const weights::Revision& revision, const v1::GetImportRequest& request,
                        v1::GetImportReply* reply) const;

  const MasterOptions options_;
  const std::string cluster_id_;
  const env::Clock& clock_;

  ReplicatedState state_;
  weights::Deadlines deadlines_;
  NodeRegistry nodes_;
  ObjectActivity activity_;
  int64_t grace_until_ms_ = 0;
  bool grace_over_ = false;
  std::set<model::ImportId> recheck_;
  Status log_space_;
};

}  // namespace mooncake::master
