// One import, from Begin to READY: the protocol as its writer runs it.
//
//   0. plan: who writes which payload object, the same at every rank (reshard/upload_plan.h);
//   1. BeginImport: join the identity's session, or create it with the whole list; claim the
//   participants
//      that this importer acts for;
//   2. GetImport: extents and grants of the claimed ones, a participant at a time; arenas that are
//   files get their space of the disk, or the import ends here;
//      An import whose participants are all another client's is joined once that client shows life:
//      if it has died, the import ends with it, and a new one is begun;
//   3. Put: fragments go into mapped arenas with their digests; of participants that another client
//      has claimed, or that are stored already, and of replicas of what others upload, only the
//      digests are made;
//   4. Finish, per claimed participant: write its digests object, SubmitReceipt. One that has
//      nothing but replicas does so too: its object has their fingerprints;
//   5. wait until every receipt is in; compare ours with those of the others, then the fingerprints
//      of every box with those of its replicas (replica_check.h). If they differ, abort as
//      CONFLICT: that is every importer's outcome. Else write manifest and affinity summary, seal
//      every node, CommitImport. Any importer does it: the bytes are the same;
//   6. whoever fails otherwise aborts the session if it has claimed anything in it.
//
// A StoreClient's importers use its client id, so that two of them on one session are one writer;
// one that claims what another importer of the same client already has gets an id of its own, and
// is told OTHERS.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "client/participant_writer.h"
#include "client/session.h"
#include "client/write_arenas.h"
#include "model/identity.h"
#include "reshard/upload_plan.h"

namespace mooncake::client {

class ImportSession final : public Importer {
 public:
  static Result<std::unique_ptr<ImportSession>> Begin(std::shared_ptr<Session> session,
                                                      const ImportRequest& request);
  ~ImportSession() override;

  const model::WeightIdentity& identity() const override { return identity_; }
  const std::vector<std::string>& participants() const override { return participants_; }
  const std::string& policy_note() const override { return policy_note_; }
  bool already_published() const override { return already_published_; }
  Result<std::vector<std::string>> WantedFragments(std::string_view participant) const override;
  Status PutFragment(std::string_view participant, std::string_view placement_fragment_id,
                     const FragmentSource& source) override;
  Result<ImportReport> Finish(const WaitOptions& options) override;
  Status Abort(std::string_view reason) override;

 private:
  friend class ImportCommit;
  enum class Phase : uint8_t { kOpen, kFinishing, kOver };

  ImportSession(std::shared_ptr<Session> session, const ImportRequest& request,
                reshard::UploadPlan plan);

  Status CheckParticipants();
  Status Join(const ImportRequest& request);
  bool SpaceIsReturning();
  Result<v1::BeginImportReply> CallBegin(const ImportRequest& request, bool with_list);
  Result<v1::BeginImportReply> BeginOrJoin(const ImportRequest& request);
  bool IsLeftToOthers(const v1::BeginImportReply& begun) const;
  // True: a writer of what this importer would bring has renewed since now, or there is none.
  // False: the import is over.
  Result<bool> AwaitSignOfLife(uint64_t import_id, const ImportRequest& request);
  Status TakePart(const v1::BeginImportReply& begun);
  Status LocateOwn();
  Status ReserveOwn();
  Status CheckComplete() const;
  Result<ImportReport> FinishOpen(const WaitOptions& options);
  // Ends the session at the Master, if it is this importer's to end.
  Status AbortAtMaster(std::string_view reason, int64_t retry_ms);

  const std::shared_ptr<Session> session_;
  const model::WeightIdentity identity_;
  const reshard::UploadPlan plan_;
  std::vector<std::string> participants_;

  std::vector<ImportClaims::Claim> claims_;  // taken from the session's table
  std::unique_ptr<MasterCalls> own_calls_;   // when the client's own id is taken
  MasterCalls* calls_ = nullptr;
  uint64_t import_id_ = 0;
  std::string created_at_;
  std::string policy_note_;
  bool already_published_ = false;
  bool claimed_any_ = false;
  LeaseKeeper::Kept kept_;

  WriteArenas arenas_;
  std::map<std::string, std::unique_ptr<ParticipantWriter>, std::less<>> writers_;
  std::atomic<int64_t> put_ns_{0};

  // Shared: a Put is running. Exclusive: arenas are unmapped.
  std::shared_mutex putting_;
  std::mutex phase_mutex_;
  Phase phase_ = Phase::kOpen;
};

}  // namespace mooncake::client
