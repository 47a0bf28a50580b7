// The Master's description of a revision as this client's view of it.
#pragma once

#include "base/status.h"
#include "client/store_client.h"
#include "codec/values.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::client {

inline Result<RevisionView> ViewFromProto(const v1::RevisionMetadata& proto) {
  RevisionView view;
  MC_ASSIGN_OR_RETURN(view.metadata, codec::FromProto(proto));
  view.physical_bytes = proto.physical_bytes();
  if (proto.has_operation_id()) view.operation_id = proto.operation_id();
  return view;
}

}  // namespace mooncake::client
