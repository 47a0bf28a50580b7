// The Master as its callers see it: one blocking call per RPC, over the wire schema's own messages.
//
// Implementations: GrpcMaster (rpc/grpc_master.h) over a channel; the embedded store's in-process
// one (cluster/). A channel failure is a Status in the reply (UNAVAILABLE when the Master cannot be
// reached, OUTCOME_UNKNOWN when a mutation may or may not have happened); retry with the same
// CommandId is always safe. Thread-safe.
#pragma once

#include "mooncake/v1/master.pb.h"

namespace mooncake::rpc {

class MasterApi {
 public:
  virtual ~MasterApi() = default;

  virtual v1::RegisterNodeReply RegisterNode(const v1::RegisterNodeRequest& request) = 0;
  virtual v1::ReportNodeReply ReportNode(const v1::ReportNodeRequest& request) = 0;
  virtual v1::BeginImportReply BeginImport(const v1::BeginImportRequest& request) = 0;
  virtual v1::GetImportReply GetImport(const v1::GetImportRequest& request) = 0;
  virtual v1::KeepImportReply KeepImport(const v1::KeepImportRequest& request) = 0;
  virtual v1::SubmitReceiptReply SubmitReceipt(const v1::SubmitReceiptRequest& request) = 0;
  virtual v1::CommitImportReply CommitImport(const v1::CommitImportRequest& request) = 0;
  virtual v1::AbortImportReply AbortImport(const v1::AbortImportRequest& request) = 0;
  virtual v1::GetWeightReply GetWeight(const v1::GetWeightRequest& request) = 0;
  virtual v1::ListWeightsReply ListWeights(const v1::ListWeightsRequest& request) = 0;
  virtual v1::OpenRevisionReply OpenRevision(const v1::OpenRevisionRequest& request) = 0;
  virtual v1::LocateObjectsReply LocateObjects(const v1::LocateObjectsRequest& request) = 0;
  virtual v1::RenewLeasesReply RenewLeases(const v1::RenewLeasesRequest& request) = 0;
  virtual v1::ReleaseLeaseReply ReleaseLease(const v1::ReleaseLeaseRequest& request) = 0;
  virtual v1::RemoveWeightReply RemoveWeight(const v1::RemoveWeightRequest& request) = 0;
  virtual v1::GetClusterReply GetCluster(const v1::GetClusterRequest& request) = 0;
};

}  // namespace mooncake::rpc
