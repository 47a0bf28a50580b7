#include "base/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <vector>

namespace mooncake {
namespace {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<&BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<&EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<&SSL_CTX_free>>;
using Session = std::unique_ptr<SSL, Freed<&SSL_free>>;

// What gRPC speaks, and insists on.
constexpr unsigned char kAlpn[] = {2, 'h', '2'};
// The first byte of a TLS record that a server may begin with: alert, handshake.
constexpr char kAlertRecord = 21;
constexpr char kHandshakeRecord = 22;

// The newest reason in OpenSSL's queue, which is emptied.
std::string LastReason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(error);
  return reason == nullptr ? "no reason given" : reason;
}

Bio Reading(std::string_view text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  MC_CHECK(bio != nullptr);
  return bio;
}

// All of a PEM text, in its order.
std::vector<Certificate> Certificates(std::string_view pem) {
  const Bio bio = Reading(pem);
  std::vector<Certificate> found;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(certificate);
  }
  return found;
}

// An encrypted key is not asked about at the terminal.
int NoPassphrase(char*, int, int, void*) { return -1; }

Result<Key> KeyOf(std::string_view pem) {
  const Bio bio = Reading(pem);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  if (key == nullptr) return InvalidArgument("no private key in PEM form: " + LastReason());
  return key;
}

std::string TimeText(const ASN1_TIME* time) {
  const Bio bio(BIO_new(BIO_s_mem()));
  MC_CHECK(bio != nullptr);
  ASN1_TIME_print(bio.get(), time);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(bytes)};
}

std::string NameText(const X509_NAME* name) {
  const Bio bio(BIO_new(BIO_s_mem()));
  MC_CHECK(bio != nullptr);
  X509_NAME_print_ex(bio.get(), name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return {text, static_cast<size_t>(bytes)};
}

// "names DNS:a, DNS:b, IP Address:127.0.0.1"
std::string NamesOf(X509* certificate) {
  const int at = X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  if (at < 0) return "it names no host";
  const Bio bio(BIO_new(BIO_s_mem()));
  MC_CHECK(bio != nullptr);
  X509V3_EXT_print(bio.get(), X509_get_ext(certificate, at), 0, 0);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(bio.get(), &text);
  return "it names " + std::string(text, static_cast<size_t>(bytes));
}

bool IsAddress(const std::string& host) {
  const std::unique_ptr<ASN1_OCTET_STRING, Freed<&ASN1_OCTET_STRING_free>> parsed(
      a2i_IPADDRESS(host.c_str()));
  ERR_clear_error();
  return parsed != nullptr;
}

std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

void Trust(SSL_CTX* context, std::string_view ca_pem) {
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  for (const Certificate& authority : Certificates(ca_pem)) {
    X509_STORE_add_cert(store, authority.get());
  }
  ERR_clear_error();
}

Status Identify(SSL_CTX* context, const TlsTrust& trust) {
  MC_ASSIGN_OR_RETURN(const Key key, KeyOf(trust.key_pem));
  std::vector<Certificate> chain = Certificates(trust.cert_pem);
  ERR_clear_error();
  if (chain.empty()) return InvalidArgument("no certificate in PEM form");
  SSL_CTX_use_certificate(context, chain.front().get());
  for (size_t i = 1; i < chain.size(); ++i) SSL_CTX_add1_chain_cert(context, chain[i].get());
  SSL_CTX_use_PrivateKey(context, key.get());
  return OkStatus();
}

}  // namespace

Status CheckTlsAuthorities(std::string_view ca_pem) {
  const bool some = !Certificates(ca_pem).empty();
  const std::string reason = LastReason();
  return some ? OkStatus() : InvalidArgument("no certificate in PEM form: " + reason);
}

Status CheckTlsIdentity(std::string_view cert_pem, std::string_view key_pem) {
  const std::vector<Certificate> chain = Certificates(cert_pem);
  const std::string reason = LastReason();
  if (chain.empty()) return InvalidArgument("no certificate in PEM form: " + reason);
  MC_ASSIGN_OR_RETURN(const Key key, KeyOf(key_pem));
  if (X509_check_private_key(chain.front().get(), key.get()) == 1) return OkStatus();
  return InvalidArgument("the key is not the certificate's: " + LastReason());
}

std::string WhyNotValidNow(std::string_view cert_pem) {
  const std::vector<Certificate> chain = Certificates(cert_pem);
  ERR_clear_error();
  if (chain.empty()) return "there is none";
  const X509* certificate = chain.front().get();
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    return "it expired on " + TimeText(X509_get0_notAfter(certificate));
  }
  if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    return "it is not valid before " + TimeText(X509_get0_notBefore(certificate));
  }
  return "";
}

struct TlsTrial::Parts {
  Context context;
  Session session;
  BIO* input = nullptr;  // the session's
  BIO* output = nullptr;
  std::string host;
  std::string refused;  // what is wrong with the other side's certificate
  bool asked = false;   // the other side wants ours

  // OpenSSL's certificate callback, called when one is asked for.
  static int Asked(SSL*, void* self) {
    static_cast<Parts*>(self)->asked = true;
    return 1;
  }

