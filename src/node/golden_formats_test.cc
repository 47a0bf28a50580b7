// A node's folder that an earlier build wrote is read.
#include <gtest/gtest.h>

#include "env/test_golden.h"
#include "node/metadata_file.h"
#include "node/node_folder.h"

namespace mooncake::node {
namespace {

using env::kGoldenAdvice;

constexpr char kLongParticipant[] =
    "digests/a-participant-whose-encoded-name-is-longer-than-a-file-";

// Name -> content, of import 7.
std::map<std::string, std::string> Objects() {
  std::string binary;
  for (int i = 0; i < 256; ++i) binary += static_cast<char>(i);
  return {{"manifest", R"({"manifest": "of the golden files"})"},
          {"affinity", ""},
          {"digests/rank%2F0", binary},
          {kLongParticipant + std::string(200, 'x'), "long"}};
}

TEST(GoldenFormats, Written) {
  const std::string target = env::GoldenTarget();
  if (target.empty()) return;
  const std::string folder = target + "/node";
  for (const auto& [name, content] : Objects()) {
    env::WriteGolden(folder + "/metadata/7/" + MetadataFileName(name),
                     EncodeMetadataFile(name, content, Sha256Of(content)));
  }
  env::WriteGolden(folder + "/metadata/7/.sealed", "");
  ASSERT_TRUE(WriteId(folder, kNodeIdFile, "golden-node").ok());
  ASSERT_TRUE(WriteId(folder, kInstanceIdFile, "golden-instance").ok());
  ASSERT_TRUE(WriteId(folder, kClusterIdFile, "00112233445566778899aabbccddeeff").ok());
}

TEST(GoldenFormats, EveryNodeFolderIsRead) {
  const auto versions = env::GoldenVersions(MOONCAKE_SOURCE_DIR);
  for (const auto& [version, root] : versions) {
    const std::string folder = root + "/node";
    SCOPED_TRACE(folder + ": " + kGoldenAdvice);
    const auto view = PeekNodeFolder(folder);
    ASSERT_TRUE(view.ok()) << view.status().ToString();
    EXPECT_EQ(view->cluster_id, "00112233445566778899aabbccddeeff");
    EXPECT_EQ(view->import_ids, std::set<uint64_t>{7});
    EXPECT_EQ(ReadId(folder, kNodeIdFile).value(), "golden-node");
    EXPECT_EQ(ReadId(folder, kInstanceIdFile).value(), "golden-instance");
    for (const auto& [name, content] : Objects()) {
      const std::string file_name = MetadataFileName(name);
      const std::string bytes = env::ReadGolden(folder + "/metadata/7/" + file_name);
      const auto file = DecodeMetadataFile(file_name, bytes);
      ASSERT_TRUE(file.ok()) << file.status().ToString();
      EXPECT_EQ(file->name, name);
      EXPECT_EQ(file->content, content);
      if (version != versions.rbegin()->first) continue;
      EXPECT_TRUE(EncodeMetadataFile(name, content, Sha256Of(content)) == bytes)
          << name << ": written today, it is other bytes";
    }
  }
}

}  // namespace
}  // namespace mooncake::node
