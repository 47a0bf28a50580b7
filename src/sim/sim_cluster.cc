#include "sim/sim_cluster.h"

#include <utility>

#include "env/clock.h"
#include "env/deadline.h"
#include "env/random.h"
#include "node/node_agent.h"
#include "node/node_service.h"
#include "oplog/snapshot_store.h"
#include "oplog/sqlite_log.h"
#include "sim/channels.h"

namespace mooncake::sim {
namespace {

// Clusters of runs that did not end are never taken apart.
std::string NewVfsName() {
  static uint64_t count = 0;
  return "simulated-" + std::to_string(++count);
}

}  // namespace

// What a Master process has, in the order of need.
struct SimCluster::MasterLife {
  std::unique_ptr<oplog::LogStore> log;
  oplog::FolderSnapshots snapshots{"/snapshots"};
  std::shared_ptr<master::Master> master;
};

struct SimCluster::NodeLife {
  std::shared_ptr<node::Node> node;
  std::shared_ptr<node::NodeService> service;
  std::unique_ptr<node::NodeAgent> agent;
};

SimCluster::SimCluster(Simulation& simulation, ClusterOptions options)
    : simulation_(simulation),
      options_(options),
      network_(simulation),
      master_disk_(simulation, "the Master's disk"),
      vfs_name_(NewVfsName()),
      vfs_(vfs_name_, master_disk_) {
  for (int i = 0; i < options_.nodes; ++i) {
    auto place = std::make_unique<NodePlace>();
    place->id = "n" + std::to_string(i);
    place->disk = std::make_unique<SimDisk>(simulation, "the disk of node " + place->id);
    nodes_.push_back(std::move(place));
  }
}

SimCluster::~SimCluster() = default;

void SimCluster::WaitForCrash(Process& process) {
  process.on_crash.push_back([this, &process] { simulation_.Wake(&process, true); });
  while (!process.crashed()) simulation_.Park(&process, env::World::kNever);
}

Result<std::unique_ptr<oplog::LogStore>> SimCluster::OpenLog(bool read_only) {
  MC_ASSIGN_OR_RETURN(
      std::unique_ptr<oplog::SqliteLog> log,
      oplog::SqliteLog::Open(
          kLogPath, {.read_only = read_only, .reserve_bytes = 0, .vfs = vfs_name_.c_str()}));
  return std::unique_ptr<oplog::LogStore>(std::move(log));
}

Result<std::shared_ptr<SimCluster::MasterLife>> SimCluster::OpenMaster() {
  auto life = std::make_shared<MasterLife>();
  if (before_log) before_log();
  MC_ASSIGN_OR_RETURN(life->log, OpenLog(false));
  if (wrap_log) life->log = wrap_log(std::move(life->log));
  master::MasterOptions options;
  options.report_interval_ms = 100;
  options.node_dead_after_ms = options_.node_dead_after_ms;
  options.snapshot_every_records = options_.snapshot_every_records;
  options.rebuild_retry_ms = 200;
  options.log_drop_records_max = 20;
  options.verify_replay_every = 1;
  options.object_lease_ms = options_.object_lease_ms;
  options.put_ttl_ms = 4'000;
  options.slab_bytes = 256 << 10;
  options.relaxed_flush_ms = options_.relaxed_flush_ms;
  MC_ASSIGN_OR_RETURN(
      std::unique_ptr<master::Master> master,
      master::Master::Open(options, {*life->log,
                                     env::SystemClock::Instance(),
                                     env::SystemRandom::Instance(),
                                     {.snapshots = &life->snapshots,
                                      .open_log = [this] { return OpenLog(true); }}}));
  life->master = std::move(master);
  return life;
}

void SimCluster::RunMaster(const std::shared_ptr<Process>& process) {
  Result<std::shared_ptr<MasterLife>> opened = OpenMaster();
  if (!opened.ok()) {
    if (process->crashed()) return;
    master_.failure = opened.status();
    // An operator looks at it and starts it again.
    simulation_.Crash(*process);
    return;
  }
  std::shared_ptr<MasterLife> life = *std::move(opened);
  master_.failure = OkStatus();
  life->master->Start();
  master_.life = life;
  // In its own variable, so that whoever is serving a request keeps all of the life.
  network_.Listen(kMasterAddress, kMasterHost, process, ServeMaster([life] {
                    return std::shared_ptr<rpc::AsyncMaster>(life, life->master.get());
                  }));
  WaitForCrash(*process);
  if (master_.life == life) master_.life = nullptr;
  network_.StopListening(kMasterAddress);
  life->master->Stop();
}

void SimCluster::StartMaster() {
  MC_CHECK(MasterIsGone());
  master_.process =
      simulation_.NewProcess("master." + std::to_string(++master_.lives), &master_disk_);
  simulation_.Spawn(master_.process.get(), "master",
                    [this, process = master_.process] { RunMaster(process); });
}

void SimCluster::RunNode(size_t index, const std::shared_ptr<Process>& process) {
  NodePlace& place = *nodes_[index];
  auto life = std::make_shared<NodeLife>();
  Result<std::unique_ptr<node::Node>> opened = node::Node::Open(
      {.folder = "/node", .capacity_bytes = options_.capacity_bytes, .node_id = place.id});
  if (!opened.ok()) {
    simulation_.Crash(*process);
    return;
  }
  life->node = *std::move(opened);
  life->service = std::make_shared<node::NodeService>(*life->node);
  life->agent = std::make_unique<node::NodeAgent>(
      *life->node, ConnectMaster(network_, kStoreHost),
      node::NodeAgentOptions{.host_id = kStoreHost, .socket_path = "simulated"});
  place.life = life;
  network_.Listen(NodeAddressOf(place.id), kStoreHost, process, ServeNode([life] {
                    return std::shared_ptr<rpc::NodeHandler>(life, life->service.get());
                  }));
  WaitForCrash(*process);
  if (place.life == life) {
    place.life = nullptr;
    network_.StopListening(NodeAddressOf(place.id));
  }
  life->agent->Stop();
}

void SimCluster::StartNode(size_t index) {
  MC_CHECK(NodeIsGone(index));
  NodePlace& place = *nodes_[index];
  place.process =
      simulation_.NewProcess(place.id + "." + std::to_string(++place.lives), place.disk.get());
  simulation_.Spawn(place.process.get(), place.id,
                    [this, index, process = place.process] { RunNode(index, process); });
}

std::shared_ptr<master::Master> SimCluster::master() const {
  if (master_.life == nullptr || master_.process->crashed()) return nullptr;
  return {master_.life, master_.life->master.get()};
}

std::shared_ptr<node::Node> SimCluster::node(size_t index) const {
  const NodePlace& place = *nodes_[index];
  if (place.life == nullptr || place.process->crashed()) return nullptr;
  return place.life->node;
}

bool SimCluster::InstanceIsAlive(const std::string& instance_id) const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (const auto alive = node(i); alive != nullptr && alive->instance_id() == instance_id) {
      return true;
    }
  }
  return false;
}

std::unique_ptr<client::StoreClient> SimCluster::NewClient(client::StoreClientOptions options) {
  options.host_id = kStoreHost;
  options.threads = 1;
  options.import_ttl_ms = options_.ttl_ms;
  options.lease_ttl_ms = options_.ttl_ms;
  options.holder = "simulated";
  return std::make_unique<client::StoreClient>(ConnectMaster(network_, kStoreHost),
                                               ConnectNodes(network_, kStoreHost), options);
}

std::unique_ptr<client::ObjectClient> SimCluster::NewObjectClient(
    client::ObjectClientOptions options) {
  options.host_id = kStoreHost;
  options.threads = 1;
  return std::make_unique<client::ObjectClient>(ConnectMaster(network_, kStoreHost),
                                                ConnectNodes(network_, kStoreHost), options);
}

}  // namespace mooncake::sim
