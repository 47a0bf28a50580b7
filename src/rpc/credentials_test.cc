// Where credentials come from, what is refused about them, and where a token is not sent.
#include "rpc/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "env/file.h"
#include "env/test_folder.h"
#include "rpc/host_port.h"
#include "rpc/test_authority.h"

namespace mooncake::rpc {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kVariables[] = {
    "MOONCAKE_NODE_TOKEN", "MOONCAKE_NODE_TOKEN_FILE", "MOONCAKE_TOKEN",  "MOONCAKE_TOKEN_FILE",
    "MOONCAKE_TLS_CA",     "MOONCAKE_TLS_CERT",        "MOONCAKE_TLS_KEY"};

class CredentialsTest : public testing::Test {
 protected:
  CredentialsTest() { Forget(); }
  ~CredentialsTest() override { Forget(); }
  static void Forget() {
    for (const char* variable : kVariables) ::unsetenv(variable);
  }
  std::string Write(const std::string& name, const std::string& content, mode_t mode) {
    const std::string path = folder_ / name;
    EXPECT_TRUE(env::WriteFileDurably(path, content).ok());
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static std::string WhyNot(const CredentialSource& source) {
    const auto read = ReadCredentials(source);
    EXPECT_FALSE(read.ok());
    return read.status().ToString();
  }

  env::TestFolder folder_;
};

TEST_F(CredentialsTest, GivenWinsOverTheEnvironmentPartByPart) {
  EXPECT_TRUE(WithEnvironment({}).empty());
  ::setenv("MOONCAKE_TOKEN", "from-env", 1);
  ::setenv("MOONCAKE_TLS_CA", "/env/ca", 1);
  ::setenv("MOONCAKE_TLS_CERT", "/env/cert", 1);
  ::setenv("MOONCAKE_TLS_KEY", "/env/key", 1);
  CredentialSource source = WithEnvironment({});
  EXPECT_EQ(source.token, "from-env");
  EXPECT_EQ(source.tls_ca, "/env/ca");
  EXPECT_EQ(source.tls_cert, "/env/cert");
  EXPECT_EQ(source.tls_key, "/env/key");
  // A token file that is given is not joined by the environment's token.
  source = WithEnvironment({.token_file = "/given", .tls_ca = "/given/ca"});
  EXPECT_EQ(source.token, "");
  EXPECT_EQ(source.token_file, "/given");
  EXPECT_EQ(source.tls_ca, "/given/ca");
}

TEST_F(CredentialsTest, ANodeMayShowAnotherTokenThanTheClientBesideIt) {
  ::setenv("MOONCAKE_TOKEN", "client", 1);
  EXPECT_EQ(WithEnvironment({}, As::kNode).token, "client");
  ::setenv("MOONCAKE_NODE_TOKEN_FILE", "/node", 1);
  EXPECT_EQ(WithEnvironment({}).token, "client");
  const CredentialSource node = WithEnvironment({}, As::kNode);
  EXPECT_EQ(node.token, "");
  EXPECT_EQ(node.token_file, "/node");
  EXPECT_EQ(WithEnvironment({.token = "given"}, As::kNode).token, "given");
}

TEST_F(CredentialsTest, FilesAreReadAndChecked) {
  TestAuthority authority;
  const auto own = authority.Issue("DNS:me");
  const std::string token = Write("token", "secret-token\n", 0400);
  const auto read = ReadCredentials(
      {.token_file = token, .tls_ca = authority.path(), .tls_cert = own.cert, .tls_key = own.key});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->token, "secret-token");
  EXPECT_TRUE(read->tls());
  EXPECT_EQ(read->cert_pem, own.cert_pem);
  EXPECT_EQ(read->key_pem, own.key_pem);
  EXPECT_FALSE(ReadCredentials({})->tls());
}

TEST_F(CredentialsTest, WhatIsWrongIsNamedAndTheTokenIsNot) {
  TestAuthority authority;
  const auto own = authority.Issue("DNS:me");
  const auto other = authority.Issue("DNS:me");
  const std::string text = Write("text", "no pem", 0600);
  const std::string open = Write("open", "secret-token\n", 0644);
  EXPECT_THAT(WhyNot({.token_file = open}), HasSubstr("mode 0644, which lets others read"));
  EXPECT_THAT(WhyNot({.token_file = folder_ / "absent"}), HasSubstr("absent"));
  EXPECT_THAT(WhyNot({.token = "a", .token_file = open}), HasSubstr("one of them says who"));
  for (const char* bad : {"two words", "line\nbreak", "umlaut-\xc3\xa4"}) {
    EXPECT_THAT(WhyNot({.token = bad}), HasSubstr("INVALID_ARGUMENT: token: "));
    EXPECT_THAT(WhyNot({.token = bad}), Not(HasSubstr(bad)));
  }
  EXPECT_THAT(WhyNot({.token_file = Write("empty", "\n", 0600)}), HasSubstr("got 0"));
  EXPECT_THAT(WhyNot({.token_file = Write("long", std::string(2000, 'x'), 0600)}),
              HasSubstr("EXHAUSTED"));
  EXPECT_THAT(WhyNot({.tls_ca = text}), HasSubstr("tls_ca " + text + ": no certificate in PEM"));
  EXPECT_THAT(WhyNot({.tls_ca = authority.path(), .tls_cert = own.cert}),
              HasSubstr("got only the certificate"));
  EXPECT_THAT(WhyNot({.tls_cert = own.cert, .tls_key = own.key}), HasSubstr("needs tls_ca"));
  EXPECT_THAT(WhyNot({.tls_ca = authority.path(), .tls_cert = own.cert, .tls_key = other.key}),
              HasSubstr("the key is not the certificate's"));
  EXPECT_THAT(WhyNot({.tls_ca = authority.path(), .tls_cert = own.cert, .tls_key = text}),
              HasSubstr("no private key in PEM form"));
}

TEST_F(CredentialsTest, ATokenIsNotSentInTheClear) {
  const Credentials plain{.token = "t"};
  for (const char* local : {"127.0.0.1:1", "127.8.0.1:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(CheckMayBeShown(plain, local).ok()) << local;
  }
  for (const char* remote : {"10.0.0.1:1", "master:1", "[::2]:1", "127.evil.example:1",
                             "127.0.0.1.evil.example:1", "127.0.0.1111:1", "localhost.x:1"}) {
    const Status refused = CheckMayBeShown(plain, remote);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << remote;
    EXPECT_THAT(refused.message(), HasSubstr("in the clear"));
    EXPECT_TRUE(CheckMayBeShown({}, remote).ok());
    EXPECT_TRUE(CheckMayBeShown({.token = "t", .ca_pem = "x"}, remote).ok());
  }
}

}  // namespace
}  // namespace mooncake::rpc
