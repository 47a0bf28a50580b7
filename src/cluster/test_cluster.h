// A whole cluster in one process, with doors that a test can shut: a Master over a real SQLite log
// that can be killed and opened again, nodes that can die, and a Master face per client that can
// lose requests, replies, or everything.
//
// Tests only. Nothing waits by sleeping a fixed time: conditions have deadlines.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/object_client.h"
#include "client/store_client.h"
#include "env/clock.h"
#include "env/peer_memory.h"
#include "env/random.h"
#include "env/test_folder.h"
#include "master/master.h"
#include "node/node.h"
#include "node/node_agent.h"
#include "oplog/sqlite_log.h"
#include "rpc/async_master.h"
#include "rpc/node_channel.h"
#include "rpc/status_proto.h"

namespace mooncake::cluster {

// A MasterApi whose calls pass through two hooks.
class HookedMaster final : public rpc::MasterApi {
 public:
  explicit HookedMaster(std::shared_ptr<rpc::MasterApi> inner) : inner_(std::move(inner)) {}

  // Not OK: the call is not made and this is its answer.
  std::function<Status(std::string_view method)> before = [](std::string_view) {
    return OkStatus();
  };
  // Not OK: the call was made, and this is answered instead of its reply.
  std::function<Status(std::string_view method)> after = [](std::string_view) {
    return OkStatus();
  };
  // The client's process is gone: nothing it does arrives any more.
  void Vanish() { vanished_ = true; }

#define MOONCAKE_DEFINE(Name)                                          \
  v1::Name##Reply Name(const v1::Name##Request& request) override {    \
    v1::Name##Reply reply;                                             \
    Status status = vanished_ ? Cancelled("vanished") : before(#Name); \
    if (status.ok()) {                                                 \
      reply = inner_->Name(request);                                   \
      status = after(#Name);                                           \
      if (status.ok()) return reply;                                   \
      reply.Clear();                                                   \
    }                                                                  \
    rpc::SetStatus(reply.mutable_status(), status);                    \
    return reply;                                                      \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  const std::shared_ptr<rpc::MasterApi> inner_;
  std::atomic<bool> vanished_{false};
};

// The one Master that everybody asks, dead or alive.
class RestartableMaster final : public rpc::MasterApi {
 public:
  RestartableMaster(std::string path, master::MasterOptions options)
      : path_(std::move(path)), options_(options) {}
  ~RestartableMaster() override { Kill(); }

  void Start() {
    auto life = std::make_shared<Life>();
    auto log = oplog::SqliteLog::Open(path_);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    life->log = *std::move(log);
    auto opened = master::Master::Open(
        options_, {*life->log, env::SystemClock::Instance(), env::SystemRandom::Instance()});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    life->master = *std::move(opened);
    life->api = std::make_unique<rpc::BlockingMaster>(*life->master);
    life->master->Start();
    std::lock_guard lock(mutex_);
    life_ = std::move(life);
  }
  void Kill() {
    std::shared_ptr<Life> life;
    {
      std::lock_guard lock(mutex_);
      life = std::move(life_);
      life_ = nullptr;
    }
    if (life != nullptr) life->master->Stop();
  }

#define MOONCAKE_DEFINE(Name)                                                         \
  v1::Name##Reply Name(const v1::Name##Request& request) override {                   \
    if (const std::shared_ptr<Life> life = Now(); life != nullptr) {                  \
      return life->api->Name(request);                                                \
    }                                                                                 \
    v1::Name##Reply reply;                                                            \
    rpc::SetStatus(reply.mutable_status(), Unavailable("the Master is not running")); \
    return reply;                                                                     \
  }
  MOONCAKE_MASTER_RPCS(MOONCAKE_DEFINE)
#undef MOONCAKE_DEFINE

 private:
  struct Life {
    std::unique_ptr<oplog::SqliteLog> log;
    std::unique_ptr<master::Master> master;
    std::unique_ptr<rpc::BlockingMaster> api;
  };
  std::shared_ptr<Life> Now() {
    std::lock_guard lock(mutex_);
    return life_;
  }

  const std::string path_;
  const master::MasterOptions options_;
  std::mutex mutex_;
  std::shared_ptr<Life> life_;
};

struct TestClusterOptions {
  int nodes = 2;
  uint64_t capacity_bytes = uint64_t{64} << 20;
  bool durable_arenas = false;
  // Long for all but the tests of a node's death: a machine may be too busy to report for a second.
  int64_t node_dead_after_ms = 10'000;
};

class TestCluster {
 public:
  using Options = TestClusterOptions;

