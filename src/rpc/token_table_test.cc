// The token file: what it may say, and that a change of it counts from the next call on.
#include "rpc/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>
#include <vector>

#include "env/file.h"
#include "env/test_folder.h"
#include "rpc/token_file.h"

namespace mooncake::rpc {
namespace {

using testing::HasSubstr;

const std::string kHeader = "mooncake-tokens 1\n";

std::string Line(const std::string& name, const std::string& role, const std::string& tenant,
                 const std::string& token) {
  return name + " " + role + " " + tenant + " " + ToHex(Sha256Of(token)) + "\n";
}

TEST(TokenTable, WhoShowsWhich) {
  const auto table = TokenTable::Parse(
      kHeader + "# who trains\n\n" + Line("trainer", "client", "blue", "t1") +
      Line("node-7", "node", "*", "t2") + "  " + Line("admin", "operator", "*", "t3") +
      Line("odd", "client", "a%20b%2A", "t4"));
  ASSERT_TRUE(table.ok()) << table.status().ToString();
  EXPECT_EQ(table->size(), 4u);
  EXPECT_EQ(*table->Find("t1"), (Caller{Role::kClient, "blue", "trainer"}));
  EXPECT_EQ(*table->Find("t2"), (Caller{Role::kNode, std::nullopt, "node-7"}));
  EXPECT_EQ(*table->Find("t3"), (Caller{Role::kOperator, std::nullopt, "admin"}));
  EXPECT_EQ(table->Find("t4")->tenant_id, "a b*");
  for (const char* nobody : {"", "t5", "t1 ", "T1"}) EXPECT_EQ(table->Find(nobody), nullptr);
  // Not the hash either, which is what the file gives away.
  EXPECT_EQ(table->Find(ToHex(Sha256Of("t1"))), nullptr);
  EXPECT_EQ(table->Find(std::string(TokenTable::kTokenBytesMax + 1, 't')), nullptr);
  EXPECT_EQ(TokenTable::Parse(kHeader)->size(), 0u);
}

TEST(TokenTable, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& text, const std::string& message) {
    const auto table = TokenTable::Parse(text);
    ASSERT_FALSE(table.ok()) << text;
    EXPECT_EQ(table.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(table.status().message(), HasSubstr(message)) << text;
  };
  const std::string hash = ToHex(Sha256Of("t"));
  refused("", "line 1: expected \"mooncake-tokens 1\", got \"\"");
  refused("mooncake-tokens 2\n", "got \"mooncake-tokens 2\"");
  refused(kHeader + "\na b c d e", "line 3: role: expected client, node or operator, got \"b\"");
  refused(kHeader + "a", "line 2: role: expected client, node or operator, got \"\"");
  refused(kHeader + "a/b client t " + hash, "line 2: name: expected 1 to 128 letters");
  refused(kHeader + std::string(129, 'a') + " client t " + hash, "name: expected 1 to 128");
  refused(kHeader + "a client * " + hash, "a client token is for one tenant, got \"*\"");
  refused(kHeader + "a client", "a client token is for one tenant, got \"\"");
  refused(kHeader + "a client %G0 " + hash, "line 2: tenant: bad percent escape");
  refused(kHeader + "a client %FF " + hash, "tenant");
  refused(kHeader + "a node blue " + hash, "a token for role node is for all of them");
  refused(kHeader + "a operator blue " + hash, "a token for role operator is for all of them");
  refused(kHeader + "a client t", "sha256");
  refused(kHeader + "a client t abc", "sha256");
  refused(kHeader + "a client t " + hash + " more", "got a fifth: \"more\"");
  refused(kHeader + Line("a", "client", "t", "1") + Line("a", "client", "t", "2"),
          "line 3: name: a stands twice");
  refused(kHeader + Line("a", "client", "t", "1") + Line("b", "node", "*", "1"),
          "b and a have the same token");
  std::string many = kHeader;
  for (size_t i = 0; i <= TokenTable::kTokensMax; ++i) {
    many += Line("n" + std::to_string(i), "node", "*", std::to_string(i));
  }
  refused(many, "more than 4096 tokens");
}

class TokenFileTest : public testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode = 0600) {
    ASSERT_TRUE(env::WriteFileDurably(path_, kHeader + text).ok());
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }
  std::unique_ptr<TokenFile> MustOpen() {
    auto file = TokenFile::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    return *std::move(file);
  }

