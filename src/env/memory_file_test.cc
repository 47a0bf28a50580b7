#include "env/memory_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "env/test_folder.h"

namespace mooncake::env {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

uint64_t AllocatedBytes(int fd) {
  struct stat info {};
  MC_CHECK(::fstat(fd, &info) == 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

void Fill(const Mapping& mapping, uint8_t value) {
  std::memset(mapping.data(), value, mapping.size());
}

TEST(MappingTest, AnonymousIsZeroedAndWritable) {
  for (const bool huge : {false, true}) {
    for (const bool populate : {false, true}) {
      auto mapping = Mapping::Anonymous(5'000'000, {.populate = populate, .huge_pages = huge});
      ASSERT_TRUE(mapping.ok()) << mapping.status().ToString();
      EXPECT_EQ(mapping->size(), 5'000'000u);
      EXPECT_EQ(mapping->data()[4'999'999], std::byte{0});
      Fill(*mapping, 7);
      Mapping moved = *std::move(mapping);
      EXPECT_EQ(moved.data()[4'999'999], std::byte{7});
    }
  }
}

TEST(MappingTest, EmptyAndImpossible) {
  auto empty = Mapping::Anonymous(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_FALSE(Mapping::Anonymous(uint64_t{1} << 60).ok());
  const auto bad_fd = Mapping::Map(-1, 0, 4096, MapAccess::kReadOnly);
  EXPECT_THAT(bad_fd.status().message(), HasSubstr("map 4096 bytes"));
  EXPECT_EQ(Mapping::Map(0, UINT64_MAX - 10, 4096, MapAccess::kReadOnly).status().code(),
            Code::kInvalidArgument);
}

// Whether a mapping got huge pages is the kernel's to say; that it could is ours.
TEST(MappingTest, LargeFilesAreMappedWhereHugePagesFit) {
  constexpr uint64_t kHuge = uint64_t{2} << 20;
  const auto file = MemoryFile::CreateAnonymous("arena", 3 * kHuge + 12345);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_GE(AllocatedBytes(file->fd()), 3 * kHuge + 12345);
  for (const bool populate : {false, true}) {
    const auto whole = file->Map(MapAccess::kReadWrite, {.populate = populate});
    ASSERT_TRUE(whole.ok()) << whole.status().ToString();
    EXPECT_EQ(reinterpret_cast<uint64_t>(whole->data()) % kHuge, 0u);
    EXPECT_EQ(whole->size(), 3 * kHuge + 12345);
    for (const std::byte byte : whole->bytes())
      ASSERT_EQ(byte, populate ? std::byte{9} : std::byte{0});
    Fill(*whole, 9);
    const auto part = Mapping::Map(file->fd(), 4096, 2 * kHuge + 1, MapAccess::kReadOnly);
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(reinterpret_cast<uint64_t>(part->data()) % kHuge, 4096u);
    EXPECT_EQ(part->data()[2 * kHuge], std::byte{9});
  }
}

TEST(MemoryFileTest, AllMappingsShareTheBytes) {
  const auto file = MemoryFile::CreateAnonymous("arena", 1'000'003);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(file->size(), 1'000'003u);
  EXPECT_GE(AllocatedBytes(file->fd()), 1'000'003u) << "space must be taken at creation";
  const auto writer = file->Map(MapAccess::kReadWrite);
  const auto reader_fd = file->ReopenReadOnly();
  ASSERT_TRUE(reader_fd.ok()) << reader_fd.status().ToString();
  const auto reader = Mapping::Map(reader_fd->get(), 0, file->size(), MapAccess::kReadOnly);
  ASSERT_TRUE(writer.ok() && reader.ok());
  EXPECT_EQ(reader->data()[1'000'002], std::byte{0});
  Fill(*writer, 42);
  EXPECT_EQ(reader->data()[0], std::byte{42});
  EXPECT_EQ(reader->data()[1'000'002], std::byte{42});
}

TEST(MemoryFileTest, ReadOnlyDescriptorCannotBeWritten) {
  const auto file = MemoryFile::CreateAnonymous("arena", 8192);
  ASSERT_TRUE(file.ok());
  const auto reader_fd = file->ReopenReadOnly();
  ASSERT_TRUE(reader_fd.ok());
  EXPECT_FALSE(Mapping::Map(reader_fd->get(), 0, 8192, MapAccess::kReadWrite).ok());
  EXPECT_EQ(::write(reader_fd->get(), "x", 1), -1);
  const auto reader = Mapping::Map(reader_fd->get(), 0, 8192, MapAccess::kReadOnly);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(::mprotect(reader->data(), 8192, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(::fcntl(reader_fd->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(MemoryFileTest, SizeIsSealed) {
  const auto file = MemoryFile::CreateAnonymous("arena", 8192);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(::ftruncate(file->fd(), 4096), -1);
  EXPECT_EQ(::ftruncate(file->fd(), 16384), -1);
  EXPECT_EQ(::fcntl(file->fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(MemoryFileTest, PunchedRangeReadsAsZerosAndIsFreed) {
  const auto file = MemoryFile::CreateAnonymous("arena", 1 << 20);
  ASSERT_TRUE(file.ok());
  const auto mapping = file->Map(MapAccess::kReadWrite);
  ASSERT_TRUE(mapping.ok());
  Fill(*mapping, 9);
  const uint64_t before = AllocatedBytes(file->fd());
  ASSERT_TRUE(file->PunchHole(4096, 8192).ok());
  EXPECT_EQ(AllocatedBytes(file->fd()), before - 8192);
  for (uint64_t i = 0; i < file->size(); ++i) {
    const bool punched = i >= 4096 && i < 4096 + 8192;
    ASSERT_EQ(mapping->data()[i], std::byte{static_cast<uint8_t>(punched ? 0 : 9)}) << i;
  }
  EXPECT_TRUE(file->PunchHole(0, 0).ok());
  EXPECT_EQ(file->PunchHole(4096, 1 << 20).code(), Code::kInvalidArgument);
  EXPECT_EQ(file->PunchHole(UINT64_MAX, 2).code(), Code::kInvalidArgument);
}

TEST(MemoryFileTest, FilesOutliveTheirOwner) {
  const TestFolder folder;
  const std::string path = folder / "arena";
  {
    const auto file = MemoryFile::CreateFile(path, 100'000);
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_GE(AllocatedBytes(file->fd()), 100'000u);
    const auto mapping = file->Map(MapAccess::kReadWrite, {.populate = true});
    ASSERT_TRUE(mapping.ok());
    Fill(*mapping, 5);
    EXPECT_TRUE(file->Sync().ok());
    EXPECT_EQ(MemoryFile::CreateFile(path, 1).status().code(), Code::kInvalidArgument);
  }
  const auto reader = MemoryFile::OpenFile(path, MapAccess::kReadOnly);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->size(), 100'000u);
  EXPECT_FALSE(reader->Map(MapAccess::kReadWrite).ok());
  const auto mapping = reader->Map(MapAccess::kReadOnly);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(mapping->data()[99'999], std::byte{5});
  EXPECT_EQ(MemoryFile::OpenFile(folder / "none", MapAccess::kReadOnly).status().code(),
            Code::kNotFound);
}

TEST(MemoryFileTest, AdoptChecksTheSize) {
  const auto file = MemoryFile::CreateAnonymous("arena", 8192);
  ASSERT_TRUE(file.ok());
  const auto wrong = MemoryFile::Adopt(*file->ReopenReadOnly(), 4096);
  EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.status().message(), HasSubstr("expected a memory file of 4096 bytes"));
  EXPECT_THAT(wrong.status().message(), HasSubstr("has 8192"));
  const auto right = MemoryFile::Adopt(*file->ReopenReadOnly(), 8192);
  ASSERT_TRUE(right.ok());
  EXPECT_TRUE(right->Map(MapAccess::kReadOnly).ok());
}

TEST(MemoryFileTest, NoSpaceIsAnErrorAtCreation) {
  const TestFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto file = MemoryFile::CreateFile(folder / "arena", 8 << 20);
    const bool told = file.status().code() == Code::kExhausted &&
                      file.status().message().find("8388608 bytes") != std::string::npos;
    ::_exit(told ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
  EXPECT_THAT(*ListFolder(folder.path()), IsEmpty());
  EXPECT_FALSE(MemoryFile::CreateAnonymous("arena", UINT64_MAX).ok());
}

TEST(MemoryFileTest, NothingLeaks) {
  const TestFolder folder;
  const size_t before = OpenFdCount();
  for (int i = 0; i < 20; ++i) {
    const auto file = MemoryFile::CreateAnonymous("arena", 4096);
    const auto disk = MemoryFile::CreateFile(folder / std::to_string(i), 4096);
    ASSERT_TRUE(file.ok() && disk.ok());
    ASSERT_TRUE(file->ReopenReadOnly().ok());
    ASSERT_TRUE(MemoryFile::Adopt(*disk->ReopenReadOnly(), 4096).ok());
    ASSERT_FALSE(MemoryFile::Adopt(*disk->ReopenReadOnly(), 1).ok());
  }
  EXPECT_EQ(OpenFdCount(), before);
}

}  // namespace
}  // namespace mooncake::env
