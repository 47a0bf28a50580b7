#include "rpc/tls_probe.h"

#include <memory>
#include <utility>

#include "base/tls.h"
#include "env/tcp_probe.h"
#include "rpc/host_port.h"

namespace mooncake::rpc {
namespace {

// A handshake takes two or three.
constexpr int kRoundsMax = 16;

// OK: it ended well, or ended for reasons of the network.
Status Try(TlsTrial& trial, env::TcpProbe& connection) {
  for (int round = 0; round < kRoundsMax; ++round) {
    const TlsTrial::State state = trial.Advance();
    // What it has to say, also as its last word.
    if (const std::string output = trial.TakeOutput(); !output.empty()) {
      if (!connection.Send(output).ok()) return OkStatus();
    }
    if (state == TlsTrial::State::kDone) return OkStatus();
    if (state == TlsTrial::State::kFailed) return trial.why();
    const Result<std::string> input = connection.Receive();
    if (!input.ok()) return OkStatus();
    trial.AddInput(*input);
  }
  return OkStatus();
}

}  // namespace

Status WhyNoChannel(const std::string& address, const Credentials& credentials,
                    env::Deadline deadline) {
  MC_ASSIGN_OR_RETURN(const HostPort parts, SplitHostPort(address));
  Result<env::TcpProbe> connection = env::TcpProbe::Connect(parts.host, parts.port, deadline);
  if (!connection.ok()) return OkStatus();
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<TlsTrial> trial,
                      TlsTrial::Begin({.ca_pem = credentials.ca_pem,
                                       .host = parts.host,
                                       .cert_pem = credentials.cert_pem,
                                       .key_pem = credentials.key_pem}));
  const Status tried = Try(*trial, *connection);
  if (!credentials.tls()) {
    if (!trial->heard_tls()) return OkStatus();
    return InvalidArgument("it speaks TLS: give tls_ca (MOONCAKE_TLS_CA, --tls-ca)");
  }
  if (tried.code() == Code::kInvalidArgument) {
    return InvalidArgument(tried.message() + ", and tls_ca is given");
  }
  return tried.code() == Code::kPermissionDenied ? tried : OkStatus();
}

}  // namespace mooncake::rpc
