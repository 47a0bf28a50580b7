#include "env/guarded_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/file.h"
#include "env/test_folder.h"

namespace mooncake::env {
namespace {

using testing::HasSubstr;

class GuardedFileTest : public testing::Test {
 protected:
  void Write(const std::string& content, mode_t mode) {
    ASSERT_TRUE(WriteFileDurably(path_, content).ok());
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
  }

  TestFolder folder_;
  const std::string path_ = folder_ / "file";
};

TEST_F(GuardedFileTest, EveryModeIsJudged) {
  for (mode_t mode = 0; mode <= 0777; ++mode) {
    SCOPED_TRACE(testing::Message() << std::oct << mode);
    Write("content", mode | 0400);
    const auto secret = ReadGuardedFile(path_, Guard::kReading, 100);
    const auto table = ReadGuardedFile(path_, Guard::kWriting, 100);
    EXPECT_EQ(secret.ok(), (mode & 0027) == 0);
    EXPECT_EQ(table.ok(), (mode & 0022) == 0);
    for (const auto& read : {secret, table}) {
      if (read.ok()) {
        EXPECT_EQ(read->content, "content");
      } else {
        EXPECT_EQ(read.status().code(), Code::kInvalidArgument);
        EXPECT_THAT(read.status().message(), HasSubstr("which lets others"));
      }
    }
  }
}

TEST_F(GuardedFileTest, AnotherUsersFileIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  Write("content", 0600);
  ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(ReadGuardedFile(path_, Guard::kReading, 100).status().message(),
              HasSubstr("is user 65534's: expected user 0's or root's"));
}

TEST_F(GuardedFileTest, WhatIsNoFile) {
  EXPECT_EQ(ReadGuardedFile(path_, Guard::kReading, 100).status().code(), Code::kNotFound);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadGuardedFile(path_, Guard::kReading, 100).status().message(),
              HasSubstr("no regular file"));
  ASSERT_TRUE(RemoveFile(path_).ok());
  Write(std::string(101, 'x'), 0600);
  EXPECT_EQ(ReadGuardedFile(path_, Guard::kReading, 100).status().code(), Code::kExhausted);
}

TEST_F(GuardedFileTest, AStampChangesWithTheContent) {
  EXPECT_EQ(StampOf(path_).status().code(), Code::kNotFound);
  Write("one", 0600);
  const FileStamp first = StampOf(path_).value();
  EXPECT_EQ(ReadGuardedFile(path_, Guard::kReading, 100)->stamp, first);
  Write("two", 0600);  // by a rename, as every careful writer does
  EXPECT_NE(StampOf(path_).value(), first);
}

}  // namespace
}  // namespace mooncake::env
