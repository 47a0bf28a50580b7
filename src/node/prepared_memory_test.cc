#include "node/prepared_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "env/deadline.h"
#include "env/mapping.h"
#include "env/test_folder.h"
#include "node/node.h"

namespace mooncake::node {
namespace {

constexpr uint64_t kMiB = 1 << 20;

bool Eventually(const std::function<bool()>& condition) {
  const env::Deadline deadline = env::Deadline::AfterMs(20'000);
  while (!condition()) {
    if (deadline.Expired()) return false;
    std::this_thread::yield();
  }
  return true;
}

bool AllZero(const env::MemoryFile& file) {
  const auto mapping = file.Map(env::MapAccess::kReadOnly).value();
  return std::all_of(mapping.data(), mapping.data() + file.size(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

TEST(PreparedMemory, HandsOutZeroedSealedFilesOfTheWantedSizeOnce) {
  PreparedMemory memory({.target_bytes = 20 * kMiB, .file_bytes = 8 * kMiB, .quiet_ms = 1},
                        100 * kMiB);
  ASSERT_TRUE(Eventually([&] { return memory.ready_bytes() == 16 * kMiB; }));
  std::vector<env::MemoryFile> taken;
  for (const uint64_t bytes : {8 * kMiB, 3 * kMiB + 4096}) {
    auto file = memory.Take(bytes);
    ASSERT_TRUE(file.has_value());
    EXPECT_EQ(file->size(), bytes);
    struct stat info {};
    ASSERT_EQ(::fstat(file->fd(), &info), 0);
    EXPECT_EQ(static_cast<uint64_t>(info.st_size), bytes);
    EXPECT_TRUE(AllZero(*file));
    EXPECT_NE(::ftruncate(file->fd(), 1), 0) << "its size is sealed";
    EXPECT_NE(::ftruncate(file->fd(), static_cast<off_t>(64 * kMiB)), 0);
    auto mapping = file->Map(env::MapAccess::kReadWrite).value();
    std::fill_n(mapping.data(), bytes, std::byte{0x5a});
    taken.push_back(*std::move(file));
  }
  // New ones, not those.
  ASSERT_TRUE(Eventually([&] { return memory.ready_bytes() == 16 * kMiB; }));
  const auto fresh = memory.Take(8 * kMiB);
  ASSERT_TRUE(fresh.has_value());
  EXPECT_TRUE(AllZero(*fresh));
}

TEST(PreparedMemory, SizesThatDoNotSuitAreLeftToTheCaller) {
  PreparedMemory memory({.target_bytes = 8 * kMiB, .file_bytes = 8 * kMiB, .quiet_ms = 1},
                        100 * kMiB);
  ASSERT_TRUE(Eventually([&] { return memory.ready_bytes() == 8 * kMiB; }));
  EXPECT_FALSE(memory.Take(8 * kMiB + 1).has_value());
  EXPECT_FALSE(memory.Take(2 * kMiB - 1).has_value());
  EXPECT_EQ(memory.ready_bytes(), 8 * kMiB);
  EXPECT_TRUE(memory.Take(2 * kMiB).has_value());
}

TEST(PreparedMemory, NeverHoldsMoreThanTheRoom) {
  PreparedMemory memory({.target_bytes = 32 * kMiB, .file_bytes = 8 * kMiB, .quiet_ms = 1},
                        100 * kMiB);
  ASSERT_TRUE(Eventually([&] { return memory.ready_bytes() == 32 * kMiB; }));
  memory.SetRoom(23 * kMiB);
  EXPECT_EQ(memory.ready_bytes(), 16 * kMiB) << "freed before SetRoom returned";
  memory.SetRoom(0);
  EXPECT_EQ(memory.ready_bytes(), 0u);
  memory.SetRoom(9 * kMiB);
  EXPECT_TRUE(Eventually([&] { return memory.ready_bytes() == 8 * kMiB; }));
}

TEST(PreparedMemory, NothingIsPreparedForLessThanAFile) {
  PreparedMemory memory({.target_bytes = 8 * kMiB - 1, .file_bytes = 8 * kMiB, .quiet_ms = 1},
                        100 * kMiB);
  EXPECT_FALSE(memory.Take(8 * kMiB).has_value());
  EXPECT_EQ(memory.ready_bytes(), 0u);
}

// A node whose whole capacity is prepared can still be filled to its capacity.
TEST(PreparedMemory, TheNodesCapacityHoldsWithIt) {
  constexpr uint64_t kFile = 256 * kMiB;
  auto arenas = ArenaTable::Open("", 2 * kFile, 2 * kFile).value();
  ASSERT_TRUE(Eventually([&] { return arenas->prepared_bytes() == 2 * kFile; }));
  ASSERT_TRUE(arenas->OpenToWrite(1, 1, kFile).ok());
  EXPECT_EQ(arenas->prepared_bytes(), kFile);
  ASSERT_TRUE(arenas->OpenToWrite(1, 2, kMiB).ok());
  EXPECT_EQ(arenas->prepared_bytes(), 0u) << "the rest is less than a file";
  ASSERT_TRUE(arenas->OpenToWrite(1, 3, kFile - kMiB).ok());
  EXPECT_EQ(arenas->used_bytes(), 2 * kFile);
  EXPECT_EQ(arenas->OpenToWrite(1, 4, 1).status().code(), Code::kExhausted);
  ASSERT_TRUE(arenas->DropImport(1).ok());
  EXPECT_TRUE(Eventually([&] { return arenas->prepared_bytes() == 2 * kFile; }));
}

TEST(PreparedMemory, DurableArenasHaveNone) {
  env::TestFolder folder;
  auto arenas = ArenaTable::Open(folder.path() + "/arenas", 1024 * kMiB, 1024 * kMiB).value();
  ASSERT_TRUE(arenas->OpenToWrite(1, 1, 128 * kMiB).ok());
  EXPECT_EQ(arenas->prepared_bytes(), 0u);
}

}  // namespace
}  // namespace mooncake::node