  env::TestFolder folder_;
  const std::string path_ = folder_ / "tokens";
};

TEST_F(TokenFileTest, AChangeCountsFromTheNextCallOn) {
  Write(Line("a", "client", "blue", "t1"));
  const auto file = MustOpen();
  EXPECT_EQ(file->Authenticate("t1")->name, "a");
  const Status none = file->Authenticate("").status();
  EXPECT_EQ(none.code(), Code::kPermissionDenied);
  EXPECT_THAT(none.message(), HasSubstr("no token was shown"));
  const Status unknown = file->Authenticate("t2").status();
  EXPECT_EQ(unknown.code(), Code::kPermissionDenied);
  EXPECT_THAT(unknown.message(), HasSubstr("revoked"));
  Write(Line("b", "client", "red", "t2"));
  EXPECT_EQ(file->Authenticate("t1").status().code(), Code::kPermissionDenied);
  EXPECT_EQ(file->Authenticate("t2")->tenant_id, "red");
}

TEST_F(TokenFileTest, WhatCannotBeUsedChangesNothing) {
  Write(Line("a", "client", "blue", "t1"));
  const auto file = MustOpen();
  Write("a mistake\n");
  EXPECT_TRUE(file->Authenticate("t1").ok());
  EXPECT_THAT(file->Reload().message(), HasSubstr("line 2: role"));
  EXPECT_THAT(file->Reload().message(), HasSubstr(path_));
  Write(Line("b", "operator", "*", "t2"), 0662);
  EXPECT_TRUE(file->Authenticate("t1").ok());
  EXPECT_FALSE(file->Authenticate("t2").ok());
  EXPECT_THAT(file->Reload().message(), HasSubstr("mode 0662, which lets others write it"));
  ASSERT_TRUE(env::RemoveFile(path_).ok());
  EXPECT_TRUE(file->Authenticate("t1").ok());
  EXPECT_TRUE(file->Authenticate("t1").ok());
  EXPECT_EQ(file->Reload().code(), Code::kNotFound);
  Write(Line("b", "operator", "*", "t2"));
  EXPECT_TRUE(file->Authenticate("t2").ok());
  EXPECT_FALSE(file->Authenticate("t1").ok());
}

// Whatever is put in place meanwhile: a token that all contents have is never refused.
TEST_F(TokenFileTest, ManyThreadsSeeOneContentOrTheNext) {
  const std::string kept = Line("kept", "node", "*", "kept");
  Write(kept);
  const auto file = MustOpen();
  std::atomic<bool> stop = false;
  std::atomic<int> refused = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) refused += file->Authenticate("kept").ok() ? 0 : 1;
    });
  }
  for (int i = 0; i < 50; ++i) {
    const std::string name = std::to_string(i);
    Write(kept + Line("n" + name, "client", "t", name));
    EXPECT_EQ(file->Authenticate(name)->name, "n" + name);
    if (i % 10 == 0) {
      EXPECT_TRUE(file->Reload().ok());
    }
  }
  stop = true;
  threads.clear();
  EXPECT_EQ(refused, 0);
}

TEST_F(TokenFileTest, IsRefusedAtTheStart) {
  EXPECT_EQ(TokenFile::Open(path_).status().code(), Code::kNotFound);
  Write("", 0620);
  EXPECT_THAT(TokenFile::Open(path_).status().message(), HasSubstr("mode 0620"));
  Write("", 0644);
  EXPECT_TRUE(TokenFile::Open(path_).ok());
  EXPECT_THAT(TokenFile::Open(folder_.path()).status().message(), HasSubstr("no regular file"));
}

}  // namespace
}  // namespace mooncake::rpc
