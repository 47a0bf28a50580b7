// Serves an AsyncMaster over gRPC, with the standard health service.
//
// Owns the listening port and gRPC's threads, none of which ever waits for the Master: each call is
// handed on and finished by `done`. Never decides anything. Threads: Start and Stop from one
// thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "rpc/async_master.h"

namespace mooncake::rpc {

class GrpcMasterServer {
 public:
  // `listen` is "host:port"; port 0 lets the system choose. UNAVAILABLE with the cause when the
  // port is taken: it is never shared with another process. `master` must outlive the server and
  // answer every call.
  static Result<std::unique_ptr<GrpcMasterServer>> Start(const std::string& listen,
                                                         AsyncMaster& master);
  ~GrpcMasterServer();

  // "host:port" as bound.
  const std::string& address() const { return address_; }

  // New calls are refused at once, those in flight get `grace_ms` to be answered. Idempotent.
  void Stop(int grace_ms = 1000);

 private:
  struct Parts;
  GrpcMasterServer(std::string address, std::unique_ptr<Parts> parts);

  std::string address_;
  std::unique_ptr<Parts> parts_;
};

// gRPC's own messages go to this program's log, at debug level. For a program's main.
void RouteGrpcLog();

}  // namespace mooncake::rpc
