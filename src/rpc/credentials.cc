#include "rpc/credentials.h"

#include <cstdlib>

#include "base/tls.h"
#include "env/file.h"
#include "env/guarded_file.h"
#include "rpc/host_port.h"
#include "rpc/token_table.h"

namespace mooncake::rpc {
namespace {

constexpr uint64_t kPemBytesMax = 4 << 20;

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status CheckToken(const std::string& token, const std::string& from) {
  if (token.empty() || token.size() > TokenTable::kTokenBytesMax) {
    return InvalidArgument(from + ": expected 1 to " + std::to_string(TokenTable::kTokenBytesMax) +
                           " characters, got " + std::to_string(token.size()));
  }
  for (const char c : token) {
    if (c > ' ' && c <= '~') continue;
    return InvalidArgument(from +
                           ": a token has no blanks, line breaks or other characters than "
                           "visible ASCII");
  }
  return OkStatus();
}

Result<std::string> ReadToken(const std::string& path) {
  Result<env::GuardedFile> file =
      env::ReadGuardedFile(path, env::Guard::kReading, TokenTable::kTokenBytesMax + 2);
  if (!file.ok()) return file.status().WithContext("token file");
  std::string token = std::move(file->content);
  while (token.ends_with('\n') || token.ends_with('\r')) token.pop_back();
  MC_RETURN_IF_ERROR(CheckToken(token, "token file " + path));
  return token;
}

}  // namespace

CredentialSource WithEnvironment(CredentialSource given, As as) {
  if (as == As::kNode && given.token.empty() && given.token_file.empty()) {
    given.token = FromEnvironment("MOONCAKE_NODE_TOKEN");
    given.token_file = FromEnvironment("MOONCAKE_NODE_TOKEN_FILE");
  }
  if (given.token.empty() && given.token_file.empty()) {
    given.token = FromEnvironment("MOONCAKE_TOKEN");
    given.token_file = FromEnvironment("MOONCAKE_TOKEN_FILE");
  }
  if (given.tls_ca.empty()) given.tls_ca = FromEnvironment("MOONCAKE_TLS_CA");
  if (given.tls_cert.empty() && given.tls_key.empty()) {
    given.tls_cert = FromEnvironment("MOONCAKE_TLS_CERT");
    given.tls_key = FromEnvironment("MOONCAKE_TLS_KEY");
  }
  return given;
}

Result<Credentials> ReadCredentials(const CredentialSource& source) {
  Credentials read;
  if (!source.token.empty() && !source.token_file.empty()) {
    return InvalidArgument("a token and a token file are given; one of them says who this is");
  }
  if (!source.token.empty()) {
    MC_RETURN_IF_ERROR(CheckToken(source.token, "token"));
    read.token = source.token;
  }
  if (!source.token_file.empty()) {
    MC_ASSIGN_OR_RETURN(read.token, ReadToken(source.token_file));
  }
  if (!source.tls_ca.empty()) {
    Result<std::string> pem = env::ReadFile(source.tls_ca, kPemBytesMax);
    if (!pem.ok()) return pem.status().WithContext("tls_ca");
    MC_RETURN_IF_ERROR(CheckTlsAuthorities(*pem).WithContext("tls_ca " + source.tls_ca));
    read.ca_pem = *std::move(pem);
  }
  if (source.tls_cert.empty() != source.tls_key.empty()) {
    return InvalidArgument("a certificate and its key go together: got only " +
                           (source.tls_cert.empty() ? "the key " + source.tls_key
                                                    : "the certificate " + source.tls_cert));
  }
  if (source.tls_cert.empty()) return read;
  if (!read.tls()) return InvalidArgument("tls_cert " + source.tls_cert + " needs tls_ca, too");
  Result<std::string> cert = env::ReadFile(source.tls_cert, kPemBytesMax);
  if (!cert.ok()) return cert.status().WithContext("tls_cert");
  Result<env::GuardedFile> key =
      env::ReadGuardedFile(source.tls_key, env::Guard::kReading, kPemBytesMax);
  if (!key.ok()) return key.status().WithContext("tls_key");
  MC_RETURN_IF_ERROR(
      CheckTlsIdentity(*cert, key->content)
          .WithContext("tls_cert " + source.tls_cert + ", tls_key " + source.tls_key));
  read.cert_pem = *std::move(cert);
  read.key_pem = std::move(key->content);
  return read;
}

Status CheckMayBeShown(const Credentials& credentials, const std::string& address) {
  if (credentials.token.empty() || credentials.tls()) return OkStatus();
  MC_ASSIGN_OR_RETURN(const HostPort parts, SplitHostPort(address));
  if (IsLoopback(parts.host)) return OkStatus();
  return InvalidArgument("the token is not sent to " + address +
                         " in the clear: give the Master TLS, and tls_ca (MOONCAKE_TLS_CA, "
                         "--tls-ca) here");
}

}  // namespace mooncake::rpc
