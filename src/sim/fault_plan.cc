#include "sim/fault_plan.h"

#include <algorithm>

namespace mooncake::sim {

FaultPlan::FaultPlan(SimCluster& cluster, Judge& judge, WrittenArenas& arenas)
    : cluster_(cluster),
      judge_(judge),
      arenas_(arenas),
      simulation_(cluster.simulation()),
      dice_(simulation_.dice()),
      node_power_lost_(cluster.node_count(), false) {}

void FaultPlan::Begin() {
  act_chance_ = static_cast<uint32_t>(dice_.Between(2'000, 60'000));
  if (Use()) master_crash_chance_ = static_cast<uint32_t>(dice_.Below(400));
  if (Use()) node_crash_chance_ = static_cast<uint32_t>(dice_.Below(400));
  if (Use()) client_crash_chance_ = static_cast<uint32_t>(dice_.Below(2'000));
  if (Use()) pause_chance_ = static_cast<uint32_t>(dice_.Below(60));
  if (Use()) power_chance_ = 500'000;
  if (Use()) {
    NetworkFaults& faults = cluster_.network().faults;
    faults.drop = Use() ? static_cast<uint32_t>(dice_.Below(60'000)) : 0;
    faults.duplicate = Use() ? static_cast<uint32_t>(dice_.Below(100'000)) : 0;
    faults.delay = Use() ? static_cast<uint32_t>(dice_.Below(60'000)) : 0;
  }
  const auto arm_disk = [&](SimDisk& disk) {
    if (!Use()) return;
    disk.faults.sync_fails = Use() ? static_cast<uint32_t>(dice_.Below(10'000)) : 0;
    disk.faults.write_fails = Use() ? static_cast<uint32_t>(dice_.Below(3'000)) : 0;
    disk.faults.read_fails = Use() ? static_cast<uint32_t>(dice_.Below(2'000)) : 0;
    disk.faults.slow_sync = Use() ? static_cast<uint32_t>(dice_.Below(20'000)) : 0;
  };
  arm_disk(cluster_.master_disk());
  for (size_t i = 0; i < cluster_.node_count(); ++i) arm_disk(cluster_.node_disk(i));
  PickProcessFaults();
  PickWorldFaults();
  PickDamage();
}

void FaultPlan::PickProcessFaults() {
  if (Use()) kinds_.push_back([this] { CrashMaster(dice_.Chance(power_chance_)); });
  if (Use()) {
    kinds_.push_back([this] { CrashNode(AnyNode(), dice_.Chance(power_chance_)); });
  }
  if (Use()) {
    kinds_.push_back([this] {
      const auto process = cluster_.master_process();
      if (process == nullptr || process->crashed()) return;
      Happened("master paused");
      simulation_.Pause(*process, dice_.Between(kMillisecond, 8 * kSecond));
    });
  }
  if (Use()) {
    kinds_.push_back([this] {
      const auto process = cluster_.node_process(AnyNode());
      if (process == nullptr || process->crashed()) return;
      Happened("node paused");
      simulation_.Pause(*process, dice_.Between(kMillisecond, 8 * kSecond));
    });
  }
}

void FaultPlan::PickWorldFaults() {
  if (Use()) {
    kinds_.push_back([this] {
      Happened("partition");
      cluster_.network().Cut(kMasterHost, kStoreHost);
      simulation_.After(dice_.Between(10 * kMillisecond, 4 * kSecond),
                        [this] { cluster_.network().Heal(); });
    });
  }
  if (Use()) {
    kinds_.push_back([this] {
      const auto process = cluster_.master_process();
      if (process == nullptr) return;
      Happened("wall clock jumps");
      process->wall_offset_ms += dice_.Between(-86'400'000, 86'400'000);
    });
  }
  if (Use()) {
    kinds_.push_back([this] {
      SimDisk& disk =
          dice_.Chance(500'000) ? cluster_.master_disk() : cluster_.node_disk(AnyNode());
      Happened("disk full");
      disk.faults.full = true;
      simulation_.After(dice_.Between(10 * kMillisecond, 3 * kSecond),
                        [&disk] { disk.faults.full = false; });
    });
  }
}

void FaultPlan::PickDamage() {
  if (dice_.Chance(100'000)) {
    kinds_.push_back([this] {
      // While the node is down, so that it meets the damage at its start.
      const size_t index = AnyNode();
      CrashNode(index, false);
      if (cluster_.node_disk(index).FlipBit(
              [](std::string_view path) { return path.starts_with("/node/metadata/"); })) {
        Happened("bit flipped in a node's file");
        judge_.Damaged();
      }
    });
  }
  if (dice_.Chance(100'000)) {
    kinds_.push_back([this] {
      if (!arenas_.FlipBit()) return;
      Happened("bit flipped in memory");
      judge_.Damaged();
    });
  }
  if (dice_.Chance(50'000)) {
    kinds_.push_back([this] {
      CrashMaster(true);
      // Not in the write-ahead file: damage of its last commit looks as if a crash had torn it.
      const bool log = dice_.Chance(500'000);
      if (cluster_.master_disk().FlipBit([log](std::string_view path) {
            return log ? path == "/log.db" : path.starts_with("/snapshots/");
          })) {
        Happened("bit flipped in the Master's files");
        log_damaged_ = true;
        judge_.Damaged();
      }
    });
  }
}

void FaultPlan::ArmClient(Process& process) {
  if (healed_) return;
  process.crash_chance = client_crash_chance_;
  process.pause_chance = pause_chance_;
}

void FaultPlan::ArmMaster() {
  if (healed_) return;
  cluster_.master_process()->crash_chance = master_crash_chance_;
  cluster_.master_process()->pause_chance = pause_chance_;
  cluster_.master_process()->on_crash.push_back([this] { Happened("master crashed"); });
}

void FaultPlan::ArmNode(size_t index) {
  if (healed_) return;
  cluster_.node_process(index)->crash_chance = node_crash_chance_;
  cluster_.node_process(index)->pause_chance = pause_chance_;
  cluster_.node_process(index)->on_crash.push_back([this] { Happened("node crashed"); });
}

void FaultPlan::CrashMaster(bool power) {
  const auto process = cluster_.master_process();
  if (process == nullptr || process->crashed()) return;
  master_power_lost_ = power;
  simulation_.Crash(*process);
}

void FaultPlan::CrashNode(size_t index, bool power) {
  const auto process = cluster_.node_process(index);
  if (process == nullptr || process->crashed()) return;
  node_power_lost_[index] = power;
  simulation_.Crash(*process);
}

void FaultPlan::Act() {
  if (!kinds_.empty() && dice_.Chance(act_chance_)) dice_.Pick(kinds_)();
  if (dice_.Chance(400'000)) (void)StartAll();
}

bool FaultPlan::StartAll() {
  bool all = true;
  const auto down = [](const std::shared_ptr<Process>& process) {
    return process == nullptr || process->crashed();
  };
  if (down(cluster_.master_process())) {
    all = false;
    if (cluster_.MasterIsGone()) {
      if (master_power_lost_) {
        Happened("power lost at the Master");
        cluster_.master_disk().LosePower();
      }
      master_power_lost_ = !healed_ && dice_.Chance(power_chance_);
      cluster_.StartMaster();
      ArmMaster();
    }
  }
  for (size_t i = 0; i < cluster_.node_count(); ++i) {
    if (!down(cluster_.node_process(i))) continue;
    all = false;
    if (!cluster_.NodeIsGone(i)) continue;
    if (node_power_lost_[i]) {
      Happened("power lost at a node");
      cluster_.node_disk(i).LosePower();
    }
    node_power_lost_[i] = !healed_ && dice_.Chance(power_chance_);
    cluster_.StartNode(i);
    ArmNode(i);
  }
  return all;
}

void FaultPlan::Heal() {
  healed_ = true;
  kinds_.clear();
  cluster_.network().faults = {};
  cluster_.network().Heal();
  const auto calm = [](const std::shared_ptr<Process>& process) {
    if (process != nullptr) process->crash_chance = process->pause_chance = 0;
  };
  cluster_.master_disk().faults = {};
  calm(cluster_.master_process());
  for (size_t i = 0; i < cluster_.node_count(); ++i) {
    cluster_.node_disk(i).faults = {};
    calm(cluster_.node_process(i));
  }
}

}  // namespace mooncake::sim
