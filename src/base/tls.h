// What OpenSSL says of certificates and handshakes, for a library that speaks TLS by itself and
// does not tell why it failed.
//
// Nothing here carries anybody's data: the channel's TLS is gRPC's. Sockets are the caller's too
// (TlsTrial takes and gives bytes). Threads: free functions; a TlsTrial is one thread's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace mooncake {

// INVALID_ARGUMENT: no PEM certificate in it, or one that cannot be read.
Status CheckTlsAuthorities(std::string_view ca_pem);

// INVALID_ARGUMENT: no certificate, no key, a key that wants a passphrase, or one of another
// certificate.
Status CheckTlsIdentity(std::string_view cert_pem, std::string_view key_pem);

// Empty, or why nobody will accept the certificate now: "it expired on ...".
std::string WhyNotValidNow(std::string_view cert_pem);

struct TlsTrust {
  std::string ca_pem;  // empty: whatever the other side shows is accepted
  std::string host;    // that its certificate must name
  std::string cert_pem;
  std::string key_pem;
};

// A handshake as a client, as far as the first bytes after it. Call Advance, send what TakeOutput
// gives, receive, AddInput, and so on until it is not kWantsInput.
class TlsTrial {
 public:
  enum class State { kWantsInput, kDone, kFailed };

  static Result<std::unique_ptr<TlsTrial>> Begin(const TlsTrust& trust);
  ~TlsTrial();

  State Advance();
  std::string TakeOutput();
  void AddInput(std::string_view bytes);

  // When kFailed. PERMISSION_DENIED: one side does not accept the other's certificate, and why.
  // INVALID_ARGUMENT: the other side does not speak TLS. UNAVAILABLE: anything else.
  const Status& why() const { return why_; }
  // The other side has answered in TLS.
  bool heard_tls() const { return heard_tls_; }

 private:
  struct Parts;
  explicit TlsTrial(std::unique_ptr<Parts> parts);
  State Fail();

  std::unique_ptr<Parts> parts_;
  bool connected_ = false;
  bool heard_ = false;
  bool heard_tls_ = false;
  Status why_;
};

}  // namespace mooncake
