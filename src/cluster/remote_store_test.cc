// mooncake:// stores: the same over real gRPC and a real Unix socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cluster/open_store.h"
#include "cluster/test_objects.h"
#include "cluster/test_publish.h"
#include "env/clock.h"
#include "env/host_id.h"
#include "env/random.h"
#include "env/test_folder.h"
#include "master/master.h"
#include "node/node.h"
#include "node/node_agent.h"
#include "node/node_service.h"
#include "oplog/sqlite_log.h"
#include "rpc/grpc_master.h"
#include "rpc/grpc_master_server.h"
#include "rpc/node_server.h"

namespace mooncake::cluster {
namespace {

// A Master behind gRPC and a node behind its sockets, in this process.
class RemoteStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto log = oplog::SqliteLog::Open(folder_ / "log.db");
    ASSERT_TRUE(log.ok());
    log_ = *std::move(log);
    auto master = master::Master::Open(
        {}, {*log_, env::SystemClock::Instance(), env::SystemRandom::Instance()});
    ASSERT_TRUE(master.ok());
    master_ = *std::move(master);
    master_->Start();
    auto server = rpc::GrpcMasterServer::Start("127.0.0.1:0", *master_);
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    auto node = node::Node::Open({.folder = folder_ / "node", .capacity_bytes = 600 << 20});
    ASSERT_TRUE(node.ok());
    node_ = *std::move(node);
    service_ = std::make_unique<node::NodeService>(*node_);
    auto node_server = rpc::NodeServer::StartUnix(folder_ / "node.sock", *service_);
    ASSERT_TRUE(node_server.ok()) << node_server.status().ToString();
    node_server_ = *std::move(node_server);
  }
  void Join(node::NodeAgentOptions options) {
    options.socket_path = folder_ / "node.sock";
    agent_ = std::make_unique<node::NodeAgent>(
        *node_, std::make_shared<rpc::GrpcMaster>(server_->address()), options);
    ASSERT_TRUE(agent_->WaitRegistered(env::Deadline::AfterMs(20'000)).ok());
  }
  std::string uri() const { return "mooncake://" + server_->address(); }

  const env::TestFolder folder_;
  std::unique_ptr<oplog::LogStore> log_;
  std::unique_ptr<master::Master> master_;
  std::unique_ptr<rpc::GrpcMasterServer> server_;
  std::unique_ptr<node::Node> node_;
  std::unique_ptr<node::NodeService> service_;
  std::unique_ptr<rpc::NodeServer> node_server_;
  std::unique_ptr<rpc::NodeServer> tcp_server_;
  std::unique_ptr<node::NodeAgent> agent_;
};

TEST_F(RemoteStoreTest, PublishFromFourClientsAndLoad) {
  Join({.host_id = env::HostId()});
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, {.tp = 2, .dp = 2});
  std::vector<std::jthread> writers;
  for (const std::string& rank : RanksOf(*source)) {
    writers.emplace_back([&, rank] {
      const auto store = OpenStore(uri(), {});
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      const auto report = Publish((*store)->client(), identity, source, {.participants = {rank}});
      EXPECT_TRUE(report.ok()) << report.status().ToString();
    });
  }
  writers.clear();
  const auto store = OpenStore(uri(), {});
  ASSERT_TRUE(store.ok());
  LoadEveryRank((*store)->client(), identity, MakeLayout(identity, {.tp = 3}));
  ASSERT_TRUE((*store)->client().Remove(identity).ok());
}

// Small ones inline, large ones fetched by the node and read from its memory.
TEST_F(RemoteStoreTest, ObjectsOverTheUnixSocket) {
  Join({.host_id = env::HostId()});
  const auto store = OpenStore(uri(), {});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{5000}, uint64_t{9} << 20}) {
    const std::string key = "of " + std::to_string(bytes);
    const client::PutResult put = PutOne((*store)->objects(), key, Payload(bytes, bytes));
    ASSERT_TRUE(put.status.ok()) << put.status.ToString();
    ExpectObject((*store)->objects(), key, Payload(bytes, bytes));
  }
}

// The node is of another host, as far as this one's clients know: everything goes over TCP.
TEST_F(RemoteStoreTest, ObjectsOfAnotherHostsNodeOverTcp) {
  auto tcp_server = rpc::NodeServer::StartTcp("127.0.0.1:0", "", *service_);
  ASSERT_TRUE(tcp_server.ok()) << tcp_server.status().ToString();
  tcp_server_ = *std::move(tcp_server);
  Join({.host_id = "another host", .tcp_address = tcp_server_->address()});
  const auto store = OpenStore(uri(), {});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{5000}, uint64_t{9} << 20}) {
    const std::string key = "of " + std::to_string(bytes);
    const client::PutResult put = PutOne((*store)->objects(), key, Payload(bytes, bytes));
    ASSERT_TRUE(put.status.ok()) << put.status.ToString();
    ExpectObject((*store)->objects(), key, Payload(bytes, bytes));
  }
}

TEST_F(RemoteStoreTest, ANodeOfAnotherHostWithoutTcpIsSaidToBeOne) {
  Join({.host_id = "another host"});
  const auto store = OpenStore(uri(), {});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  const client::PutResult put = PutOne((*store)->objects(), "key", "value");
  EXPECT_EQ(put.status.code(), Code::kUnsupported) << put.status.ToString();
  EXPECT_THAT(put.status.message(), testing::HasSubstr("serves no clients of other hosts"));
}

}  // namespace
}  // namespace mooncake::cluster
