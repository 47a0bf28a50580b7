#include "node/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "env/file.h"
#include "env/mapping.h"
#include "env/test_folder.h"
#include "node/test_grants.h"

namespace mooncake::node {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

std::unique_ptr<Node> OpenIn(const std::string& folder, bool durable = false,
                             uint64_t capacity = 64 * kMiB) {
  auto node = Node::Open(
      {.folder = folder, .capacity_bytes = capacity, .node_id = "n1", .durable_arenas = durable});
  if (!node.ok()) ADD_FAILURE() << node.status().ToString();
  EXPECT_TRUE((*node)->JoinCluster("cluster").ok());
  return *std::move(node);
}

v1::Grant WriteArena(const Node& node, uint64_t import_id, uint64_t arena_id, uint64_t bytes) {
  return MakeGrant(node, {v1::ACCESS_WRITE, import_id, arena_id, bytes});
}
v1::Grant ReadArena(const Node& node, uint64_t import_id, uint64_t arena_id, uint64_t bytes) {
  return MakeGrant(node, {v1::ACCESS_READ, import_id, arena_id, bytes});
}
v1::Grant MetaWrite(const Node& node, uint64_t import_id) {
  return MakeGrant(node, {v1::ACCESS_METADATA_WRITE, import_id});
}
v1::Grant MetaRead(const Node& node, uint64_t import_id) {
  return MakeGrant(node, {v1::ACCESS_METADATA_READ, import_id});
}

env::Mapping MapAll(const env::UniqueFd& fd, uint64_t bytes, env::MapAccess access) {
  auto mapping = env::Mapping::Map(fd.get(), 0, bytes, access);
  MC_CHECK(mapping.ok());
  return *std::move(mapping);
}

class NodeTest : public testing::TestWithParam<bool> {
 protected:
  bool durable() const { return GetParam(); }
  env::TestFolder folder_;
};

TEST_P(NodeTest, WritersShareAnArenaAndReadersMapItReadOnly) {
  const auto node = OpenIn(folder_.path(), durable());
  const uint64_t bytes = kMiB + 100;
  auto first = node->OpenArena(WriteArena(*node, 1, 11, bytes));
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  auto second = node->OpenArena(WriteArena(*node, 1, 11, bytes));
  ASSERT_TRUE(second.ok());
  {
    const env::Mapping a = MapAll(*first, bytes, env::MapAccess::kReadWrite);
    const env::Mapping b = MapAll(*second, bytes, env::MapAccess::kReadWrite);
    EXPECT_EQ(a.data()[0], std::byte{0});
    std::memset(a.data(), 0x5a, 10);
    std::memset(b.data() + bytes - 10, 0xa5, 10);
  }
  EXPECT_EQ(node->OpenArena(ReadArena(*node, 1, 11, bytes)).status().code(), Code::kNotReady);
  ASSERT_TRUE(node->SealImport(MetaWrite(*node, 1)).ok());
  ASSERT_TRUE(node->SealImport(MetaWrite(*node, 1)).ok());

  const auto reader = node->OpenArena(ReadArena(*node, 1, 11, bytes));
  ASSERT_TRUE(reader.ok()) << reader.status().ToString();
  const env::Mapping read = MapAll(*reader, bytes, env::MapAccess::kReadOnly);
  EXPECT_EQ(read.data()[9], std::byte{0x5a});
  EXPECT_EQ(read.data()[10], std::byte{0});
  EXPECT_EQ(read.data()[bytes - 1], std::byte{0xa5});
  EXPECT_FALSE(env::Mapping::Map(reader->get(), 0, bytes, env::MapAccess::kReadWrite).ok());
}

TEST_P(NodeTest, ASealedImportIsNotOpenedToWrite) {
  const auto node = OpenIn(folder_.path(), durable());
  ASSERT_TRUE(node->OpenArena(WriteArena(*node, 1, 11, kMiB)).ok());
  ASSERT_TRUE(node->SealImport(MetaWrite(*node, 1)).ok());
  const Status again = node->OpenArena(WriteArena(*node, 1, 11, kMiB)).status();
  EXPECT_EQ(again.code(), Code::kConflict);
  EXPECT_THAT(again.message(), HasSubstr("import 1 is sealed"));
  EXPECT_EQ(node->OpenArena(WriteArena(*node, 1, 12, kMiB)).status().code(), Code::kConflict);
  EXPECT_EQ(node->Report()[0].arena_ids, std::vector<uint64_t>{11});
  EXPECT_TRUE(node->Report()[0].sealed);
}

TEST_P(NodeTest, GrantsThatAreRefused) {
  const auto node = OpenIn(folder_.path(), durable());
  const v1::Grant good = WriteArena(*node, 1, 11, kMiB);

  v1::Grant no_mac = good;
  no_mac.clear_mac();
  v1::Grant short_mac = good;
  short_mac.mutable_mac()->pop_back();
  v1::Grant flipped_mac = good;
  (*flipped_mac.mutable_mac())[5] = static_cast<char>(flipped_mac.mac()[5] ^ 1);
  v1::Grant other_arena = good;
  other_arena.set_arena_id(12);
  v1::Grant larger = good;
  larger.set_arena_bytes(2 * kMiB);
  v1::Grant other_import = good;
  other_import.set_import_id(2);
  v1::Grant other_tenant = good;
  other_tenant.set_tenant_id("mallory");
  v1::Grant raised = MetaRead(*node, 1);
  raised.set_access(v1::ACCESS_METADATA_WRITE);
  for (const v1::Grant& forged :
       {no_mac, short_mac, flipped_mac, other_arena, larger, other_import, other_tenant}) {
    const Status status = node->OpenArena(forged).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << forged.ShortDebugString();
    EXPECT_THAT(status.message(), HasSubstr("not authentic"));
  }
  EXPECT_EQ(node->WriteMetadata(raised, "manifest", "x").code(), Code::kInvalidArgument);

  v1::Grant no_access = good;
  no_access.set_access(v1::ACCESS_UNSPECIFIED);
  EXPECT_EQ(node->OpenArena(no_access).status().code(), Code::kInvalidArgument);

  // Authentic, but for something else.
  const Status wrong_kind = node->OpenArena(MetaWrite(*node, 1)).status();
  EXPECT_EQ(wrong_kind.code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong_kind.message(), HasSubstr("expected a grant of WRITE, got METADATA_WRITE"));
  EXPECT_EQ(node->WriteMetadata(MetaRead(*node, 1), "manifest", "x").code(),
            Code::kInvalidArgument);
  EXPECT_EQ(node->ReadMetadata(MetaWrite(*node, 1), "manifest").status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(node->SealImport(good).code(), Code::kInvalidArgument);

  EXPECT_TRUE(node->Report().empty());
  EXPECT_EQ(node->used_bytes(), 0u);

  ASSERT_TRUE(node->OpenArena(good).ok());
  const Status foreign = node->WriteMetadata(
      MakeGrant(*node, {v1::ACCESS_METADATA_WRITE, 1, 0, 0, "mallory"}), "manifest", "x");
  EXPECT_EQ(foreign.code(), Code::kInvalidArgument);
  EXPECT_THAT(foreign.message(), HasSubstr("belongs to tenant default"));
}

TEST_P(NodeTest, AGrantOfAnEarlierInstanceIsRefused) {
  v1::Grant old;
  std::string old_instance;
  {
    const auto node = OpenIn(folder_.path(), durable());
    old = WriteArena(*node, 1, 11, kMiB);
    old_instance = node->instance_id();
  }
  const auto node = OpenIn(folder_.path(), durable());
  EXPECT_EQ(node->node_id(), "n1");
  const Status status = node->OpenArena(old).status();
  if (durable()) {
    // The same instance by name, but the key died with the process.
    EXPECT_EQ(node->instance_id(), old_instance);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
  } else {
    EXPECT_NE(node->instance_id(), old_instance);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr(old_instance));
    EXPECT_THAT(status.message(), HasSubstr(node->instance_id()));
  }
}

TEST_P(NodeTest, CapacityIsCheckedBeforeAByteIsAllocated) {
  const auto node = OpenIn(folder_.path(), durable(), 4 * kMiB);
  ASSERT_TRUE(node->OpenArena(WriteArena(*node, 1, 11, 3 * kMiB + 1)).ok());
  EXPECT_EQ(node->used_bytes(), 3 * kMiB + 4096);
  const Status full = node->OpenArena(WriteArena(*node, 1, 12, kMiB)).status();
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_THAT(full.message(), HasSubstr("needs 1048576 bytes, 1044480 of the node's 4194304"));
  EXPECT_EQ(node->used_bytes(), 3 * kMiB + 4096);
  EXPECT_EQ(node->Report()[0].arena_ids.size(), 1u);
  EXPECT_EQ(node->OpenArena(WriteArena(*node, 1, 11, kMiB)).status().code(), Code::kCorrupt);
  EXPECT_EQ(node->OpenArena(WriteArena(*node, 1, 13, UINT64_MAX)).status().code(),
            Code::kExhausted);
}

TEST_P(NodeTest, WhatIsDroppedReadsAsZerosAndNeverComesBack) {
  const auto node = OpenIn(folder_.path(), durable());
  const v1::Grant write = WriteArena(*node, 1, 11, kMiB);
  const auto writer = node->OpenArena(write);
  ASSERT_TRUE(writer.ok());
  std::memset(MapAll(*writer, kMiB, env::MapAccess::kReadWrite).data(), 0x77, kMiB);
  ASSERT_TRUE(node->WriteMetadata(MetaWrite(*node, 1), "manifest", "m").ok());
  ASSERT_TRUE(node->SealImport(MetaWrite(*node, 1)).ok());
  const auto reader = node->OpenArena(ReadArena(*node, 1, 11, kMiB));
  ASSERT_TRUE(reader.ok());
  const env::Mapping mapped = MapAll(*reader, kMiB, env::MapAccess::kReadOnly);
  ASSERT_EQ(mapped.data()[kMiB / 2], std::byte{0x77});

  ASSERT_TRUE(node->Drop({11, 999}, {}).ok());
  EXPECT_EQ(node->used_bytes(), 0u);
  for (uint64_t at = 0; at < kMiB; ++at) ASSERT_EQ(mapped.data()[at], std::byte{0}) << at;
  EXPECT_EQ(node->OpenArena(ReadArena(*node, 1, 11, kMiB)).status().code(), Code::kNotFound);
  // METADATA of the import stays until the import itself goes.
  EXPECT_EQ(*node->ReadMetadata(MetaRead(*node, 1), "manifest"), "m");

  ASSERT_TRUE(node->Drop({}, {1, 888}).ok());
  EXPECT_TRUE(node->Report().empty());
  EXPECT_EQ(node->OpenArena(write).status().code(), Code::kNotFound);
  EXPECT_EQ(node->OpenArena(WriteArena(*node, 1, 12, kMiB)).status().code(), Code::kNotFound);
  EXPECT_EQ(node->OpenArena(WriteArena(*node, 2, 999, kMiB)).status().code(), Code::kNotFound);
  EXPECT_EQ(node->WriteMetadata(MetaWrite(*node, 1), "manifest", "m").code(), Code::kNotFound);
  EXPECT_EQ(node->SealImport(MetaWrite(*node, 1)).code(), Code::kNotFound);
  EXPECT_EQ(node->ReadMetadata(MetaRead(*node, 1), "manifest").status().code(), Code::kNotFound);
  EXPECT_TRUE(env::ListFolder(folder_ / "metadata")->empty());
  if (durable()) {
    EXPECT_TRUE(env::ListFolder(folder_ / "arenas")->empty());
  }
}

TEST_P(NodeTest, ArenasAreMadeOnceWhoeverOpensThemFirst) {
  const auto node = OpenIn(folder_.path(), durable());
  {
    std::vector<std::jthread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&, i] {
        const auto fd = node->OpenArena(WriteArena(*node, 1, 11, kMiB));
        ASSERT_TRUE(fd.ok()) << fd.status().ToString();
        const env::Mapping mapped = MapAll(*fd, kMiB, env::MapAccess::kReadWrite);
        std::memset(mapped.data() + i * 100, i + 1, 100);
      });
    }
  }
  EXPECT_EQ(node->used_bytes(), kMiB);
  const auto fd = node->OpenArena(WriteArena(*node, 1, 11, kMiB));
  const env::Mapping mapped = MapAll(*fd, kMiB, env::MapAccess::kReadOnly);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(mapped.data()[i * 100 + 99], std::byte(i + 1));
}

