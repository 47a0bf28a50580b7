// Ordinary objects at a node: what permits and grants allow, through the Node and over its socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <semaphore>
#include <thread>

#include "env/file.h"
#include "env/host_id.h"
#include "env/mapping.h"
#include "env/test_folder.h"
#include "node/node.h"
#include "node/node_service.h"
#include "node/test_grants.h"
#include "rpc/node_server.h"
#include "rpc/status_proto.h"
#include "rpc/stream_node_channel.h"
#include "transfer/extent_header.h"

namespace mooncake::node {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

std::unique_ptr<Node> OpenIn(const std::string& folder, bool durable = false,
                             uint64_t capacity = 16 * kMiB) {
  auto node = Node::Open(
      {.folder = folder, .capacity_bytes = capacity, .node_id = "n1", .durable_arenas = durable});
  if (!node.ok()) ADD_FAILURE() << node.status().ToString();
  EXPECT_TRUE((*node)->JoinCluster("cluster").ok());
  return *std::move(node);
}

// Every byte tells its object and its place.
std::string ContentOf(uint64_t object_id, uint64_t bytes) {
  std::string content(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i)
    content[i] = static_cast<char>(object_id * 131 + i * 7 + i / 251);
  return content;
}

// A whole object in one piece.
v1::ExtentWrite* AddWhole(const v1::ExtentPermit& permit, v1::WriteExtents* request) {
  v1::ExtentWrite* write = request->add_writes();
  *write->mutable_permit() = permit;
  write->set_last(true);
  write->add_pieces()->set_bytes(permit.bytes());
  request->mutable_content()->append(ContentOf(permit.object_id(), permit.bytes()));
  return write;
}

Status Put(Node& node, const v1::ExtentPermit& permit) {
  v1::WriteExtents request;
  AddWhole(permit, &request);
  const auto results = node.WriteExtents(request, nullptr);
  return results.ok() ? results->front() : results.status();
}

void AddRead(const PermitSpec& spec, v1::ReadExtents* request) {
  v1::ExtentRead* read = request->add_reads();
  read->set_slab_id(spec.slab_id);
  read->set_offset(spec.offset);
  read->set_object_id(spec.object_id);
  read->set_bytes(spec.bytes);
  read->set_count(spec.bytes);
}

Result<std::string> Get(Node& node, const PermitSpec& spec) {
  v1::ReadExtents request;
  *request.add_grants() = MakeSlabGrant(node, spec);
  AddRead(spec, &request);
  MC_ASSIGN_OR_RETURN(v1::NodeReply reply, node.ReadExtents(request));
  MC_RETURN_IF_ERROR(rpc::StatusFromProto(reply.results(0)));
  return std::move(*reply.mutable_content());
}

class NodeExtentsTest : public testing::TestWithParam<bool> {
 protected:
  bool durable() const { return GetParam(); }
  env::TestFolder folder_;
};

TEST_P(NodeExtentsTest, PutsInOneRequestAreJudgedEachByItself) {
  const auto node = OpenIn(folder_.path(), durable());
  const PermitSpec a{.offset = 0, .bytes = 1000, .object_id = 11};
  const PermitSpec b{.offset = 2048, .bytes = 3000, .object_id = 12};
  const PermitSpec outside{.offset = kMiB, .bytes = 10, .object_id = 13};
  const PermitSpec c{.slab_id = 101, .offset = 64, .bytes = 1, .object_id = 14};
  v1::WriteExtents request;
  AddWhole(MakePermit(*node, a), &request)->set_xxh3(77);
  AddWhole(MakePermit(*node, outside), &request);
  AddWhole(MakePermit(*node, b), &request);
  v1::ExtentPermit forged = MakePermit(*node, c);
  forged.set_offset(128);
  AddWhole(forged, &request);
  AddWhole(MakePermit(*node, c), &request);
  const auto results = node->WriteExtents(request, nullptr);
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  std::vector<Code> codes;
  for (const Status& result : *results) codes.push_back(result.code());
  EXPECT_THAT(codes, testing::ElementsAre(Code::kOk, Code::kInvalidArgument, Code::kOk,
                                          Code::kInvalidArgument, Code::kOk));
  EXPECT_EQ(node->used_bytes(), 2 * kMiB);

  v1::ReadExtents reads;
  *reads.add_grants() = MakeSlabGrant(*node, a);
  *reads.add_grants() = MakeSlabGrant(*node, c);
  for (const PermitSpec& spec : {b, outside, a, c}) AddRead(spec, &reads);
  reads.mutable_reads(0)->set_from(2000);
  reads.mutable_reads(0)->set_count(500);
  const auto reply = node->ReadExtents(reads);
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_TRUE(reply->content() ==
              ContentOf(12, 3000).substr(2000, 500) + ContentOf(11, 1000) + ContentOf(14, 1));
  EXPECT_EQ(rpc::StatusFromProto(reply->results(1)).code(), Code::kNotFound);
  EXPECT_FALSE(reply->checksums(0).has_xxh3());
  ASSERT_TRUE(reply->checksums(2).has_xxh3());
  EXPECT_EQ(reply->checksums(2).xxh3(), 77u);
}

TEST_P(NodeExtentsTest, SlabsAreReportedAndDropped) {
  const auto node = OpenIn(folder_.path(), durable());
  const PermitSpec spec{.offset = 0, .bytes = 1000, .object_id = 11};
  ASSERT_TRUE(Put(*node, MakePermit(*node, spec)).ok());
  ASSERT_EQ(node->Report().size(), 1u);
  EXPECT_EQ(node->Report()[0].import_id, 0u);
  EXPECT_EQ(node->Report()[0].arena_ids, std::vector<uint64_t>{100});
  EXPECT_FALSE(node->Report()[0].sealed);
  const auto fd = node->OpenSlab(MakeSlabGrant(*node, spec));
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  EXPECT_FALSE(env::Mapping::Map(fd->get(), 0, kMiB, env::MapAccess::kReadWrite).ok());
  const auto mapped = env::Mapping::Map(fd->get(), 0, kMiB, env::MapAccess::kReadOnly);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ(std::memcmp(mapped->data() + 64, ContentOf(11, 1000).data(), 1000), 0);

  // Import 0 is none: a Master that means to drop an import must not take all slabs along.
  EXPECT_EQ(node->Drop({}, {0}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(Get(*node, spec).value() == ContentOf(11, 1000));

  ASSERT_TRUE(node->Drop({100, 999}, {}).ok());
  EXPECT_EQ(node->used_bytes(), 0u);
  EXPECT_TRUE(node->Report().empty());
  for (uint64_t at = 0; at < 2000; ++at) ASSERT_EQ(mapped->data()[at], std::byte{0}) << at;
  // An id never comes back, also one that was dropped before it was made.
  EXPECT_EQ(Get(*node, spec).status().code(), Code::kNotFound);
  EXPECT_EQ(Put(*node, MakePermit(*node, spec)).code(), Code::kNotFound);
  EXPECT_EQ(Put(*node, MakePermit(*node, {.slab_id = 999, .bytes = 10, .object_id = 12})).code(),
            Code::kNotFound);
  EXPECT_EQ(node->OpenSlab(MakeSlabGrant(*node, spec)).status().code(), Code::kNotFound);
  if (durable()) {
    EXPECT_EQ(*env::ListFolder(folder_ / "slabs"), std::vector<std::string>{"in_use"});
    EXPECT_TRUE(env::ListFolder(folder_ / "arenas/0")->empty());
  }
}

TEST_P(NodeExtentsTest, ASlabIsOfOneTenant) {
  const auto node = OpenIn(folder_.path(), durable());
  const PermitSpec mine{.offset = 0, .bytes = 100, .object_id = 11};
  ASSERT_TRUE(Put(*node, MakePermit(*node, mine)).ok());
  PermitSpec theirs{.offset = 4096, .bytes = 100, .object_id = 12, .tenant = "mallory"};
  const Status refused = Put(*node, MakePermit(*node, theirs));
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("slab 100 belongs to tenant default"));
  EXPECT_EQ(node->OpenSlab(MakeSlabGrant(*node, theirs)).status().code(), Code::kInvalidArgument);
  PermitSpec read = mine;
  read.tenant = "mallory";
  EXPECT_EQ(Get(*node, read).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(Get(*node, mine).value() == ContentOf(11, 100));
}

TEST_P(NodeExtentsTest, EveryFieldOfAPermitIsProved) {
  const auto node = OpenIn(folder_.path(), durable());
  const v1::ExtentPermit good = MakePermit(*node, {.offset = 64, .bytes = 100, .object_id = 11});
  std::vector<v1::ExtentPermit> forged(9, good);
  forged[0].set_tenant_id("mallory");
  forged[1].set_slab_id(101);
  forged[2].set_slab_bytes(2 * kMiB);
  forged[3].set_offset(128);
  forged[4].set_bytes(101);
  forged[5].set_object_id(12);
  forged[6].clear_mac();
  forged[7].mutable_mac()->pop_back();
  (*forged[8].mutable_mac())[31] = static_cast<char>(good.mac()[31] ^ 1);
  for (const v1::ExtentPermit& permit : forged) {
    const Status status = Put(*node, permit);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << permit.ShortDebugString();
    EXPECT_THAT(status.message(), HasSubstr("is not authentic"));
  }
  v1::ExtentPermit other = good;
  other.set_instance_id("another");
  EXPECT_EQ(Put(*node, other).code(), Code::kUnavailable);
  EXPECT_TRUE(node->Report().empty());
  EXPECT_EQ(node->used_bytes(), 0u);
  EXPECT_TRUE(Put(*node, good).ok());
}

TEST_P(NodeExtentsTest, GrantsThatAreRefused) {
  const auto node = OpenIn(folder_.path(), durable());
  const PermitSpec spec{.offset = 0, .bytes = 100, .object_id = 11};
  ASSERT_TRUE(Put(*node, MakePermit(*node, spec)).ok());
  const v1::Grant good = MakeSlabGrant(*node, spec);
  const auto refused = [&](const v1::Grant& grant, Code code) {
    EXPECT_EQ(node->OpenSlab(grant).status().code(), code) << grant.ShortDebugString();
    v1::ReadExtents request;
    *request.add_grants() = grant;
    AddRead(spec, &request);
    const auto reply = node->ReadExtents(request);
    if (reply.ok()) {
      EXPECT_NE(reply->results(0).code(), 0u) << grant.ShortDebugString();
      EXPECT_TRUE(reply->content().empty());
    }
  };
  v1::Grant forged = good;
  forged.set_arena_bytes(2 * kMiB);
  refused(forged, Code::kInvalidArgument);
  forged = good;
  forged.set_tenant_id("mallory");
  refused(forged, Code::kInvalidArgument);
  forged = good;
  forged.set_instance_id("another");
  refused(forged, Code::kUnavailable);
  // Authentic, but for something else.
  GrantSpec other{v1::ACCESS_SLAB_READ, 0, 100, kMiB + 1};
  refused(MakeGrant(*node, other), Code::kCorrupt);
  other = {v1::ACCESS_SLAB_READ, 7, 100, kMiB};
  refused(MakeGrant(*node, other), Code::kInvalidArgument);
  other = {v1::ACCESS_READ, 0, 100, kMiB};
  refused(MakeGrant(*node, other), Code::kInvalidArgument);
  other = {v1::ACCESS_SLAB_READ, 0, 555, kMiB};
  refused(MakeGrant(*node, other), Code::kNotFound);
  // Nobody gets a slab to write, nor as an import's arena.
  EXPECT_EQ(node->OpenArena(MakeGrant(*node, {v1::ACCESS_WRITE, 0, 100, kMiB})).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(node->OpenArena(good).status().code(), Code::kInvalidArgument);
  EXPECT_NE(node->OpenArena(MakeGrant(*node, {v1::ACCESS_WRITE, 7, 100, kMiB})).status().code(),
            Code::kOk);
  EXPECT_EQ(node->SealImport(MakeGrant(*node, {v1::ACCESS_METADATA_WRITE, 0})).code(),
            Code::kInvalidArgument);
  // A read without a grant for its slab.
  v1::ReadExtents request;
  *request.add_grants() = good;
  AddRead(spec, &request);
  request.mutable_reads(0)->set_slab_id(101);
  EXPECT_EQ(rpc::StatusFromProto(node->ReadExtents(request)->results(0)).code(),
            Code::kInvalidArgument);
}

TEST_P(NodeExtentsTest, CapacityIsTheNodes) {
  const auto node = OpenIn(folder_.path(), durable(), 2 * kMiB);
  ASSERT_TRUE(Put(*node, MakePermit(*node, {.bytes = 10, .object_id = 1})).ok());
  const PermitSpec large{.slab_id = 101, .slab_bytes = 2 * kMiB, .bytes = 10, .object_id = 2};
  const Status full = Put(*node, MakePermit(*node, large));
  EXPECT_EQ(full.code(), Code::kExhausted);
  EXPECT_THAT(full.message(), HasSubstr("needs 2097152 bytes, 1048576 of the node's 2097152"));
  EXPECT_EQ(node->Report()[0].arena_ids, std::vector<uint64_t>{100});
  ASSERT_TRUE(node->Drop({100}, {}).ok());
  EXPECT_TRUE(Put(*node, MakePermit(*node, large)).ok());
}

INSTANTIATE_TEST_SUITE_P(Slabs, NodeExtentsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Durable" : "Anonymous"; });

// What a request as a whole may be.
TEST(NodeExtentLimits, RequestsThatAreRefused) {
  const env::TestFolder folder;
  const auto node = OpenIn(folder.path());
  const PermitSpec spec{.offset = 0, .bytes = 100, .object_id = 11};
  v1::WriteExtents write;
  const auto why = [&] { return node->WriteExtents(write, nullptr).status().message(); };
  EXPECT_THAT(why(), HasSubstr("expected 1 to 65536 writes, got 0"));
  AddWhole(MakePermit(*node, spec), &write);
  write.mutable_content()->pop_back();
  EXPECT_THAT(why(), HasSubstr("the pieces are 100 bytes, the content is 99"));
  write.mutable_writes(0)->mutable_pieces(0)->set_bytes(UINT64_MAX);
  write.mutable_writes(0)->add_pieces()->set_bytes(100);
  EXPECT_THAT(why(), HasSubstr("at most 234881024 bytes, got 18446744073709551615"));
  write.set_pull(true);
  EXPECT_THAT(why(), HasSubstr("expected no content beside pull, got 99 bytes"));
  write.clear_content();
  const Status pull = node->WriteExtents(write, nullptr).status();
  EXPECT_EQ(pull.code(), Code::kUnsupported);
  for (int i = 0; i < 65'536; ++i) write.add_writes();
  EXPECT_THAT(why(), HasSubstr("got 65537"));
  EXPECT_TRUE(node->Report().empty());

  v1::ReadExtents read;
  EXPECT_EQ(node->ReadExtents(read).status().code(), Code::kInvalidArgument);
  for (int i = 0; i < 3; ++i) AddRead({.bytes = 100 << 20, .object_id = 1}, &read);
  const Status large = node->ReadExtents(read).status();
  EXPECT_EQ(large.code(), Code::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("at most 234881024 bytes, got 314572800"));
}

TEST(NodeExtentLimits, NothingIsTakenInBeforeAClusterIsJoined) {
  const env::TestFolder folder;
  auto node = Node::Open({.folder = folder.path(), .capacity_bytes = 4 * kMiB});
  ASSERT_TRUE(node.ok());
  const PermitSpec spec{.offset = 0, .bytes = 100, .object_id = 11};
  EXPECT_EQ(Put(**node, MakePermit(**node, spec)).code(), Code::kUnavailable);
  EXPECT_EQ(Get(**node, spec).status().code(), Code::kUnavailable);
  EXPECT_EQ((*node)->OpenSlab(MakeSlabGrant(**node, spec)).status().code(), Code::kUnavailable);
}

TEST(SlabTableTest, DropRefusesWhileSomebodyWorksInTheSlab) {
  std::binary_semaphore inside(0);
  std::binary_semaphore go_on(0);
  auto arenas = ArenaTable::Open("", 4 * kMiB).value();
  auto slabs = SlabTable::Open(*arenas, "").value();
  std::thread slow([&] {
    auto use = slabs->Enter(100, "default", kMiB, /*make=*/true);
    EXPECT_TRUE(use.ok()) << use.status().ToString();
    inside.release();
    go_on.acquire();
  });
  inside.acquire();
  const Status busy = slabs->Drop(100);
  EXPECT_EQ(busy.code(), Code::kBusy);
  EXPECT_THAT(busy.message(), HasSubstr("slab 100: 1 calls work in it"));
  EXPECT_EQ(arenas->used_bytes(), kMiB);
  // Nobody new comes in meanwhile.
  EXPECT_EQ(slabs->Enter(100, "default", kMiB, true).status().code(), Code::kNotFound);
  go_on.release();
  slow.join();
  EXPECT_TRUE(slabs->Drop(100).ok());
  EXPECT_EQ(arenas->used_bytes(), 0u);
}

// ---- durable slabs ----

TEST(DurableSlabs, AreThereAfterARestart) {
  const env::TestFolder folder;
  const PermitSpec a{.offset = 0, .bytes = 1000, .object_id = 11};
  const PermitSpec b{.offset = 1024 + 64, .bytes = 1000, .object_id = 12};
  v1::ExtentPermit old;
  {
    const auto node = OpenIn(folder.path(), true);
    old = MakePermit(*node, b);
    ASSERT_TRUE(Put(*node, MakePermit(*node, a)).ok());
    ASSERT_TRUE(Put(*node, old).ok());
    EXPECT_TRUE(*env::PathExists(folder / "slabs/in_use"));
  }
  EXPECT_FALSE(*env::PathExists(folder / "slabs/in_use"));
  const auto node = OpenIn(folder.path(), true);
  EXPECT_EQ(node->used_bytes(), kMiB);
  EXPECT_EQ(node->Report()[0].arena_ids, std::vector<uint64_t>{100});
  // The tenant is that of whom comes first, as at the beginning.
  EXPECT_TRUE(Get(*node, a).value() == ContentOf(11, 1000));
  PermitSpec other = b;
  other.tenant = "mallory";
  EXPECT_EQ(Get(*node, other).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Put(*node, old).code(), Code::kInvalidArgument);  // its key died with the process
  // What the process before filled gives way, and is no longer there for whoever maps the slab.
  const auto fd = node->OpenSlab(MakeSlabGrant(*node, b));
  const auto mapped = env::Mapping::Map(fd->get(), 0, kMiB, env::MapAccess::kReadOnly);
  const auto id_at = [&](uint64_t at) {
    uint64_t id = 0;
    std::memcpy(&id, mapped->data() + at, sizeof id);
    return id;
  };
  ASSERT_EQ(id_at(0), 11u);
  ASSERT_TRUE(Put(*node, MakePermit(*node, {.offset = 512, .bytes = 64, .object_id = 13})).ok());
  EXPECT_EQ(id_at(0), 0u);
  EXPECT_EQ(id_at(512), 13u);
  EXPECT_EQ(id_at(1088), 12u);
  EXPECT_EQ(Get(*node, a).status().code(), Code::kNotFound);
  EXPECT_TRUE(Get(*node, b).value() == ContentOf(12, 1000));
}

// A killed process leaves its mark, with this boot's id: all its stores are there.
TEST(DurableSlabs, OfAKilledProcessAreThereAndOfAStoppedMachineNot) {
  const env::TestFolder folder;
  const PermitSpec spec{.offset = 0, .bytes = 1000, .object_id = 11};
  {
    const auto node = OpenIn(folder.path(), true);
    ASSERT_TRUE(Put(*node, MakePermit(*node, spec)).ok());
  }
  ASSERT_TRUE(env::WriteFileDurably(folder / "slabs/in_use", env::HostId()).ok());
  {
    const auto node = OpenIn(folder.path(), true);
    EXPECT_TRUE(Get(*node, spec).value() == ContentOf(11, 1000));
  }
  ASSERT_TRUE(env::WriteFileDurably(folder / "slabs/in_use", "another boot").ok());
  const auto node = OpenIn(folder.path(), true);
  EXPECT_TRUE(node->Report().empty());
  EXPECT_EQ(node->used_bytes(), 0u);
  EXPECT_EQ(Get(*node, spec).status().code(), Code::kNotFound);
  EXPECT_EQ(*env::ListFolder(folder / "slabs"), std::vector<std::string>{"in_use"});
}

TEST(DurableSlabs, WithoutTheirIndexAreGivenUp) {
  const env::TestFolder folder;
  const PermitSpec a{.slab_id = 100, .bytes = 10, .object_id = 11};
  const PermitSpec b{.slab_id = 101, .bytes = 10, .object_id = 12};
  {
    const auto node = OpenIn(folder.path(), true);
    ASSERT_TRUE(Put(*node, MakePermit(*node, a)).ok());
    ASSERT_TRUE(Put(*node, MakePermit(*node, b)).ok());
  }
  ASSERT_TRUE(env::RemoveFile(folder / "slabs/100").ok());
  ASSERT_TRUE(env::WriteFileDurably(folder / "slabs/555", "of a slab that is gone").ok());
  const auto node = OpenIn(folder.path(), true);
  EXPECT_EQ(node->Report()[0].arena_ids, std::vector<uint64_t>{101});
  EXPECT_TRUE(Get(*node, b).value() == ContentOf(12, 10));
  EXPECT_FALSE(*env::PathExists(folder / "slabs/555"));
}

// ---- over the socket ----

class NodeExtentsOverSocket : public testing::Test {
 protected:
  NodeExtentsOverSocket() {
    server_ = rpc::NodeServer::StartUnix(folder_ / "s", service_).value();
    channel_ = rpc::StreamNodeChannel::ConnectUnix(folder_ / "s", Soon()).value();
  }
  static rpc::CallBounds Soon() { return {env::Deadline::AfterMs(20'000), {}}; }
  // As AddWhole, but for the node to fetch from `content`.
  static void AddPulled(const v1::ExtentPermit& permit, const std::string& content,
                        v1::WriteExtents* request) {
    request->set_pull(true);
    v1::ExtentWrite* write = request->add_writes();
    *write->mutable_permit() = permit;
    write->set_last(true);
    // In two pieces, the second one first.
    const auto address = reinterpret_cast<uint64_t>(content.data());
    const uint64_t half = content.size() / 2;
    v1::ExtentWrite::Piece* piece = write->add_pieces();
    piece->set_at(half);
    piece->set_bytes(content.size() - half);
    piece->set_address(address + half);
    piece = write->add_pieces();
    piece->set_bytes(half);
    piece->set_address(address);
  }

  env::TestFolder folder_;
  std::unique_ptr<Node> node_ = OpenIn(folder_.path());
  NodeService service_{*node_};
  std::unique_ptr<rpc::NodeServer> server_;
  std::shared_ptr<rpc::StreamNodeChannel> channel_;
};

TEST_F(NodeExtentsOverSocket, ContentAndDescriptorsTravel) {
  const PermitSpec spec{.offset = 128, .bytes = 500'000, .object_id = 11};
  v1::WriteExtents write;
  AddWhole(MakePermit(*node_, spec), &write)->set_xxh3(5);
  const auto results = channel_->WriteExtents(write, Soon());
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  EXPECT_EQ(*results, std::vector<Status>{OkStatus()});

  v1::ReadExtents read;
  *read.add_grants() = MakeSlabGrant(*node_, spec);
  AddRead(spec, &read);
  const auto reply = channel_->ReadExtents(read, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_TRUE(reply->content() == ContentOf(11, 500'000));
  EXPECT_EQ(reply->checksums(0).xxh3(), 5u);

  const auto fd = channel_->OpenSlab(MakeSlabGrant(*node_, spec), Soon());
  ASSERT_TRUE(fd.ok()) << fd.status().ToString();
  const auto mapped = env::Mapping::Map(fd->get(), 0, kMiB, env::MapAccess::kReadOnly);
  EXPECT_EQ(std::memcmp(mapped->data() + 192, ContentOf(11, 500'000).data(), 500'000), 0);

  // Refused before it is sent, and by a node that it was sent to nonetheless.
  read.mutable_reads(0)->set_count(uint64_t{1} << 40);
  const Status large = channel_->ReadExtents(read, Soon()).status();
  EXPECT_EQ(large.code(), Code::kInvalidArgument);
  EXPECT_THAT(large.message(), HasSubstr("at most 234881024 bytes, got 1099511627776"));
}

TEST_F(NodeExtentsOverSocket, TheNodeFetchesWhatTheWriterHas) {
  const PermitSpec spec{.offset = 0, .bytes = 700'001, .object_id = 11};
  const std::string content = ContentOf(11, spec.bytes);
  v1::WriteExtents write;
  AddPulled(MakePermit(*node_, spec), content, &write);
  const auto results = channel_->WriteExtents(write, Soon());
  ASSERT_TRUE(results.ok()) << results.status().ToString();
  EXPECT_TRUE(results->front().ok()) << results->front().ToString();
  EXPECT_TRUE(Get(*node_, spec).value() == content);

  // Memory that the writer does not have: nothing is readable, and the put can be tried again.
  const PermitSpec next{.offset = 0, .bytes = 100, .object_id = 12};
  v1::WriteExtents bad;
  AddPulled(MakePermit(*node_, next), std::string(100, 'x'), &bad);
  bad.mutable_writes(0)->mutable_pieces(1)->set_address(64);
  const auto refused = channel_->WriteExtents(bad, Soon());
  ASSERT_TRUE(refused.ok());
  EXPECT_EQ(refused->front().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused->front().message(), HasSubstr("read 50 bytes at address 64"));
  EXPECT_EQ(Get(*node_, next).status().code(), Code::kNotFound);
  ASSERT_TRUE(Put(*node_, MakePermit(*node_, next)).ok());
  EXPECT_TRUE(Get(*node_, next).value() == ContentOf(12, 100));
}

// Which process is read does not depend on who opened the connection that a child inherits.
TEST_F(NodeExtentsOverSocket, AForkedWriterIsReadItself) {
  const PermitSpec spec{.offset = 0, .bytes = 5000, .object_id = 11};
  std::string content(spec.bytes, 'p');
  v1::WriteExtents write;
  AddPulled(MakePermit(*node_, spec), content, &write);
  v1::ReadExtents nothing;
  (void)channel_->ReadExtents(nothing, Soon());
  const pid_t child = ::fork();
  if (child == 0) {
    content.replace(0, content.size(), ContentOf(11, spec.bytes));  // in place
    const auto results = channel_->WriteExtents(write, Soon());
    ::_exit(results.ok() ? static_cast<int>(results->front().code()) : 100);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(Get(*node_, spec).value() == ContentOf(11, spec.bytes));
}

TEST_F(NodeExtentsOverSocket, OverTcpWhatNeedsNoMemoryInCommon) {
  auto server = rpc::NodeServer::StartTcp("127.0.0.1:0", "", service_);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto channel = rpc::StreamNodeChannel::ConnectTcp((*server)->address(), Soon());
  ASSERT_TRUE(channel.ok()) << channel.status().ToString();
  const PermitSpec spec{.offset = 128, .bytes = 500'000, .object_id = 11};
  v1::WriteExtents write;
  AddWhole(MakePermit(*node_, spec), &write);
  const auto written = (*channel)->WriteExtents(write, Soon());
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_EQ(*written, std::vector<Status>{OkStatus()});
  v1::ReadExtents read;
  *read.add_grants() = MakeSlabGrant(*node_, spec);
  AddRead(spec, &read);
  const auto reply = (*channel)->ReadExtents(read, Soon());
  ASSERT_TRUE(reply.ok()) << reply.status().ToString();
  EXPECT_TRUE(reply->content() == ContentOf(11, 500'000));

  const Status slab = (*channel)->OpenSlab(MakeSlabGrant(*node_, spec), Soon()).status();
  EXPECT_EQ(slab.code(), Code::kUnsupported);
  EXPECT_THAT(slab.message(), HasSubstr("mapped by processes of its host alone"));
  const v1::Grant arena = MakeGrant(*node_, {v1::ACCESS_WRITE, 7, 8, kMiB});
  EXPECT_EQ((*channel)->OpenArena(arena, Soon()).status().code(), Code::kUnsupported);
  EXPECT_EQ(node_->used_bytes(), kMiB);
  v1::WriteExtents pulled;
  const std::string content(100, 'x');
  AddPulled(MakePermit(*node_, {.offset = 0, .bytes = 100, .object_id = 12}), content, &pulled);
  EXPECT_EQ((*channel)->WriteExtents(pulled, Soon()).status().code(), Code::kUnsupported);

  // Without a permit or grant nothing is had.
  write.mutable_writes(0)->mutable_permit()->set_object_id(99);
  EXPECT_EQ((*channel)->WriteExtents(write, Soon())->front().code(), Code::kInvalidArgument);
  read.clear_grants();
  EXPECT_TRUE((*channel)->ReadExtents(read, Soon())->content().empty());
  EXPECT_EQ((*channel)->WriteMetadata({}, "manifest", "x", Soon()).code(), Code::kUnavailable);
}

}  // namespace
}  // namespace mooncake::node
