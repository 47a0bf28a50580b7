#include "env/own_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "env/file.h"
#include "env/mapping.h"
#include "env/memory_file.h"

namespace mooncake::env {
namespace {

TEST(OwnMemoryTest, TellsMemoryFromWhatIsNone) {
  OwnMemory memory;
  const std::string text(100'000, 'x');
  auto file = MemoryFile::CreateAnonymous("test", 3 * 4096);
  ASSERT_TRUE(file.ok());
  const auto read_only = file->Map(MapAccess::kReadOnly);
  ASSERT_TRUE(read_only.ok());
  const void* gone = nullptr;
  {
    const auto mapping = Mapping::Anonymous(1 << 20);
    ASSERT_TRUE(mapping.ok());
    gone = mapping->data();
  }
  const std::vector<OwnRange> ranges = {
      {text.data(), text.size()},
      {read_only->data(), read_only->size()},
      {nullptr, 1},
      {nullptr, 0},
      {gone, 1 << 20},
      {reinterpret_cast<const void*>(UINT64_MAX - 5), 100},
      {read_only->data(), uint64_t{1} << 46},
      {text.data() + 5, 1},
  };
  const auto read = memory.Check(ranges, /*write=*/false);
  const std::vector<bool> good = {true, true, false, true, false, false, false, true};
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(read[i].ok(), good[i]) << i << " " << read[i].ToString();
  }
  for (const Status& status : memory.Check(std::span(ranges).first(2), false)) {
    EXPECT_TRUE(status.ok());
  }
  // Whether it can be written is looked at where something else is wrong, too.
  EXPECT_FALSE(memory.Check(ranges, /*write=*/true)[1].ok());
  EXPECT_TRUE(memory.Check(ranges, /*write=*/true)[0].ok());
}

TEST(OwnMemoryTest, ManyRanges) {
  OwnMemory memory;
  const std::string text(5000, 'x');
  std::vector<OwnRange> ranges;
  for (size_t i = 0; i < text.size(); ++i) ranges.push_back({text.data() + i, text.size() - i});
  for (const Status& status : memory.Check(ranges, false)) EXPECT_TRUE(status.ok());
  ranges[4321].address = reinterpret_cast<const void*>(8);
  const auto statuses = memory.Check(ranges, false);
  for (size_t i = 0; i < ranges.size(); ++i) EXPECT_EQ(statuses[i].ok(), i != 4321);
}

}  // namespace
}  // namespace mooncake::env