INSTANTIATE_TEST_SUITE_P(Arenas, NodeTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Durable" : "Anonymous"; });

TEST(DurableNodeTest, SealedArenasAreThereAfterARestart) {
  const env::TestFolder folder;
  {
    const auto node = OpenIn(folder.path(), true);
    const auto fd = node->OpenArena(WriteArena(*node, 3, 30, kMiB));
    std::memset(MapAll(*fd, kMiB, env::MapAccess::kReadWrite).data(), 0x42, kMiB);
    ASSERT_TRUE(node->OpenArena(WriteArena(*node, 4, 40, kMiB)).ok());
    ASSERT_TRUE(node->WriteMetadata(MetaWrite(*node, 3), "manifest", "m").ok());
    ASSERT_TRUE(node->SealImport(MetaWrite(*node, 3)).ok());
  }
  const auto node = OpenIn(folder.path(), true);
  EXPECT_EQ(node->used_bytes(), 2 * kMiB);
  ASSERT_EQ(node->Report().size(), 2u);
  EXPECT_TRUE(node->Report()[0].sealed);
  EXPECT_EQ(node->Report()[0].arena_ids, std::vector<uint64_t>{30});
  EXPECT_FALSE(node->Report()[1].sealed);
  const auto fd = node->OpenArena(ReadArena(*node, 3, 30, kMiB));
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  EXPECT_EQ(MapAll(*fd, kMiB, env::MapAccess::kReadOnly).data()[kMiB - 1], std::byte{0x42});
  EXPECT_EQ(node->OpenArena(WriteArena(*node, 3, 30, kMiB)).status().code(), Code::kConflict);
  EXPECT_EQ(node->OpenArena(ReadArena(*node, 4, 40, kMiB)).status().code(), Code::kNotReady);
}

TEST(DurableNodeTest, AnArenaFileOfAnotherSizeIsCorrupt) {
  const env::TestFolder folder;
  {
    const auto node = OpenIn(folder.path(), true);
    ASSERT_TRUE(node->OpenArena(WriteArena(*node, 3, 30, kMiB)).ok());
    ASSERT_TRUE(node->SealImport(MetaWrite(*node, 3)).ok());
  }
  std::filesystem::resize_file(folder / "arenas/3/30", kMiB - 1);
  const auto node = OpenIn(folder.path(), true);
  const Status status = node->OpenArena(ReadArena(*node, 3, 30, kMiB)).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("expected 1048576 bytes, got 1048575"));
}

