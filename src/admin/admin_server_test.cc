// The HTTP port as a scraper meets it: pages, refusals, tokens, TLS, and its end.
#include "admin/admin_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <mutex>

#include "base/digest.h"
#include "env/file.h"
#include "env/tcp_probe.h"
#include "env/test_folder.h"
#include "rpc/status_proto.h"
#include "rpc/test_authority.h"

namespace mooncake::admin {
namespace {

using testing::HasSubstr;

// Says who asked it, and answers with the code it was given.
class AnsweringMaster final : public rpc::AsyncMaster {
 public:
#define MOONCAKE_DEFINE(Name)                                                            \
  void Name(const rpc::Caller& caller, const v1::Name##Request&, v1::Name##Reply* reply, \
            Done done) override {                                                        \
    {                                                                                    \
      std::lock_guard lock(mutex_);                                                      \
      asked_.push_back(std::string(#Name) + " " + rpc::Describe(caller));                \
      rpc::SetStatus(reply->mutable_status(), answer_);                                  \
    }                                                                                    \
    done();                                                                              \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

  void Answer(Status status) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(status);
  }
  std::vector<std::string> TakeAsked() {
    std::lock_guard lock(mutex_);
    return std::exchange(asked_, {});
  }

 private:
  std::mutex mutex_;
  Status answer_;
  std::vector<std::string> asked_;
};

class AdminServerTest : public testing::Test {
 protected:
  AdminServerTest() { options_.listen = "127.0.0.1:0"; }

  void Serve() {
    auto started = AdminServer::Start(options_, master_);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    server_ = *std::move(started);
  }
  void AskForTokens() {
    const std::string path = folder_ / "tokens";
    const auto line = [](const std::string& name, const std::string& role,
                         const std::string& tenant) {
      return name + " " + role + " " + tenant + " " + ToHex(Sha256Of("token-" + name)) + "\n";
    };
    ASSERT_TRUE(env::WriteFileDurably(path, "mooncake-tokens 1\n" + line("admin", "operator", "*") +
                                                line("trainer", "client", "blue"))
                    .ok());
    auto tokens = rpc::TokenFile::Open(path);
    ASSERT_TRUE(tokens.ok()) << tokens.status().ToString();
    tokens_ = *std::move(tokens);
    options_.tokens = tokens_.get();
  }
  httplib::Result Get(const std::string& path, const httplib::Headers& headers = {}) {
    httplib::Client client(server_->url());
    return client.Get(path, headers);
  }

  env::TestFolder folder_;
  AnsweringMaster master_;
  std::unique_ptr<rpc::TokenFile> tokens_;
  AdminOptions options_;
  std::unique_ptr<AdminServer> server_;
};

TEST_F(AdminServerTest, ServesItsPagesAndNothingElse) {
  Serve();
  const auto metrics = Get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_EQ(metrics->status, 200);
  EXPECT_EQ(metrics->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(metrics->body, HasSubstr("\nmooncake_log_sequence 0\n"));
  const auto status = Get("/status");
  ASSERT_TRUE(status);
  EXPECT_EQ(status->status, 200);
  EXPECT_EQ(status->get_header_value("Content-Type"), "application/json");
  EXPECT_THAT(status->body, HasSubstr("\"cluster\":{"));
  EXPECT_THAT(master_.TakeAsked(), testing::ElementsAre("GetCluster the process's own operator",
                                                        "ListTenants the process's own operator",
                                                        "GetCluster the process's own operator",
                                                        "ListTenants the process's own operator"));
  const auto other = Get("/etc/passwd");
  ASSERT_TRUE(other);
  EXPECT_EQ(other->status, 404);
  EXPECT_EQ(other->body, "here are /metrics and /status\n");
  httplib::Client client(server_->url());
  const auto posted = client.Post("/metrics", "x", "text/plain");
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted->status, 404);
  const auto large = client.Post("/metrics", std::string(1 << 20, 'x'), "text/plain");
  EXPECT_TRUE(!large || large->status == 413 || large->status == 404);
  EXPECT_TRUE(master_.TakeAsked().empty());
}

TEST_F(AdminServerTest, SaysWhyTheMasterDoesNotAnswer) {
  Serve();
  for (const auto& [status, http_status] : {std::pair{Unavailable("the disk is away"), 503},
                                            {PermissionDenied("not for nodes"), 403},
                                            {Internal("a mistake"), 500}}) {
    master_.Answer(status);
    const auto got = Get("/metrics");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, http_status);
    EXPECT_EQ(got->body, status.ToString() + "\n");
  }
}

TEST_F(AdminServerTest, AsksForTokensWhereTheMasterDoes) {
  AskForTokens();
  Serve();
  const auto with = [this](const std::string& value) {
    return Get("/status", {{"Authorization", value}});
  };
  for (const char* value : {"Bearer unknown", "Basic token-admin", "token-admin", "Bearer "}) {
    const auto got = with(value);
    ASSERT_TRUE(got);
    EXPECT_EQ(got->status, 401) << value;
    EXPECT_EQ(got->get_header_value("WWW-Authenticate"), "Bearer");
    EXPECT_THAT(got->body, HasSubstr("PERMISSION_DENIED"));
  }
  EXPECT_EQ(Get("/metrics")->status, 401);
  EXPECT_EQ(Get("/metrics", {{"Authorization", "Bearer token-admin"},
                             {"Authorization", "Bearer token-trainer"}})
                ->status,
            401);
  EXPECT_TRUE(master_.TakeAsked().empty());
  EXPECT_EQ(with("Bearer token-admin")->status, 200);
  EXPECT_EQ(with("bearer token-trainer")->status, 200);
  EXPECT_THAT(
      master_.TakeAsked(),
      testing::ElementsAre("GetCluster operator token admin", "ListTenants operator token admin",
                           "GetCluster client token trainer of tenant blue",
                           "ListTenants client token trainer of tenant blue"));
}

TEST_F(AdminServerTest, SpeaksTlsWithTheMastersCertificate) {
  rpc::TestAuthority authority;
  const auto identity = authority.Issue("DNS:localhost,IP:127.0.0.1");
  options_.tls_cert = identity.cert;
  options_.tls_key = identity.key;
  Serve();
  ASSERT_TRUE(server_->url().starts_with("https://127.0.0.1:"));
  httplib::Client client(server_->url());
  client.set_ca_cert_path(authority.path());
  const auto got = client.Get("/metrics");
  ASSERT_TRUE(got) << httplib::to_string(got.error());
  EXPECT_EQ(got->status, 200);
  httplib::Client in_the_clear("http" + server_->url().substr(5));
  EXPECT_FALSE(in_the_clear.Get("/metrics"));

  options_.tls_client_ca = authority.path();
  Serve();
  httplib::Client stranger(server_->url());
  stranger.set_ca_cert_path(authority.path());
  EXPECT_FALSE(stranger.Get("/metrics"));
  const auto own = authority.Issue("DNS:caller");
  httplib::Client known(server_->url(), own.cert, own.key);
  known.set_ca_cert_path(authority.path());
  const auto let_in = known.Get("/metrics");
  ASSERT_TRUE(let_in) << httplib::to_string(let_in.error());
  EXPECT_EQ(let_in->status, 200);

  options_.tls_key = authority.path();
  EXPECT_EQ(AdminServer::Start(options_, master_).status().code(), Code::kInvalidArgument);
}

TEST_F(AdminServerTest, APortIsNeverShared) {
  Serve();
  const std::string address = server_->url().substr(std::string("http://").size());
  options_.listen = address;
  const Status taken = AdminServer::Start(options_, master_).status();
  EXPECT_EQ(taken.code(), Code::kUnavailable);
  EXPECT_THAT(taken.message(), HasSubstr("Address already in use"));
  // A restart binds it at once, whatever connections there were.
  ASSERT_EQ(Get("/metrics")->status, 200);
  server_->Stop();
  EXPECT_FALSE(Get("/metrics"));
  Serve();
  EXPECT_EQ(server_->url(), "http://" + address);
  EXPECT_EQ(Get("/metrics")->status, 200);

  for (const char* listen : {"127.0.0.1", "127.0.0.1:99999", ":9"}) {
    options_.listen = listen;
    EXPECT_EQ(AdminServer::Start(options_, master_).status().code(), Code::kInvalidArgument);
  }
}

// Clients that want to keep their connection, as scrapers do, and ones that never say anything.
TEST_F(AdminServerTest, EndsWithWhomeverIsConnected) {
  Serve();
  httplib::Client scraper(server_->url());
  scraper.set_keep_alive(true);
  ASSERT_EQ(scraper.Get("/metrics")->status, 200);
  ASSERT_EQ(scraper.Get("/metrics")->status, 200);
  const std::string port = server_->url().substr(server_->url().rfind(':') + 1);
  const auto deadline = env::Deadline::AfterMs(60'000);
  auto silent = env::TcpProbe::Connect("127.0.0.1", port, deadline);
  auto slow = env::TcpProbe::Connect("127.0.0.1", port, deadline);
  ASSERT_TRUE(silent.ok() && slow.ok() && slow->Send("GET /met").ok());
  server_->Stop();
  server_->Stop();
  EXPECT_FALSE(scraper.Get("/metrics"));
}

}  // namespace
}  // namespace mooncake::admin