  // OpenSSL's verify callback: the certificate is gone when the handshake has failed.
  static int Look(int fine, X509_STORE_CTX* store) {
    if (fine == 1) return fine;
    const auto* session = static_cast<const SSL*>(
        X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    auto* self = static_cast<Parts*>(SSL_get_app_data(session));
    self->refused =
        self->Detail(X509_STORE_CTX_get_error(store), X509_STORE_CTX_get_current_cert(store));
    return fine;
  }

  std::string Detail(int error, X509* certificate) const {
    if (certificate == nullptr) return "";
    if (error == X509_V_ERR_HOSTNAME_MISMATCH || error == X509_V_ERR_IP_ADDRESS_MISMATCH) {
      return ": asked for " + host + ", " + NamesOf(certificate);
    }
    if (error == X509_V_ERR_CERT_HAS_EXPIRED) {
      return ": on " + TimeText(X509_get0_notAfter(certificate));
    }
    return ": signed by " + NameText(X509_get_issuer_name(certificate));
  }
};

Result<std::unique_ptr<TlsTrial>> TlsTrial::Begin(const TlsTrust& trust) {
  auto parts = std::make_unique<Parts>();
  parts->context.reset(SSL_CTX_new(TLS_client_method()));
  MC_CHECK(parts->context != nullptr);
  SSL_CTX* context = parts->context.get();
  if (!trust.ca_pem.empty()) {
    Trust(context, trust.ca_pem);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, &Parts::Look);
  }
  if (!trust.cert_pem.empty()) MC_RETURN_IF_ERROR(Identify(context, trust));
  SSL_CTX_set_alpn_protos(context, kAlpn, sizeof kAlpn);
  parts->session.reset(SSL_new(context));
  MC_CHECK(parts->session != nullptr);
  SSL* session = parts->session.get();
  SSL_set_app_data(session, parts.get());
  SSL_set_cert_cb(session, &Parts::Asked, parts.get());
  parts->host = WithoutBrackets(trust.host);
  if (IsAddress(parts->host)) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), parts->host.c_str());
  } else {
    SSL_set1_host(session, parts->host.c_str());
    SSL_set_tlsext_host_name(session, parts->host.c_str());
  }
  parts->input = BIO_new(BIO_s_mem());
  parts->output = BIO_new(BIO_s_mem());
  MC_CHECK(parts->input != nullptr && parts->output != nullptr);
  SSL_set_bio(session, parts->input, parts->output);
  SSL_set_connect_state(session);
  return std::unique_ptr<TlsTrial>(new TlsTrial(std::move(parts)));
}

TlsTrial::TlsTrial(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TlsTrial::~TlsTrial() = default;

TlsTrial::State TlsTrial::Advance() {
  SSL* session = parts_->session.get();
  ERR_clear_error();
  if (!connected_) {
    const int done = SSL_do_handshake(session);
    if (done != 1) {
      return SSL_get_error(session, done) == SSL_ERROR_WANT_READ ? State::kWantsInput : Fail();
    }
    connected_ = true;
  }
  // A server that does not accept our certificate says so only now (TLS 1.3).
  char first;
  const int got = SSL_read(session, &first, 1);
  if (got == 1) return State::kDone;
  return SSL_get_error(session, got) == SSL_ERROR_WANT_READ ? State::kWantsInput : Fail();
}

TlsTrial::State TlsTrial::Fail() {
  SSL* session = parts_->session.get();
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  const std::string text = LastReason();
  const long verified = SSL_get_verify_result(session);
  if (!heard_tls_) {
    why_ =
        heard_ ? InvalidArgument("it does not speak TLS") : Unavailable("it closed the connection");
  } else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verified != X509_V_OK) {
    why_ = PermissionDenied(std::string("its certificate is not accepted: ") +
                            X509_verify_cert_error_string(verified) + parts_->refused);
  } else if (connected_ && parts_->asked) {
    // gRPC's servers close the connection without a word.
    const bool shown = SSL_get_certificate(session) != nullptr;
    why_ = PermissionDenied(
        std::string("it asks for a certificate, and ") +
        (shown ? "does not accept ours (tls_cert)" : "none was shown (tls_cert, tls_key)"));
  } else if (reason >= SSL_AD_REASON_OFFSET) {
    why_ = PermissionDenied("it refused us: " + text);
  } else {
    why_ = Unavailable("TLS: " + text);
  }
  return State::kFailed;
}

std::string TlsTrial::TakeOutput() {
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(parts_->output, &bytes);
  std::string taken(bytes, static_cast<size_t>(count));
  (void)BIO_reset(parts_->output);
  return taken;
}

void TlsTrial::AddInput(std::string_view bytes) {
  if (bytes.empty()) {
    BIO_set_mem_eof_return(parts_->input, 0);
    return;
  }
  if (!heard_) heard_tls_ = bytes[0] == kHandshakeRecord || bytes[0] == kAlertRecord;
  heard_ = true;
  BIO_write(parts_->input, bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace mooncake
