// What goes wrong in one run, and when: chosen by the dice before and while it runs.
//
// Owns how strong each kind of fault is in this run (many are left out of any one: a swarm), and
// who is to be started again when. Acts through the cluster's own doors. Threads: all on one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/judge.h"
#include "sim/sim_cluster.h"
#include "sim/written_arenas.h"

namespace mooncake::sim {

class FaultPlan {
 public:
  FaultPlan(SimCluster& cluster, Judge& judge, WrittenArenas& arenas);

  // Sets what lasts for the whole run. Clients' processes get theirs from ArmClient.
  void Begin();
  void ArmClient(Process& process);
  // One moment of the run: perhaps one fault begins or ends, perhaps somebody starts again.
  void Act();
  // All faults end, and everybody who is down starts.
  void Heal();
  // Starts Master and nodes that are down. Called until it says that all are up.
  bool StartAll();

  // Bits of the Master's log or snapshots were flipped in this run.
  bool log_damaged() const { return log_damaged_; }
  const std::map<std::string, uint64_t>& happened() const { return happened_; }

 private:
  // Whether a kind of fault is in this run.
  bool Use() { return dice_.Chance(500'000); }
  size_t AnyNode() { return dice_.Below(cluster_.node_count()); }
  void PickProcessFaults();
  void PickWorldFaults();
  void PickDamage();
  void ArmMaster();
  void ArmNode(size_t index);
  void Happened(const std::string& kind) { ++happened_[kind]; }
  void CrashMaster(bool power);
  void CrashNode(size_t index, bool power);

  SimCluster& cluster_;
  Judge& judge_;
  WrittenArenas& arenas_;
  Simulation& simulation_;
  Dice& dice_;
  // Kinds of this run, as what Act picks from.
  std::vector<std::function<void()>> kinds_;
  uint32_t act_chance_ = 0;
  uint32_t master_crash_chance_ = 0;
  uint32_t node_crash_chance_ = 0;
  uint32_t client_crash_chance_ = 0;
  uint32_t pause_chance_ = 0;
  uint32_t power_chance_ = 0;  // that a crash is a loss of power
  bool healed_ = false;
  bool log_damaged_ = false;
  bool master_power_lost_ = false;
  std::vector<bool> node_power_lost_;
  std::map<std::string, uint64_t> happened_;
};

}  // namespace mooncake::sim
