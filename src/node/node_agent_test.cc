#include "node/node_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "env/test_folder.h"
#include "model/grant.h"
#include "rpc/status_proto.h"
#include "rpc/test_master.h"

namespace mooncake::node {
namespace {

using testing::HasSubstr;

env::Deadline Soon() { return env::Deadline::AfterMs(10'000); }

// The node half of a Master, as a script that the test writes.
class ScriptedMaster final : public rpc::EmptyMaster {
 public:
  v1::RegisterNodeReply RegisterNode(const v1::RegisterNodeRequest& request) override {
    std::lock_guard lock(mutex);
    v1::RegisterNodeReply reply;
    registered = request;
    rpc::SetStatus(reply.mutable_status(), reachable ? refusal : Unavailable("no Master"));
    if (!reachable || !refusal.ok()) return reply;
    known = true;
    ++registrations;
    reply.set_report_interval_ms(1);
    reply.set_cluster_id(cluster_id);
    return reply;
  }
  v1::ReportNodeReply ReportNode(const v1::ReportNodeRequest& request) override {
    std::lock_guard lock(mutex);
    v1::ReportNodeReply reply;
    if (!reachable) {
      rpc::SetStatus(reply.mutable_status(), Unavailable("no Master"));
      return reply;
    }
    if (!known) {
      rpc::SetStatus(reply.mutable_status(), NotFound("register first"));
      return reply;
    }
    last_report = request;
    for (const auto& held : request.held()) {
      for (const uint64_t arena_id : held.arena_ids()) {
        if (unwanted_arenas.contains(arena_id)) reply.add_drop_arena_ids(arena_id);
      }
      if (unwanted_imports.contains(held.import_id())) reply.add_drop_import_ids(held.import_id());
    }
    return reply;
  }

  std::mutex mutex;
  bool reachable = true;
  bool known = false;
  Status refusal;
  std::string cluster_id = "c1";
  int registrations = 0;
  std::set<uint64_t> unwanted_arenas;
  std::set<uint64_t> unwanted_imports;
  v1::RegisterNodeRequest registered;
  v1::ReportNodeRequest last_report;
};

class NodeAgentTest : public testing::Test {
 protected:
  NodeAgentTest() {
    auto opened = Node::Open({.folder = folder_.path(), .capacity_bytes = 1 << 20});
    MC_CHECK(opened.ok());
    node_ = *std::move(opened);
  }

  v1::Grant WriteGrant(uint64_t import_id, uint64_t arena_id, v1::Access access) {
    v1::Grant grant;
    grant.set_instance_id(node_->instance_id());
    grant.set_tenant_id("t");
    grant.set_import_id(import_id);
    grant.set_arena_id(arena_id);
    grant.set_arena_bytes(arena_id == 0 ? 0 : 4096);
    grant.set_access(access);
    const Sha256Digest mac =
        model::GrantMac(node_->grant_key(), {node_->instance_id(), "t", model::ImportId(import_id),
                                             model::ArenaId(arena_id), grant.arena_bytes(),
                                             static_cast<model::Access>(access)});
    grant.set_mac(mac.data(), mac.size());
    return grant;
  }

  env::TestFolder folder_;
  std::unique_ptr<Node> node_;
  std::shared_ptr<ScriptedMaster> master_ = std::make_shared<ScriptedMaster>();
};

TEST_F(NodeAgentTest, RegistersAndReportsWhatTheNodeHolds) {
  ASSERT_TRUE(node_->JoinCluster("c1").ok());
  ASSERT_TRUE(node_->OpenArena(WriteGrant(5, 50, v1::ACCESS_WRITE)).ok());
  ASSERT_TRUE(
      node_->WriteMetadata(WriteGrant(6, 0, v1::ACCESS_METADATA_WRITE), "manifest", "m").ok());
  NodeAgent agent(*node_, master_, {.host_id = "h", .socket_path = "/s"});
  ASSERT_TRUE(agent.WaitRegistered(Soon()).ok());
  std::lock_guard lock(master_->mutex);
  EXPECT_EQ(master_->registered.address().node_id(), node_->node_id());
  EXPECT_EQ(master_->registered.address().host_id(), "h");
  EXPECT_EQ(master_->registered.address().socket_path(), "/s");
  EXPECT_EQ(master_->registered.grant_key(), node_->grant_key());
  EXPECT_EQ(master_->registered.grant_key().size(), 32u);
  EXPECT_EQ(master_->registered.capacity_bytes(), 1u << 20);
  ASSERT_EQ(master_->last_report.held_size(), 2);
  EXPECT_EQ(master_->last_report.held(0).import_id(), 5u);
  EXPECT_EQ(master_->last_report.held(0).arena_ids(0), 50u);
  EXPECT_EQ(master_->last_report.held(1).metadata_objects(), 1u);
}

TEST_F(NodeAgentTest, DropsWhatTheMasterNamesAndReportsItGone) {
  ASSERT_TRUE(node_->JoinCluster("c1").ok());
  ASSERT_TRUE(node_->OpenArena(WriteGrant(5, 50, v1::ACCESS_WRITE)).ok());
  ASSERT_TRUE(node_->OpenArena(WriteGrant(5, 51, v1::ACCESS_WRITE)).ok());
  ASSERT_TRUE(
      node_->WriteMetadata(WriteGrant(6, 0, v1::ACCESS_METADATA_WRITE), "manifest", "m").ok());
  // An interval that never ends: what follows comes from the drops alone.
  NodeAgent agent(*node_, master_, {.report_interval_ms = 3'600'000});
  ASSERT_TRUE(agent.WaitRegistered(Soon()).ok());
  {
    std::lock_guard lock(master_->mutex);
    master_->unwanted_arenas = {50};
    master_->unwanted_imports = {6};
  }
  ASSERT_TRUE(agent.ReportNow(Soon()).ok());
  ASSERT_TRUE(agent.ReportNow(Soon()).ok());
  std::lock_guard lock(master_->mutex);
  ASSERT_EQ(master_->last_report.held_size(), 1);
  EXPECT_EQ(master_->last_report.held(0).arena_ids_size(), 1);
  EXPECT_EQ(master_->last_report.held(0).arena_ids(0), 51u);
  EXPECT_EQ(node_->used_bytes(), 4096u);
}

TEST_F(NodeAgentTest, RegistersAgainWithAMasterThatForgotIt) {
  NodeAgent agent(*node_, master_, {});
  ASSERT_TRUE(agent.WaitRegistered(Soon()).ok());
  {
    std::lock_guard lock(master_->mutex);
    master_->known = false;
  }
  ASSERT_TRUE(agent.ReportNow(Soon()).ok());
  std::lock_guard lock(master_->mutex);
  EXPECT_EQ(master_->registrations, 2);
}

TEST_F(NodeAgentTest, WaitsForAMasterThatIsNotThereYet) {
  master_->reachable = false;
  NodeAgent agent(*node_, master_, {});
  const Status early = agent.WaitRegistered(env::Deadline::AfterMs(100));
  EXPECT_EQ(early.code(), Code::kUnavailable);
  EXPECT_THAT(early.message(), HasSubstr("no Master"));
  {
    std::lock_guard lock(master_->mutex);
    master_->reachable = true;
  }
  EXPECT_TRUE(agent.WaitRegistered(Soon()).ok());
}

TEST_F(NodeAgentTest, SaysWhoseItsFolderIsAndWhatItHolds) {
  {
    NodeAgent agent(*node_, master_, {});
    ASSERT_TRUE(agent.WaitRegistered(Soon()).ok());
    EXPECT_EQ(master_->registered.cluster_id(), "");
    EXPECT_EQ(node_->cluster_id(), "c1");
  }
  ASSERT_TRUE(
      node_->WriteMetadata(WriteGrant(6, 0, v1::ACCESS_METADATA_WRITE), "manifest", "m").ok());
  NodeAgent agent(*node_, master_, {});
  ASSERT_TRUE(agent.WaitRegistered(Soon()).ok());
  EXPECT_EQ(master_->registered.cluster_id(), "c1");
  ASSERT_EQ(master_->registered.held_import_ids_size(), 1);
  EXPECT_EQ(master_->registered.held_import_ids(0), 6u);
}

// A refused node keeps what it has, says why at once, and is there when the right Master is.
TEST_F(NodeAgentTest, ARefusalIsToldAtOnceAndNothingIsDropped) {
  ASSERT_TRUE(node_->JoinCluster("c1").ok());
  ASSERT_TRUE(node_->OpenArena(WriteGrant(5, 50, v1::ACCESS_WRITE)).ok());
  master_->refusal = InvalidArgument("another cluster's");
  master_->unwanted_imports = {5};
  NodeAgent agent(*node_, master_, {});
  const Status refused = agent.WaitRegistered(env::Deadline::Infinite());
  EXPECT_EQ(refused, InvalidArgument("another cluster's"));
  EXPECT_EQ(node_->used_bytes(), 4096u);
  EXPECT_EQ(node_->cluster_id(), "c1");
  {
    std::lock_guard lock(master_->mutex);
    master_->unwanted_imports.clear();
    master_->refusal = OkStatus();
  }
  ASSERT_TRUE(agent.ReportNow(Soon()).ok());
  EXPECT_EQ(node_->used_bytes(), 4096u);
}

}  // namespace
}  // namespace mooncake::node
