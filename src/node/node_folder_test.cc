// Whose a node's folder is.
#include "node/node_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "env/file.h"
#include "env/test_folder.h"
#include "node/node.h"

namespace mooncake::node {
namespace {

using testing::HasSubstr;

TEST(NodeFolderTest, AViewOfWhatIsThereChangesNothing) {
  const env::TestFolder folder;
  const std::string path = folder / "node";
  auto view = PeekNodeFolder(path);
  ASSERT_TRUE(view.ok()) << view.status().ToString();
  EXPECT_TRUE(view->empty());
  EXPECT_FALSE(env::PathExists(path).value());

  ASSERT_TRUE(env::MakeFolders(path + "/metadata/7").ok());
  ASSERT_TRUE(env::MakeFolders(path + "/arenas/7").ok());
  ASSERT_TRUE(env::MakeFolders(path + "/arenas/12").ok());
  ASSERT_TRUE(env::MakeFolders(path + "/arenas/lost+found").ok());
  view = PeekNodeFolder(path);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(view->import_ids, (std::set<uint64_t>{7, 12}));
  EXPECT_EQ(view->cluster_id, std::nullopt);
  EXPECT_FALSE(view->empty());
  ASSERT_TRUE(WriteId(path, kClusterIdFile, "c1").ok());
  EXPECT_EQ(PeekNodeFolder(path)->cluster_id, "c1");
}

TEST(NodeFolderTest, ADamagedIdIsCorruptAndNamesItsFile) {
  const env::TestFolder folder;
  struct Case {
    std::string content;
    std::string why;
  };
  for (const Case& one : {Case{"", "expected an id of 1 to 128 bytes, got 0"},
                          Case{"\n", "expected an id of 1 to 128 bytes, got 0"},
                          Case{std::string(129, 'n'), "expected an id of 1 to 128 bytes, got 129"},
                          Case{std::string("n\0de", 4), "control characters, got byte 0 at 1"},
                          Case{"n1\nn2\n", "control characters, got byte 10 at 2"},
                          Case{"n\xff", "of UTF-8, got bytes 6eff"}}) {
    for (const std::string file : {"node_id", "cluster_id", "instance_id"}) {
      const std::string path = folder / file;
      ASSERT_TRUE(env::WriteFileDurably(path, one.content).ok());
      const auto opened =
          Node::Open({.folder = folder.path(), .capacity_bytes = 1 << 20, .durable_arenas = true});
      EXPECT_EQ(opened.status().code(), Code::kCorrupt) << file;
      EXPECT_THAT(opened.status().message(), HasSubstr(path + ": expected an id"));
      EXPECT_THAT(opened.status().message(), HasSubstr(one.why));
      EXPECT_EQ(*env::ReadFile(path), one.content);
      ASSERT_TRUE(env::RemoveFile(path).ok());
    }
  }
  // No id that could not be read again is ever written.
  ASSERT_TRUE(env::RemoveFile(folder / "node_id").ok());
  EXPECT_EQ(Node::Open({.folder = folder.path(), .capacity_bytes = 1 << 20, .node_id = "a\nb"})
                .status()
                .code(),
            Code::kInvalidArgument);
  EXPECT_FALSE(env::PathExists(folder / "node_id").value());
}

TEST(NodeFolderTest, DataWhoseNodeIdIsGoneIsNotTakenForAnotherNodes) {
  const env::TestFolder folder;
  ASSERT_TRUE(env::MakeFolders(folder / "metadata/7").ok());
  const Status status = Node::Open({.folder = folder.path(), .capacity_bytes = 1 << 20}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr(folder / "node_id is missing"));
  EXPECT_TRUE(
      Node::Open({.folder = folder.path(), .capacity_bytes = 1 << 20, .node_id = "n1"}).ok());
}

TEST(NodeFolderTest, AFolderJoinsOneCluster) {
  const env::TestFolder folder;
  for (int round = 0; round < 2; ++round) {
    const auto node = Node::Open({.folder = folder.path(), .capacity_bytes = 1 << 20});
    ASSERT_TRUE(node.ok());
    EXPECT_EQ((*node)->cluster_id(), round == 0 ? "" : "c1");
    ASSERT_TRUE((*node)->JoinCluster("c1").ok());
    ASSERT_TRUE((*node)->JoinCluster("c1").ok());
    const Status other = (*node)->JoinCluster("c2");
    EXPECT_EQ(other.code(), Code::kInvalidArgument);
    EXPECT_THAT(other.message(), HasSubstr("belongs to cluster c1, not to c2"));
    EXPECT_EQ((*node)->cluster_id(), "c1");
  }
}

}  // namespace
}  // namespace mooncake::node
