// Serves an AsyncMaster over gRPC, with the standard health service.
//
// Owns the listening port and gRPC's threads, none of which ever waits for the Master: each call is
// handed on with its Caller and finished by `done`. Who the caller is, is said by the bearer token
// in the call's `authorization` metadata; a call without a known one is answered here with
// PERMISSION_DENIED, in the reply's status as every refusal. What a caller may do is the Master's
// to say. (The health service answers everybody.) Threads: Start and Stop from one thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "rpc/async_master.h"
#include "rpc/token_file.h"

namespace mooncake::rpc {

struct ServerSecurity {
  // Whose tokens are asked for; none: whoever calls is an operator. Must outlive the server.
  TokenFile* tokens = nullptr;
  // With a certificate the port speaks TLS, and nothing else. PEM, checked before
  // (base/tls.h).
  std::string tls_cert_pem;
  std::string tls_key_pem;
  // Authorities that must have signed the certificate that every caller then needs.
  std::string tls_client_ca_pem;
};

class GrpcMasterServer {
 public:
  // `listen` is "host:port"; port 0 lets the system choose. UNAVAILABLE with the cause when the
  // port is taken: it is never shared with another process. `master` must outlive the server and
  // answer every call.
  static Result<std::unique_ptr<GrpcMasterServer>> Start(const std::string& listen,
                                                         AsyncMaster& master,
                                                         const ServerSecurity& security = {});
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
