// What a client or a node shows to the Master, and by what it knows the Master.
//
// A source says where each part comes from: given by the caller, else by the environment
//   MOONCAKE_TOKEN, MOONCAKE_TOKEN_FILE  the bearer token, or a file that holds it
//   MOONCAKE_NODE_TOKEN, MOONCAKE_NODE_TOKEN_FILE
//                                        the same for a node, where a client in the same process
//                                        shows another
//   MOONCAKE_TLS_CA                      PEM of the authorities that sign the Master's certificate;
//                                        with it the channel is TLS, without it plaintext
//   MOONCAKE_TLS_CERT, MOONCAKE_TLS_KEY  PEM of the own certificate, where the Master asks for one
// Files of secrets must not be readable by others (env/guarded_file.h). Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace mooncake::rpc {

// As given; empty: not given.
struct CredentialSource {
  std::string token;
  std::string token_file;
  std::string tls_ca;  // this and the next two are paths
  std::string tls_cert;
  std::string tls_key;

  bool empty() const {
    return token.empty() && token_file.empty() && tls_ca.empty() && tls_cert.empty() &&
           tls_key.empty();
  }
};

struct Credentials {
  std::string token;   // empty: none is shown
  std::string ca_pem;  // empty: plaintext
  std::string cert_pem;
  std::string key_pem;

  bool tls() const { return !ca_pem.empty(); }
};

enum class As : uint8_t { kClient, kNode };

// The environment's; `given` wins, part by part.
CredentialSource WithEnvironment(CredentialSource given, As as = As::kClient);

// Reads the files. INVALID_ARGUMENT names the part and what is wrong with it, never the token.
Result<Credentials> ReadCredentials(const CredentialSource& source);

// INVALID_ARGUMENT: a token would go over the network in the clear.
Status CheckMayBeShown(const Credentials& credentials, const std::string& address);

}  // namespace mooncake::rpc
