#include "oplog/snapshot_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "env/test_folder.h"
#include "oplog/snapshot_store.h"

namespace mooncake::oplog {
namespace {

using Records = std::vector<std::pair<std::string, std::string>>;

std::string Build(const Records& records) {
  SnapshotBuilder builder;
  for (const auto& [section, record] : records) builder.Add(section, record);
  return builder.Finish();
}

Result<Records> Read(std::string_view file) {
  Records records;
  MC_RETURN_IF_ERROR(ReadSnapshotFrames(file, [&](std::string_view section, std::string_view r) {
    records.emplace_back(section, r);
    return OkStatus();
  }));
  return records;
}

TEST(SnapshotFrames, GiveBackEveryRecordInOrder) {
  Records records = {{"header", "h"}, {"objects", ""}, {"objects", std::string(1, '\0')}};
  // Several frames of one section, one of them with a record larger than a frame.
  for (int i = 0; i < 40; ++i) {
    records.emplace_back("weights", std::string(300'000 + i, static_cast<char>('a' + i % 26)));
  }
  std::string larger_than_a_frame;
  larger_than_a_frame.resize(9'000'000, 'z');
  records.emplace_back("weights", larger_than_a_frame);
  records.emplace_back("end of it", "x");
  const auto read = Read(Build(records));
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_TRUE(*read == records);
  EXPECT_TRUE(Read(Build({}))->empty());
}

TEST(SnapshotFrames, AnyCutAndAnyFlippedBitIsDamage) {
  const std::string file = Build({{"header", "h"}, {"objects", "one"}, {"objects", "two"}});
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_EQ(Read(file.substr(0, bytes)).status().code(), Code::kCorrupt) << bytes;
  }
  for (size_t at = 0; at < file.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = file;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      EXPECT_EQ(Read(flipped).status().code(), Code::kCorrupt) << at << " bit " << bit;
    }
  }
  const Status longer = Read(file + "x").status();
  EXPECT_EQ(longer.code(), Code::kCorrupt);
  EXPECT_THAT(longer.message(), testing::HasSubstr("1 bytes follow its end"));
  // Nothing is visited of a file whose end is damaged.
  int visited = 0;
  EXPECT_FALSE(
      ReadSnapshotFrames(file.substr(0, file.size() - 1), [&](std::string_view, std::string_view) {
        ++visited;
        return OkStatus();
      }).ok());
  EXPECT_EQ(visited, 0);
}

TEST(FolderSnapshots, KeepWholeFilesByTheirSequence) {
  const env::TestFolder folder;
  FolderSnapshots snapshots(folder / "deep/snapshots");
  EXPECT_TRUE(snapshots.List()->empty()) << "the folder need not be there";
  ASSERT_TRUE(snapshots.Write(120, "later").ok());
  ASSERT_TRUE(snapshots.Write(7, "earlier").ok());
  EXPECT_EQ(*snapshots.List(), (std::vector<uint64_t>{7, 120}));
  EXPECT_EQ(*snapshots.Read(7), "earlier");
  EXPECT_THAT(snapshots.Describe(7), testing::EndsWith("snapshots/00000000000000000007.snapshot"));
  EXPECT_EQ(snapshots.Read(8).status().code(), Code::kNotFound);
  ASSERT_TRUE(snapshots.Remove(7).ok());
  ASSERT_TRUE(snapshots.Remove(7).ok());
  EXPECT_EQ(*snapshots.List(), (std::vector<uint64_t>{120}));
}

}  // namespace
}  // namespace mooncake::oplog