TEST(AnonymousNodeTest, ARestartKeepsMetadataAndLosesArenas) {
  const env::TestFolder folder;
  {
    const auto node = OpenIn(folder.path());
    ASSERT_TRUE(node->OpenArena(WriteArena(*node, 3, 30, kMiB)).ok());
    ASSERT_TRUE(node->WriteMetadata(MetaWrite(*node, 3), "manifest", "m").ok());
    ASSERT_TRUE(node->SealImport(MetaWrite(*node, 3)).ok());
  }
  const auto node = OpenIn(folder.path());
  EXPECT_EQ(node->used_bytes(), 0u);
  ASSERT_EQ(node->Report().size(), 1u);
  EXPECT_TRUE(node->Report()[0].arena_ids.empty());
  EXPECT_EQ(node->Report()[0].metadata_objects, 1u);
  EXPECT_EQ(*node->ReadMetadata(MetaRead(*node, 3), "manifest"), "m");
  EXPECT_EQ(node->OpenArena(ReadArena(*node, 3, 30, kMiB)).status().code(), Code::kNotFound);
}

TEST(NodeFolderTest, OneOwnerAtATimeAndOneNodeForEver) {
  const env::TestFolder folder;
  {
    const auto node = OpenIn(folder.path());
    const Status second = Node::Open({.folder = folder.path(), .capacity_bytes = kMiB}).status();
    EXPECT_EQ(second.code(), Code::kUnavailable);
    EXPECT_THAT(second.message(), HasSubstr(folder.path()));
  }
  const Status other =
      Node::Open({.folder = folder.path(), .capacity_bytes = kMiB, .node_id = "n2"}).status();
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("belongs to node n1, not to n2"));
  EXPECT_EQ(Node::Open({.folder = folder.path(), .capacity_bytes = 0}).status().code(),
            Code::kInvalidArgument);
}

