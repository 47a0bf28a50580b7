// The Master's HTTP port, for monitoring: GET /metrics (Prometheus) and /status (JSON).
//
// Looks and never changes anything: each page is made of what the Master answers to GetCluster and
// ListTenants, asked as whoever asks the page. Where tokens are asked for, that is the bearer of
// the one in the `authorization` header (401 without a known one), and a client's shows its own
// tenant alone. A Master that cannot serve gives 503 with the reason, one that refuses 403.
//
// A connection serves one request: a scraper that keeps its connection open would hold a thread,
// and the end of the program, up. Owns the port and its threads. Threads: Start and Stop from one.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "rpc/async_master.h"
#include "rpc/token_file.h"

namespace mooncake::admin {

struct AdminOptions {
  std::string listen;  // "host:port"; port 0 lets the system choose
  // Whose tokens are asked for; none: whoever asks is an operator. Must outlive the server.
  rpc::TokenFile* tokens = nullptr;
  // Paths of PEM files that were checked before. With a certificate the port speaks TLS alone.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;  // every caller then needs a certificate signed by one of these
};

class AdminServer {
 public:
  // INVALID_ARGUMENT: the address, the certificate. UNAVAILABLE with the cause: the port is taken.
  // `master` must outlive the server, and answer from other threads than the server's.
  static Result<std::unique_ptr<AdminServer>> Start(const AdminOptions& options,
                                                    rpc::AsyncMaster& master);
  ~AdminServer();  // stops

  // "http://host:port", or https.
  const std::string& url() const { return url_; }

  // Requests in flight are answered; a connection that says nothing is waited for, for some
  // seconds. Idempotent.
  void Stop();

 private:
  struct Parts;
  AdminServer(std::string url, std::unique_ptr<Parts> parts);

  const std::string url_;
  const std::unique_ptr<Parts> parts_;
};

}  // namespace mooncake::admin
