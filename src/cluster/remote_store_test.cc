// mooncake:// stores: the same over real gRPC and a real Unix socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cluster/open_store.h"
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

TEST(RemoteStoreTest, PublishFromFourClientsAndLoad) {
  const env::TestFolder folder;
  auto log = oplog::SqliteLog::Open(folder / "log.db");
  ASSERT_TRUE(log.ok());
  auto master = master::Master::Open(
      {}, {**log, env::SystemClock::Instance(), env::SystemRandom::Instance()});
  ASSERT_TRUE(master.ok());
  (*master)->Start();
  auto server = rpc::GrpcMasterServer::Start("127.0.0.1:0", **master);
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  auto node = node::Node::Open({.folder = folder / "node", .capacity_bytes = 64 << 20});
  ASSERT_TRUE(node.ok());
  node::NodeService service(**node);
  auto node_server = rpc::NodeServer::StartUnix(folder / "node.sock", service);
  ASSERT_TRUE(node_server.ok()) << node_server.status().ToString();
  node::NodeAgent agent(**node, std::make_shared<rpc::GrpcMaster>((*server)->address()),
                        {.host_id = env::HostId(), .socket_path = folder / "node.sock"});
  ASSERT_TRUE(agent.WaitRegistered(env::Deadline::AfterMs(20'000)).ok());

  const std::string uri = "mooncake://" + (*server)->address();
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, {.tp = 2, .dp = 2});
  std::vector<std::jthread> writers;
  for (const std::string& rank : RanksOf(*source)) {
    writers.emplace_back([&, rank] {
      const auto store = OpenStore(uri, {});
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      const auto report = Publish((*store)->client(), identity, source, {.participants = {rank}});
      EXPECT_TRUE(report.ok()) << report.status().ToString();
    });
  }
  writers.clear();
  const auto store = OpenStore(uri, {});
  ASSERT_TRUE(store.ok());
  LoadEveryRank((*store)->client(), identity, MakeLayout(identity, {.tp = 3}));
  ASSERT_TRUE((*store)->client().Remove(identity).ok());
}

}  // namespace
}  // namespace mooncake::cluster
