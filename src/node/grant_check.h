// Whether a grant or a permit lets its bearer do what it asks of this node instance.
//
// Pure. Everything in them is the caller's text until its MAC was recomputed.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/grant.h"
#include "mooncake/v1/types.pb.h"

namespace mooncake::node {

struct GrantAuthority {
  std::string node_id;  // for messages
  std::string instance_id;
  std::string key;  // what the MACs of this instance are made with
};

// The grant's content, proved. UNAVAILABLE: made for another instance of a node (ask the Master
// again); INVALID_ARGUMENT: malformed, not authentic, or for another kind of access than `wanted`.
Result<model::Grant> CheckGrant(const GrantAuthority& authority, const v1::Grant& grant,
                                model::Access wanted);

// Likewise of a permit to fill an extent. Whether the extent makes sense is node/slab.h's to say.
Result<model::ExtentPermit> CheckPermit(const GrantAuthority& authority,
                                        const v1::ExtentPermit& permit);

}  // namespace mooncake::node
