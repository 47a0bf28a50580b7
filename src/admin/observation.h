// What the Master says of itself at one moment: the replies that every page of the admin port is
// made from.
#pragma once

#include "base/status.h"
#include "mooncake/v1/master.pb.h"
#include "rpc/master_api.h"
#include "rpc/status_proto.h"

namespace mooncake::admin {

struct Observation {
  v1::GetClusterReply cluster;
  v1::ListTenantsReply tenants;  // cut to the caller's
};

// The Master's refusal, if it refuses: UNAVAILABLE while it cannot serve, PERMISSION_DENIED.
inline Result<Observation> Observe(rpc::MasterApi& master) {
  Observation seen{master.GetCluster({}), master.ListTenants({})};
  MC_RETURN_IF_ERROR(rpc::StatusFromProto(seen.cluster.status()));
  MC_RETURN_IF_ERROR(rpc::StatusFromProto(seen.tenants.status()));
  return seen;
}

}  // namespace mooncake::admin