  explicit TestCluster(Options options = {}) : options_(options) {
    master::MasterOptions master_options;
    master_options.report_interval_ms = 20;
    master_options.node_dead_after_ms = options_.node_dead_after_ms;
    master_ = std::make_shared<RestartableMaster>(folder_ / "log.db", master_options);
    master_->Start();
    connector_ = std::make_shared<Connector>(*this);
    nodes_.resize(options_.nodes);
    for (int i = 0; i < options_.nodes; ++i) StartNode(i);
  }
  ~TestCluster() {
    for (auto& node : nodes_) StopNode(node);
    master_->Kill();
  }

  RestartableMaster& master() { return *master_; }
  std::shared_ptr<rpc::MasterApi> api() { return master_; }
  node::Node& node(int index) { return *nodes_[index].node; }
  std::string NodeFolder(int index) { return folder_ / ("node" + std::to_string(index)); }

  void StartNode(int index) {
    auto opened = node::Node::Open({.folder = NodeFolder(index),
                                    .capacity_bytes = options_.capacity_bytes,
                                    .node_id = "n" + std::to_string(index),
                                    .durable_arenas = options_.durable_arenas});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    Entry entry;
    entry.node = *std::move(opened);
    entry.agent = std::make_unique<node::NodeAgent>(*entry.node, master_,
                                                    node::NodeAgentOptions{.host_id = "host"});
    ASSERT_TRUE(entry.agent->WaitRegistered(env::Deadline::AfterMs(20'000)).ok());
    std::lock_guard lock(mutex_);
    nodes_[index] = std::move(entry);
  }
  void KillNode(int index) {
    Entry entry;
    {
      std::lock_guard lock(mutex_);
      std::swap(entry, nodes_[index]);
    }
    StopNode(entry);
    // Whoever is inside a call of it finishes first; its folder is free then.
    std::weak_ptr<node::Node> gone = entry.node;
    entry.node.reset();
    EXPECT_TRUE(Eventually([&] { return gone.expired(); }));
  }

  // A client of its own, as another process would have it; `hooks` gets its Master face.
  std::unique_ptr<client::StoreClient> NewClient(client::StoreClientOptions options = {},
                                                 HookedMaster** hooks = nullptr) {
    options.host_id = "host";
    if (options.threads == 0) options.threads = 2;
    auto hooked = std::make_shared<HookedMaster>(master_);
    if (hooks != nullptr) *hooks = hooked.get();
    return std::make_unique<client::StoreClient>(hooked, connector_, options);
  }

  std::unique_ptr<client::ObjectClient> NewObjectClient(client::ObjectClientOptions options = {},
                                                        HookedMaster** hooks = nullptr) {
    if (options.host_id.empty()) options.host_id = "host";
    if (options.threads == 0) options.threads = 2;
    auto hooked = std::make_shared<HookedMaster>(master_);
    if (hooks != nullptr) *hooks = hooked.get();
    return std::make_unique<client::ObjectClient>(hooked, connector_, options);
  }

  v1::GetClusterReply Status() { return master_->GetCluster({}); }
  // Charged at the Master, given up ones included.
  uint64_t ChargedBytes() {
    uint64_t bytes = 0;
    const v1::GetClusterReply status = Status();
    for (const v1::NodeStatus& node : status.nodes()) {
      bytes += node.used_bytes() + node.releasing_bytes();
    }
    return bytes;
  }
  uint64_t HeldBytes() {
    uint64_t bytes = 0;
    for (const Entry& entry : nodes_) {
      if (entry.node != nullptr) bytes += entry.node->used_bytes();
    }
    return bytes;
  }
  // Nothing is charged at the Master and nothing is held by a node.
  bool Empty() {
    if (ChargedBytes() != 0 || HeldBytes() != 0) return false;
    for (const Entry& entry : nodes_) {
      if (entry.node != nullptr && !entry.node->Report().empty()) return false;
    }
    return true;
  }

  // What a node answers to ReadMetadata is passed through this.
  std::function<Result<std::string>(const std::string& name, Result<std::string> content)>
      on_read_metadata;
  // Called before a node writes extents, which it does not do after a failure; and with what a node
  // has read of extents.
  std::function<::mooncake::Status(const std::string& node_id, const v1::WriteExtents& request)>
      on_write_extents;
  // Which writes find their extent busy: the node does not get to see them.
  std::function<bool(const std::string& node_id, const v1::ExtentWrite& write)> extent_is_busy;
  std::function<void(v1::NodeReply* reply)> on_read_extents;

  static bool Eventually(const std::function<bool()>& condition, int64_t deadline_ms = 20'000) {
    const env::Deadline deadline = env::Deadline::AfterMs(deadline_ms);
    while (!condition()) {
      if (deadline.Expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

 private:
  struct Entry {
    std::shared_ptr<node::Node> node;
    std::unique_ptr<node::NodeAgent> agent;
  };

  // Like a Unix socket: what a channel reaches is whoever runs now.
  class Channel final : public rpc::NodeChannel {
   public:
    Channel(TestCluster& cluster, std::string node_id)
        : cluster_(cluster), node_id_(std::move(node_id)) {}
    Result<env::UniqueFd> OpenArena(const v1::Grant& grant, const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      return node->OpenArena(grant);
    }
    ::mooncake::Status ReserveArena(const v1::Grant& grant, const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      return node->ReserveArena(grant);
    }
    ::mooncake::Status WriteMetadata(const v1::Grant& grant, std::string_view name,
                                     std::string_view content, const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      return node->WriteMetadata(grant, name, content);
    }
    Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name,
                                     const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      Result<std::string> content = node->ReadMetadata(grant, name);
      if (!cluster_.on_read_metadata) return content;
      return cluster_.on_read_metadata(std::string(name), std::move(content));
    }
    ::mooncake::Status SealImport(const v1::Grant& grant, const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      return node->SealImport(grant);
    }
    Result<env::UniqueFd> OpenSlab(const v1::Grant& grant, const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      return node->OpenSlab(grant);
    }
    Result<std::vector<::mooncake::Status>> WriteExtents(v1::WriteExtents request,
                                                         const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      if (cluster_.on_write_extents) {
        MC_RETURN_IF_ERROR(cluster_.on_write_extents(node_id_, request));
      }
      const std::vector<bool> busy = TakeBusy(&request);
      std::vector<::mooncake::Status> results;
      if (request.writes_size() > 0) {
        MC_ASSIGN_OR_RETURN(const env::PeerProcess self, env::PeerProcess::Open(::getpid()));
        MC_ASSIGN_OR_RETURN(results, node->WriteExtents(request, request.pull() ? &self : nullptr));
      }
      for (size_t i = 0; i < busy.size(); ++i) {
        if (busy[i]) results.insert(results.begin() + static_cast<std::ptrdiff_t>(i), Busy("busy"));
      }
      return results;
    }
    Result<v1::NodeReply> ReadExtents(v1::ReadExtents request, const rpc::CallBounds&) override {
      MC_ASSIGN_OR_RETURN(const std::shared_ptr<node::Node> node, cluster_.FindNode(node_id_));
      Result<v1::NodeReply> reply = node->ReadExtents(request);
      if (reply.ok() && cluster_.on_read_extents) cluster_.on_read_extents(&*reply);
      return reply;
    }

   private:
    // Leaves the others, and their content.
    std::vector<bool> TakeBusy(v1::WriteExtents* request) const {
      std::vector<bool> busy;
      if (!cluster_.extent_is_busy) return busy;
      v1::WriteExtents others;
      others.set_pull(request->pull());
      size_t at = 0;
      for (const v1::ExtentWrite& write : request->writes()) {
        size_t bytes = 0;
        for (const auto& piece : write.pieces()) bytes += request->pull() ? 0 : piece.bytes();
        busy.push_back(cluster_.extent_is_busy(node_id_, write));
        if (!busy.back()) {
          *others.add_writes() = write;
          others.mutable_content()->append(request->content(), at, bytes);
        }
        at += bytes;
      }
      *request = std::move(others);
      return busy;
    }

    TestCluster& cluster_;
    const std::string node_id_;
  };
  class Connector final : public rpc::NodeConnector {
   public:
    explicit Connector(TestCluster& cluster) : cluster_(cluster) {}
    Result<std::shared_ptr<rpc::NodeChannel>> Connect(const v1::NodeAddress& address,
                                                      const rpc::CallBounds&) override {
      MC_RETURN_IF_ERROR(cluster_.FindNode(address.node_id()).status());
      return std::shared_ptr<rpc::NodeChannel>(
          std::make_shared<Channel>(cluster_, address.node_id()));
    }

   private:
    TestCluster& cluster_;
  };

  Result<std::shared_ptr<node::Node>> FindNode(const std::string& node_id) {
    std::lock_guard lock(mutex_);
    for (const Entry& entry : nodes_) {
      if (entry.node != nullptr && entry.node->node_id() == node_id) return entry.node;
    }
    return Unavailable("node " + node_id + " is not running");
  }
  static void StopNode(Entry& entry) {
    if (entry.agent != nullptr) entry.agent->Stop();
    entry.agent.reset();
  }

  const env::TestFolder folder_;
  const Options options_;
  std::shared_ptr<RestartableMaster> master_;
  std::shared_ptr<rpc::NodeConnector> connector_;
  std::mutex mutex_;
  std::vector<Entry> nodes_;
};

}  // namespace mooncake::cluster