TEST(DroppedIdsTest, ForgetsTheOldestByRefusingAllBelowIt) {
  DroppedIds ids(3);
  for (const uint64_t id : {10, 20, 30}) ids.Add(id);
  EXPECT_TRUE(ids.Contains(10));
  EXPECT_FALSE(ids.Contains(15));
  EXPECT_FALSE(ids.Contains(5));
  ids.Add(40);
  EXPECT_TRUE(ids.Contains(5));
  EXPECT_TRUE(ids.Contains(10));
  EXPECT_FALSE(ids.Contains(15));
  EXPECT_TRUE(ids.Contains(20));
  EXPECT_FALSE(ids.Contains(41));
}

// A crash before the folder says whose it is would leave data that no Master takes in.
TEST(NodeTest, NothingIsTakenInBeforeAClusterIsJoined) {
  const env::TestFolder folder;
  const auto node = Node::Open({.folder = folder.path(), .capacity_bytes = kMiB});
  ASSERT_TRUE(node.ok());
  const v1::Grant grant = MakeGrant(**node, {.access = v1::ACCESS_METADATA_WRITE});
  const Status refused = (*node)->WriteMetadata(grant, "manifest", "m");
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("has not yet written down which cluster"));
  EXPECT_TRUE((*node)->Report().empty());
  ASSERT_TRUE((*node)->JoinCluster("c1").ok());
  EXPECT_TRUE((*node)->WriteMetadata(grant, "manifest", "m").ok());
}

}  // namespace
}  // namespace mooncake::node
