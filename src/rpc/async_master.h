// The Master as a server sees it: the RPCs of proto/mooncake/v1/master.proto, none of which blocks.
//
// `caller` says who asks: it was authenticated by whoever took the call, and is valid until the
// call returns. `request` and `reply` stay valid until `done` was called; `done` is called exactly
// once, from any thread, perhaps before the call returns, and the reply is complete then.
// Implemented by master::Master. BlockingMaster makes a MasterApi of one. Threads: any.
#pragma once

#include <functional>
#include <utility>

#include "mooncake/v1/master.pb.h"
#include "rpc/caller.h"
#include "rpc/master_api.h"

namespace mooncake::rpc {

class AsyncMaster {
 public:
  using Done = std::function<void()>;

  virtual ~AsyncMaster() = default;

#define MOONCAKE_DECLARE(Name)                                              \
  virtual void Name(const Caller& caller, const v1::Name##Request& request, \
                    v1::Name##Reply* reply, Done done) = 0;
  MOONCAKE_MASTER_RPCS(MOONCAKE_DECLARE)
#undef MOONCAKE_DECLARE
};

// Waits for each call: the embedded store's MasterApi, and tests'. The AsyncMaster must outlive it
// and answer from another thread than the caller's. Every call is `caller`'s: by default whoever
// owns the process, who may do everything.
class BlockingMaster final : public MasterApi {
 public:
  explicit BlockingMaster(AsyncMaster& master, Caller caller = Caller::Operator())
      : master_(master), caller_(std::move(caller)) {}

#define MOONCAKE_DECLARE(Name) v1::Name##Reply Name(const v1::Name##Request& request) override;
  MOONCAKE_MASTER_RPCS(MOONCAKE_DECLARE)
#undef MOONCAKE_DECLARE

 private:
  AsyncMaster& master_;
  const Caller caller_;
};

}  // namespace mooncake::rpc
