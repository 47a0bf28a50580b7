// The Master as its callers see it: one blocking call per RPC, over the wire schema's own messages.
//
// Implementations: GrpcMaster (rpc/grpc_master.h) over a channel; the embedded store's in-process
// one (cluster/). A channel failure is a Status in the reply (UNAVAILABLE when the Master cannot be
// reached, OUTCOME_UNKNOWN when a mutation may or may not have happened); retry with the same
// CommandId is always safe. Thread-safe.
#pragma once

#include "mooncake/v1/master.pb.h"

// Every RPC of the service, once: X(Name) with messages v1::NameRequest and v1::NameReply.
#define MOONCAKE_MASTER_RPCS(X) \
  X(RegisterNode)               \
  X(ReportNode)                 \
  X(BeginImport)                \
  X(GetImport)                  \
  X(KeepImport)                 \
  X(SubmitReceipt)              \
  X(CommitImport)               \
  X(AbortImport)                \
  X(GetWeight)                  \
  X(ListWeights)                \
  X(OpenRevision)               \
  X(LocateObjects)              \
  X(RenewLeases)                \
  X(ReleaseLease)               \
  X(RemoveWeight)               \
  X(GetCluster)                 \
  X(LeaveNode)                  \
  X(PutStart)                   \
  X(PutEnd)                     \
  X(PutRevoke)                  \
  X(KeepPuts)                   \
  X(LookupObjects)              \
  X(RemoveObjects)              \
  X(RemoveAllObjects)           \
  X(ListObjects)                \
  X(ReportUnreadable)           \
  X(SetTenant)                  \
  X(ListTenants)

namespace mooncake::rpc {

class MasterApi {
 public:
  virtual ~MasterApi() = default;

#define MOONCAKE_DECLARE(Name) virtual v1::Name##Reply Name(const v1::Name##Request& request) = 0;
  MOONCAKE_MASTER_RPCS(MOONCAKE_DECLARE)
#undef MOONCAKE_DECLARE
};

}  // namespace mooncake::rpc
