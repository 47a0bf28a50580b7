// Steps 4 and 5 of an import (import_session.h): receipts, waiting, comparing, commit.
//
// Runs on one thread, after the last Put. Every step can be repeated, by this or any other importer
// of the session, after any crash: objects and answers are the same.
#pragma once

#include <set>
#include <string>

#include "base/status.h"
#include "client/import_session.h"
#include "model/revision.h"

namespace mooncake::client {

// What everybody is told of an import that was aborted.
Status AbortOutcome(const v1::GetImportReply& import);

class ImportCommit {
 public:
  ImportCommit(ImportSession& import, const WaitOptions& wait) : import_(import), wait_(wait) {}

  Result<model::RevisionMetadata> Run();

 private:
  Result<model::RevisionMetadata> SubmitAndWait();
  Result<v1::GetImportReply> Look();
  Status SubmitOwn(const v1::GetImportReply& import);
  Status SubmitOne(const v1::GetImportReply& import, const ParticipantWriter& writer);
  // Of participants that others uploaded: equal bytes, or CONFLICT.
  Status CompareOthers();
  // Of one box: equal bytes everywhere, or the import ends as CONFLICT and this is what it ended
  // with. Everybody's receipts are in.
  Status CompareReplicas(const v1::GetImportReply& import);
  Status AbortAsConflict(const Status& difference);
  Result<model::RevisionMetadata> WaitUntilOver();
  // Whether this importer is the one to compare and commit, `complete_ms` after it saw the set
  // complete.
  bool IsMyTurn(int64_t complete_ms) const;
  Status KeepWaiting(int64_t begin_ms, const v1::GetImportReply& import) const;
  Result<model::RevisionMetadata> Commit(const v1::GetImportReply& import);
  // On one of the import's nodes for METADATA, chosen by `spread`.
  Result<model::MetadataObject> WriteObject(const v1::GetImportReply& import, uint32_t spread,
                                            const std::string& name, const std::string& content);
  Result<std::string> ReadObject(const v1::GetImportReply& import,
                                 const model::MetadataObject& object);
  Status SealAll(const v1::GetImportReply& import);

  ImportSession& import_;
  const WaitOptions& wait_;
  std::set<std::string> compared_;
  bool completed_the_set_ = false;  // by a receipt of ours
};

}  // namespace mooncake::client
