// Tokens and TLS over a real channel: who the Master is told is asking, and what is said to whoever
// is not let in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "env/clock.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/test_folder.h"
#include "rpc/grpc_master.h"
#include "rpc/grpc_master_server.h"
#include "rpc/status_proto.h"
#include "rpc/test_authority.h"
#include "rpc/tls_probe.h"

namespace mooncake::rpc {
namespace {

using testing::HasSubstr;

// Answers OK and remembers who asked.
class CallerRecorder final : public AsyncMaster {
 public:
#define MOONCAKE_DEFINE(Name)                                                            \
  void Name(const Caller& caller, const v1::Name##Request&, v1::Name##Reply*, Done done) \
      override {                                                                         \
    {                                                                                    \
      std::lock_guard lock(mutex_);                                                      \
      callers_.push_back(caller);                                                        \
    }                                                                                    \
    done();                                                                              \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

  std::vector<Caller> callers() {
    std::lock_guard lock(mutex_);
    return callers_;
  }

 private:
  std::mutex mutex_;
  std::vector<Caller> callers_;
};

class GrpcSecurityTest : public testing::Test {
 protected:
  void WriteTokens(const std::string& lines) {
    ASSERT_TRUE(env::WriteFileDurably(token_path_, "mooncake-tokens 1\n" + lines).ok());
  }
  static std::string Line(const std::string& name, const std::string& role,
                          const std::string& tenant, const std::string& token) {
    return name + " " + role + " " + tenant + " " + ToHex(Sha256Of(token)) + "\n";
  }
  void Serve(const ServerSecurity& security, const std::string& host = "127.0.0.1") {
    auto server = GrpcMasterServer::Start(host + ":0", master_, security);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  void ServeWithTokens() {
    WriteTokens(Line("trainer", "client", "blue", "t1"));
    auto tokens = TokenFile::Open(token_path_);
    ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
    tokens_ = *std::move(tokens);
    Serve({.tokens = tokens_.get()});
  }
  // One call's Status. Long time-outs: what is refused is refused at once.
  Status Ask(const Credentials& credentials, const std::string& address = "") {
    GrpcMaster master(address.empty() ? server_->address() : address,
                      {.connect_timeout_ms = 30'000, .total_timeout_ms = 60'000}, credentials);
    return StatusFromProto(master.GetWeight({}).status());
  }
  std::string At(const std::string& host) const {
    return host + server_->address().substr(server_->address().rfind(':'));
  }

  env::TestFolder folder_;
  const std::string token_path_ = folder_ / "tokens";
  CallerRecorder master_;
  std::unique_ptr<TokenFile> tokens_;
  std::unique_ptr<GrpcMasterServer> server_;
};

TEST_F(GrpcSecurityTest, WithoutTokensEverybodyIsAnOperator) {
  Serve({});
  ASSERT_TRUE(Ask({}).ok());
  ASSERT_TRUE(Ask({.token = "whatever"}).ok());
  EXPECT_EQ(master_.callers(), (std::vector<Caller>{Caller::Operator(), Caller::Operator()}));
}

TEST_F(GrpcSecurityTest, ATokenSaysWhoAsks) {
  ServeWithTokens();
  ASSERT_TRUE(Ask({.token = "t1"}).ok());
  EXPECT_EQ(master_.callers(), (std::vector<Caller>{{Role::kClient, "blue", "trainer"}}));
  // On the same channel: the next call after the file changed.
  GrpcMaster master(server_->address(), {}, {.token = "t1"});
  ASSERT_EQ(master.GetWeight({}).status().code(), 0u);
  WriteTokens(Line("trainer", "client", "blue", "t2"));
  const Status revoked = StatusFromProto(master.GetWeight({}).status());
  EXPECT_EQ(revoked.code(), Code::kPermissionDenied);
  EXPECT_THAT(revoked.message(), HasSubstr("revoked"));
  EXPECT_TRUE(Ask({.token = "t2"}).ok());
}

TEST_F(GrpcSecurityTest, NoTokenAndAnUnknownOneAreRefusedBeforeTheMaster) {
  ServeWithTokens();
  for (const Credentials& credentials : {Credentials{}, Credentials{.token = "t9"}}) {
    GrpcMaster master(server_->address(), {}, credentials);
#define MOONCAKE_ASK(Name)                                                       \
  EXPECT_EQ(static_cast<Code>(master.Name(v1::Name##Request()).status().code()), \
            Code::kPermissionDenied)                                             \
      << #Name;
    MOONCAKE_MASTER_RPCS(MOONCAKE_ASK)
#undef MOONCAKE_ASK
  }
  EXPECT_TRUE(master_.callers().empty());
  EXPECT_THAT(Ask({}).message(), HasSubstr("no token was shown"));
}

TEST_F(GrpcSecurityTest, ATokenIsNotSentInTheClear) {
  Serve({}, "0.0.0.0");
  const Status refused = Ask({.token = "t1"}, "10.255.255.1:1");
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("the token is not sent to 10.255.255.1:1"));
  EXPECT_TRUE(Ask({.token = "t1"}, At("127.0.0.1")).ok());
}

class GrpcTlsTest : public GrpcSecurityTest {
 protected:
  void ServeTls(const std::string& hosts, int days = 30, const std::string& client_ca = "") {
    const auto identity = authority_.Issue(hosts, days);
    Serve({.tls_cert_pem = identity.cert_pem,
           .tls_key_pem = identity.key_pem,
           .tls_client_ca_pem = client_ca});
  }
  void ExpectRefused(const Credentials& credentials, Code code, const std::string& why,
                     const std::string& address = "") {
    const int64_t begin_ms = env::SystemClock::Instance().MonotonicMs();
    const Status refused = Ask(credentials, address);
    EXPECT_EQ(refused.code(), code);
    EXPECT_THAT(refused.message(), HasSubstr(why));
    EXPECT_THAT(refused.message(), HasSubstr("GetWeight at Master "));
    // Not the time-out, which would be no answer.
    EXPECT_LT(env::SystemClock::Instance().MonotonicMs() - begin_ms, 25'000);
    EXPECT_TRUE(master_.callers().empty());
  }

  TestAuthority authority_;
};

TEST_F(GrpcTlsTest, TheMasterIsKnownByItsCertificate) {
  ServeTls("DNS:localhost,IP:127.0.0.1");
  EXPECT_TRUE(Ask({.ca_pem = authority_.pem()}).ok());
  EXPECT_TRUE(Ask({.token = "t", .ca_pem = authority_.pem()}).ok());
}

TEST_F(GrpcTlsTest, AnotherAuthority) {
  ServeTls("IP:127.0.0.1");
  TestAuthority stranger("Stranger");
  ExpectRefused({.ca_pem = stranger.pem()}, Code::kPermissionDenied,
                "its certificate is not accepted: unable to get local issuer certificate: signed "
                "by CN = Test authority");
}

TEST_F(GrpcTlsTest, AnExpiredCertificate) {
  ServeTls("IP:127.0.0.1", -1);
  ExpectRefused({.ca_pem = authority_.pem()}, Code::kPermissionDenied,
                "its certificate is not accepted: certificate has expired: on ");
}

TEST_F(GrpcTlsTest, AnotherHost) {
  ServeTls("DNS:master.example,IP:10.0.0.1");
  ExpectRefused({.ca_pem = authority_.pem()}, Code::kPermissionDenied,
                "IP address mismatch: asked for 127.0.0.1, it names DNS:master.example, IP "
                "Address:10.0.0.1");
  // By name without gRPC, whose resolver (c-ares) never frees the last name it was asked for.
  const Status by_name =
      WhyNoChannel(At("localhost"), {.ca_pem = authority_.pem()}, env::Deadline::AfterMs(20'000));
  EXPECT_THAT(by_name.message(),
              HasSubstr("hostname mismatch: asked for localhost, it names DNS:master.example"));
}

TEST_F(GrpcTlsTest, OnlyOneSideSpeaksIt) {
  ServeTls("IP:127.0.0.1");
  ExpectRefused({}, Code::kInvalidArgument, "it speaks TLS: give tls_ca");
  Serve({});
  ExpectRefused({.ca_pem = authority_.pem()}, Code::kInvalidArgument,
                "it does not speak TLS, and tls_ca is given");
}

TEST_F(GrpcTlsTest, ACertificateIsAskedOfEveryCaller) {
  TestAuthority clients("Clients");
  ServeTls("IP:127.0.0.1", 30, clients.pem());
  const auto own = clients.Issue("DNS:trainer");
  EXPECT_TRUE(
      Ask({.ca_pem = authority_.pem(), .cert_pem = own.cert_pem, .key_pem = own.key_pem}).ok());
}

TEST_F(GrpcTlsTest, ACallerWithoutTheRightCertificate) {
  TestAuthority clients("Clients");
  ServeTls("IP:127.0.0.1", 30, clients.pem());
  ExpectRefused({.ca_pem = authority_.pem()}, Code::kPermissionDenied,
                "it asks for a certificate, and none was shown (tls_cert, tls_key)");
  const auto other = authority_.Issue("DNS:trainer");
  ExpectRefused({.ca_pem = authority_.pem(), .cert_pem = other.cert_pem, .key_pem = other.key_pem},
                Code::kPermissionDenied,
                "it asks for a certificate, and does not accept ours (tls_cert)");
}

}  // namespace
}  // namespace mooncake::rpc
