#include "env/disk_reserve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "env/file.h"
#include "env/folder_lock.h"
#include "env/test_folder.h"
#include "env/test_small_disk.h"

namespace mooncake::env {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

TEST(DiskReserveTest, IsKeptOnceAndGivenBackOnce) {
  const TestFolder folder;
  const std::string path = folder / "reserve";
  DiskReserve reserve(path, kMiB);
  ASSERT_TRUE(reserve.Keep().ok());
  ASSERT_TRUE(reserve.Keep().ok());
  EXPECT_GE(DiskBytesBelow(folder.path()).value(), kMiB);
  // Another process's reserve is this one's after a restart.
  DiskReserve next(path, kMiB);
  EXPECT_TRUE(next.Release());
  EXPECT_FALSE(next.Release());
  EXPECT_FALSE(PathExists(path).value());

  DiskReserve none(path, 0);
  EXPECT_TRUE(none.Keep().ok());
  EXPECT_FALSE(none.Release());
  EXPECT_FALSE(PathExists(path).value());
}

TEST(DiskReserveTest, IsWhatAFullDiskHasLeft) {
  MC_ON_SMALL_DISK(4 * kMiB, [](const std::string& folder) {
    DiskReserve reserve(folder + "/reserve", kMiB);
    ASSERT_TRUE(reserve.Keep().ok());
    FillDisk(folder);
    EXPECT_EQ(FreeDiskBytes(folder).value(), 0u);
    const Status refused = WriteFileDurably(folder + "/f", std::string(100'000, 'x'));
    EXPECT_EQ(refused.code(), Code::kExhausted);
    EXPECT_THAT(refused.message(), HasSubstr("ENOSPC"));
    EXPECT_TRUE(reserve.Release());
    EXPECT_TRUE(WriteFileDurably(folder + "/f", std::string(100'000, 'x')).ok());
    const Status kept = reserve.Keep();
    EXPECT_EQ(kept.code(), Code::kExhausted);
    EXPECT_THAT(kept.message(), HasSubstr("a reserve of 1048576 bytes needs 2097152 free, 9"));
    ASSERT_TRUE(RemoveFile(folder + "/filler").ok());
    EXPECT_TRUE(reserve.Keep().ok());
  });
}

// Its file takes the owner's id where the one before it stood; an empty one is just empty.
TEST(DiskReserveTest, AFullDiskCanBeLocked) {
  MC_ON_SMALL_DISK(2 * kMiB, [](const std::string& folder) {
    { ASSERT_TRUE(FolderLock::Acquire(folder).ok()); }
    ASSERT_TRUE(MakeFolders(folder + "/new").ok());
    FillDisk(folder);
    const auto again = FolderLock::Acquire(folder);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(ReadFile(folder + "/LOCK").value(), std::to_string(::getpid()) + "\n");
    EXPECT_TRUE(FolderLock::Acquire(folder + "/new").ok());
  });
}

}  // namespace
}  // namespace mooncake::env
