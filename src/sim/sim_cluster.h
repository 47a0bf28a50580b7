// A cluster of simulated processes: one Master over its log and snapshots, store nodes, and any
// number of clients, all production code.
//
// Owns the hosts' disks and the network, and says who runs. The Master has a host of its own;
// nodes and clients share one, since a client reaches a node's memory through its host. Nothing
// here decides what goes wrong. Threads: all on one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/object_client.h"
#include "client/store_client.h"
#include "master/master.h"
#include "node/node.h"
#include "oplog/device_vfs.h"
#include "rpc/master_api.h"
#include "sim/network.h"
#include "sim/sim_disk.h"
#include "sim/simulation.h"

namespace mooncake::sim {

struct ClusterOptions {
  int nodes = 2;
  uint64_t capacity_bytes = uint64_t{4} << 20;
  int64_t node_dead_after_ms = 1'500;
  uint64_t snapshot_every_records = 40;
  uint64_t ttl_ms = 2'000;  // of clients' leases and imports
  int64_t object_lease_ms = 1'000;
  int64_t relaxed_flush_ms = 20;
};

inline constexpr const char* kLogPath = "/log.db";  // on the Master's disk

inline constexpr const char* kMasterHost = "master-host";
inline constexpr const char* kStoreHost = "store-host";

class SimCluster {
 public:
  SimCluster(Simulation& simulation, ClusterOptions options);
  ~SimCluster();

  Simulation& simulation() { return simulation_; }
  Network& network() { return network_; }
  SimDisk& master_disk() { return master_disk_; }
  // SQLite's name of that disk.
  const char* vfs_name() const { return vfs_name_.c_str(); }
  SimDisk& node_disk(size_t index) { return *nodes_[index]->disk; }
  size_t node_count() const { return nodes_.size(); }

  // Each begins a process, on a task that goes on by itself; there must be none of it.
  void StartMaster();
  void StartNode(size_t index);

  // Null: not running, or crashed.
  std::shared_ptr<Process> master_process() const { return master_.process; }
  std::shared_ptr<Process> node_process(size_t index) const { return nodes_[index]->process; }
  // All of it, tasks too, has ended since the last start.
  bool MasterIsGone() const { return IsGone(master_.process); }
  bool NodeIsGone(size_t index) const { return IsGone(nodes_[index]->process); }

  // While it runs and serves; else null.
  std::shared_ptr<master::Master> master() const;
  std::shared_ptr<node::Node> node(size_t index) const;
  // Why the last start of the Master failed; OK: it did not.
  const Status& master_failure() const { return master_.failure; }

  // The instance ids that nodes have had, and what each has lost: whoever crashed lost its memory.
  bool InstanceIsAlive(const std::string& instance_id) const;

  // For a process of the store's host, to be called on a task of it.
  std::unique_ptr<client::StoreClient> NewClient(client::StoreClientOptions options = {});

  std::unique_ptr<client::ObjectClient> NewObjectClient(client::ObjectClientOptions options = {});

  // Called on the Master's task before it opens its log, and with the log once it is open: for
  // planted faults.
  std::function<void()> before_log;
  std::function<std::unique_ptr<oplog::LogStore>(std::unique_ptr<oplog::LogStore>)> wrap_log;

 private:
  struct MasterLife;
  struct MasterPlace {
    std::shared_ptr<Process> process;
    std::shared_ptr<MasterLife> life;
    Status failure;
    int lives = 0;
  };
  struct NodeLife;
  struct NodePlace {
    std::string id;
    std::unique_ptr<SimDisk> disk;
    std::shared_ptr<Process> process;
    std::shared_ptr<NodeLife> life;
    int lives = 0;
  };

  static bool IsGone(const std::shared_ptr<Process>& process) {
    return process == nullptr || process->tasks() == 0;
  }
  void RunMaster(const std::shared_ptr<Process>& process);
  Result<std::unique_ptr<oplog::LogStore>> OpenLog(bool read_only);
  Result<std::shared_ptr<MasterLife>> OpenMaster();
  void RunNode(size_t index, const std::shared_ptr<Process>& process);
  // The running task waits until its process crashes.
  void WaitForCrash(Process& process);

  Simulation& simulation_;
  const ClusterOptions options_;
  Network network_;
  SimDisk master_disk_;
  const std::string vfs_name_;
  const oplog::DeviceVfs vfs_;
  MasterPlace master_;
  std::vector<std::unique_ptr<NodePlace>> nodes_;
};

}  // namespace mooncake::sim
