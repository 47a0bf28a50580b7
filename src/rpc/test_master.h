// A Master for tests that answers every request with an empty reply; a test overrides what it is
// about.
#pragma once

#include "rpc/master_api.h"

namespace mooncake::rpc {

class EmptyMaster : public MasterApi {
 public:
#define MOONCAKE_DEFINE(Name) \
  v1::Name##Reply Name(const v1::Name##Request&) override { return {}; }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE
};

}  // namespace mooncake::rpc
