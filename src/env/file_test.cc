#include "env/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "env/errno_status.h"
#include "env/folder_lock.h"
#include "env/test_folder.h"
#include "env/unique_fd.h"

namespace mooncake::env {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(ErrnoStatusTest, CodeAndText) {
  const Status missing = ErrnoStatus(ENOENT, "open /a/b");
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_EQ(missing.message(), "cannot open /a/b: No such file or directory (ENOENT)");
  EXPECT_EQ(ErrnoStatus(ENOSPC, "x").code(), Code::kExhausted);
  EXPECT_EQ(ErrnoStatus(EMFILE, "x").code(), Code::kExhausted);
  EXPECT_EQ(ErrnoStatus(ECONNREFUSED, "x").code(), Code::kUnavailable);
  EXPECT_EQ(ErrnoStatus(EACCES, "x").code(), Code::kInvalidArgument);
  EXPECT_THAT(ErrnoStatus(9999, "x").ToString(),
              HasSubstr("INTERNAL: cannot x: unknown error (errno 9999)"));
}

TEST(UniqueFdTest, OwnsOnce) {
  const size_t before = OpenFdCount();
  {
    UniqueFd a(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(a.valid());
    UniqueFd b(std::move(a));
    EXPECT_FALSE(a.valid());  // NOLINT(bugprone-use-after-move)
    UniqueFd c(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    c = std::move(b);
    EXPECT_EQ(OpenFdCount(), before + 1);
  }
  EXPECT_EQ(OpenFdCount(), before);
}

TEST(FileTest, WriteReadReplace) {
  const TestFolder folder;
  const std::string path = folder / "a";
  const std::string bytes("x\0y", 3);
  ASSERT_TRUE(WriteFileDurably(path, bytes).ok());
  EXPECT_EQ(*ReadFile(path), bytes);
  ASSERT_TRUE(WriteFileDurably(path, "").ok());
  EXPECT_EQ(*ReadFile(path), "");
  const std::string large(3'000'001, 'z');
  ASSERT_TRUE(WriteFileDurably(path, large).ok());
  EXPECT_EQ(*ReadFile(path), large);
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("a"));
}

TEST(FileTest, LongestNameCanBeWritten) {
  const TestFolder folder;
  const std::string name(255, 'n');
  ASSERT_TRUE(WriteFileDurably(folder / name, "1").ok());
  EXPECT_EQ(*ReadFile(folder / name), "1");
  const Status too_long = WriteFileDurably(folder / (name + "n"), "1");
  EXPECT_EQ(too_long.code(), Code::kInvalidArgument);
  EXPECT_THAT(too_long.message(), HasSubstr("ENAMETOOLONG"));
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre(name));
}

TEST(FileTest, FailuresNamePathAndCause) {
  const TestFolder folder;
  const auto missing = ReadFile(folder / "none");
  EXPECT_EQ(missing.status().code(), Code::kNotFound);
  EXPECT_THAT(missing.status().message(), HasSubstr(folder / "none"));
  ASSERT_TRUE(WriteFileDurably(folder / "five", "12345").ok());
  const auto limited = ReadFile(folder / "five", 4);
  EXPECT_EQ(limited.status().code(), Code::kExhausted);
  EXPECT_THAT(limited.status().message(), HasSubstr("5 bytes, at most 4"));
  EXPECT_EQ(*ReadFile(folder / "five", 5), "12345");
  EXPECT_EQ(ReadFile(folder.path()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(WriteFileDurably(folder / "no/such/folder", "1").code(), Code::kNotFound);
  EXPECT_EQ(ListFolder(folder / "none").status().code(), Code::kNotFound);
  EXPECT_EQ(SyncFolder(folder / "none").code(), Code::kNotFound);
}

TEST(FileTest, FailedRenameLeavesTargetAndNoTemporary) {
  const TestFolder folder;
  ASSERT_TRUE(MakeFolders(folder / "target/inside").ok());
  const Status status = WriteFileDurably(folder / "target", "1");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("durable write of " + (folder / "target")));
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("target"));
  EXPECT_THAT(*ListFolder(folder / "target"), ElementsAre("inside"));
}

TEST(FileTest, FullDiskLeavesOldContent) {
  // A write beyond RLIMIT_FSIZE fails with EFBIG as a full disk fails with ENOSPC; in a child,
  // since the limit is the process's.
  const TestFolder folder;
  ASSERT_TRUE(WriteFileDurably(folder / "f", "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 100, .rlim_max = 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = WriteFileDurably(folder / "f", std::string(1000, 'n'));
    ::_exit(status.code() == Code::kExhausted ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(*ReadFile(folder / "f"), "old");
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("f"));
}

TEST(FileTest, ConcurrentWritersNeverBlend) {
  const TestFolder folder;
  const std::string path = folder / "shared";
  std::vector<std::thread> writers;
  for (char c = 'a'; c < 'e'; ++c) {
    writers.emplace_back([&path, c] {
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(WriteFileDurably(path, std::string(10'000, c)).ok());
    });
  }
  for (int i = 0; i < 50; ++i) {
    const auto content = ReadFile(path);
    if (!content.ok()) continue;
    ASSERT_EQ(*content, std::string(10'000, (*content)[0]));
  }
  for (auto& writer : writers) writer.join();
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("shared"));
}

TEST(FileTest, RemovalIsRepeatable) {
  const TestFolder folder;
  ASSERT_TRUE(WriteFileDurably(folder / "f", "1").ok());
  EXPECT_TRUE(RemoveFile(folder / "f").ok());
  EXPECT_TRUE(RemoveFile(folder / "f").ok());
  EXPECT_FALSE(*PathExists(folder / "f"));
  ASSERT_TRUE(MakeFolders(folder / "a/b/c").ok());
  ASSERT_TRUE(WriteFileDurably(folder / "a/b/f", "1").ok());
  ASSERT_EQ(::symlink(folder.path().c_str(), (folder / "a/b/loop").c_str()), 0);
  EXPECT_FALSE(RemoveFile(folder / "a").ok());
  EXPECT_TRUE(RemoveFolderTree(folder / "a").ok());
  EXPECT_TRUE(RemoveFolderTree(folder / "a").ok());
  EXPECT_THAT(*ListFolder(folder.path()), IsEmpty());
}

TEST(FileTest, RemoveTemporariesKeepsTheRest) {
  const TestFolder folder;
  ASSERT_TRUE(WriteFileDurably(folder / "keep", "1").ok());
  ASSERT_TRUE(WriteFileDurably(folder / ".tmp-1-2", "1").ok());
  ASSERT_TRUE(RemoveTemporaries(folder.path()).ok());
  EXPECT_THAT(*ListFolder(folder.path()), ElementsAre("keep"));
}

TEST(FileTest, MakeFolders) {
  const TestFolder folder;
  EXPECT_TRUE(MakeFolders(folder / "x/y/z/").ok());
  EXPECT_TRUE(MakeFolders(folder / "x/y/z").ok());
  EXPECT_TRUE(*PathExists(folder / "x/y/z"));
  ASSERT_TRUE(WriteFileDurably(folder / "file", "1").ok());
  EXPECT_EQ(MakeFolders(folder / "file").code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeFolders(folder / "file/below").code(), Code::kInvalidArgument);
  EXPECT_EQ(MakeFolders("").code(), Code::kInvalidArgument);
  EXPECT_EQ(FolderOf("a/b/c"), "a/b");
  EXPECT_EQ(FolderOf("c"), ".");
  EXPECT_EQ(FolderOf("/c"), "/");
}

TEST(FolderLockTest, SecondOwnerIsToldWhoHoldsIt) {
  const TestFolder folder;
  {
    const auto lock = FolderLock::Acquire(folder.path());
    ASSERT_TRUE(lock.ok()) << lock.status().ToString();
    const auto second = FolderLock::Acquire(folder.path());
    EXPECT_EQ(second.status().code(), Code::kUnavailable);
    EXPECT_EQ(second.status().message(), "the folder " + folder.path() + " is in use by process " +
                                             std::to_string(::getpid()));
    EXPECT_EQ(FolderLock::HolderOf(folder.path()).value(), std::to_string(::getpid()));
  }
  EXPECT_EQ(FolderLock::HolderOf(folder.path()).value(), std::nullopt);
  EXPECT_EQ(FolderLock::HolderOf(folder / "none").value(), std::nullopt);
  auto again = FolderLock::Acquire(folder.path());
  EXPECT_TRUE(again.ok());
  FolderLock moved = *std::move(again);
  EXPECT_FALSE(FolderLock::Acquire(folder.path()).ok());
  EXPECT_EQ(FolderLock::Acquire(folder / "none").status().code(), Code::kNotFound);
}

TEST(FolderLockTest, DeadOwnerFreesItAndForkedChildDoesNotKeepIt) {
  const TestFolder folder;
  pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FolderLock::Acquire(folder.path());
    ::_exit(lock.ok() ? 0 : 1);  // no destructor runs: as if killed
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);

  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(::pipe(pipe_fds.data()), 0);
  {
    auto lock = FolderLock::Acquire(folder.path());
    ASSERT_TRUE(lock.ok());
    child = ::fork();
    if (child == 0) {
      char byte = 0;
      ::close(pipe_fds[1]);
      ::_exit(::read(pipe_fds[0], &byte, 1) == 0 ? 0 : 1);
    }
  }
  EXPECT_TRUE(FolderLock::Acquire(folder.path()).ok()) << "the child's copy kept the lock";
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace mooncake::env
