// The Master over gRPC, as a blocking MasterApi.
//
// How one call runs:
//   1. wait until the channel is connected, at most connect_timeout_ms; where the two sides do not
//      accept each other's certificates, or only one speaks TLS, that is the answer;
//   2. call, at most attempt_timeout_ms;
//   3. an answer other than UNAVAILABLE is the answer (also the Master's own refusals);
//   4. otherwise, and while total_timeout_ms lasts, wait a little and begin again with the same
//      request, hence the same CommandId: the Master executes it once, however often it arrives.
// When time is up: OUTCOME_UNKNOWN if the request is a command and some attempt of it may have
// reached the Master without our hearing an answer; else UNAVAILABLE with the last reason.
//
// Threads: any.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "rpc/async_master.h"
#include "rpc/credentials.h"

namespace mooncake::rpc {

struct GrpcMasterOptions {
  int connect_timeout_ms = 2'000;
  int attempt_timeout_ms = 5'000;
  int total_timeout_ms = 10'000;
};

class GrpcMaster final : public MasterApi {
 public:
  // `address` is "host:port". Connects at the first call. Credentials that must not be shown there
  // (CheckMayBeShown) are not: every call answers why.
  explicit GrpcMaster(const std::string& address, GrpcMasterOptions options = {},
                      const Credentials& credentials = {});
  ~GrpcMaster() override;

#define MOONCAKE_DECLARE(Name) v1::Name##Reply Name(const v1::Name##Request& request) override;
  MOONCAKE_MASTER_RPCS(MOONCAKE_DECLARE)
#undef MOONCAKE_DECLARE

  // Every call in flight and every later one answers CANCELLED (a command in flight:
  // OUTCOME_UNKNOWN).
  void Cancel();

 private:
  class Channel;
  const std::unique_ptr<Channel> channel_;
};

}  // namespace mooncake::rpc
