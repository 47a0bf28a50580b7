#include "sim/sim_disk.h"

#include <gtest/gtest.h>

#include <string>

#include "env/file.h"
#include "oplog/sqlite_log.h"

namespace mooncake::sim {
namespace {

// Runs `body` as the one process of `disk`.
void OnDisk(Simulation& simulation, SimDisk& disk, std::function<void()> body) {
  const std::shared_ptr<Process> process = simulation.NewProcess("process", &disk);
  {
    const env::WorldScope scope(simulation);
    simulation.Spawn(process.get(), "process", std::move(body));
  }
  EXPECT_TRUE(simulation.RunUntil([&] { return process->tasks() == 0; },
                                  simulation.now_ns() + 10'000 * kSecond));
}

TEST(SimDiskTest, ADurableReplacementIsOldOrNewAfterAnyPowerLoss) {
  int olds = 0;
  int news = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Simulation simulation(seed);
    SimDisk disk(simulation, "disk");
    const std::string before(3'000, 'a');
    const std::string after(5'000, 'b');
    OnDisk(simulation, disk, [&] {
      EXPECT_TRUE(env::MakeFolders("/data").ok());
      EXPECT_TRUE(env::WriteFileDurably("/data/file", before).ok());
    });
    const std::shared_ptr<Process> writer = simulation.NewProcess("writer", &disk);
    writer->crash_chance = 200'000;
    bool told = false;
    {
      const env::WorldScope scope(simulation);
      simulation.Spawn(writer.get(), "writer",
                       [&] { told = env::WriteFileDurably("/data/file", after).ok(); });
    }
    simulation.RunUntil([&] { return writer->tasks() == 0; }, simulation.now_ns() + kSecond);
    disk.LosePower();
    OnDisk(simulation, disk, [&] {
      const auto content = env::ReadFile("/data/file");
      ASSERT_TRUE(content.ok()) << "seed " << seed << ": " << content.status().ToString();
      EXPECT_TRUE(*content == before || *content == after) << "seed " << seed;
      EXPECT_TRUE(!told || *content == after) << "seed " << seed;
      (*content == before ? olds : news) += 1;
    });
  }
  // Both happen, or this proves nothing.
  EXPECT_GT(olds, 10);
  EXPECT_GT(news, 10);
}

TEST(SimDiskTest, WhatWasNotSyncedMayTear) {
  int torn = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Simulation simulation(seed);
    SimDisk disk(simulation, "disk");
    OnDisk(simulation, disk, [&] {
      const auto file = disk.OpenFile("/f", true);
      EXPECT_TRUE((*file)->Sync().ok());
      EXPECT_TRUE(disk.SyncFolder("/").ok());
      EXPECT_TRUE((*file)->Write(0, std::string(2'048, 'x')).ok());
    });
    disk.LosePower();
    OnDisk(simulation, disk, [&] {
      const size_t bytes = disk.Read("/f", 1 << 20)->size();
      EXPECT_EQ(bytes % 512, 0U);
      if (bytes > 0 && bytes < 2'048) ++torn;
    });
  }
  EXPECT_GT(torn, 5);
}

// The production log, over SQLite, over this disk: after any crash it has all that was
// acknowledged and nothing that is torn.
TEST(SimDiskTest, TheLogKeepsWhatItAcknowledged) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Simulation simulation(seed);
    SimDisk disk(simulation, "disk");
    const oplog::DeviceVfs vfs("simdisk", disk);
    uint64_t acknowledged = 0;
    uint64_t tried = 0;
    for (int life = 0; life < 4; ++life) {
      const std::shared_ptr<Process> master = simulation.NewProcess("master", &disk);
      {
        const env::WorldScope scope(simulation);
        simulation.Spawn(master.get(), "master", [&] {
          const auto log =
              oplog::SqliteLog::Open("/log.db", {.reserve_bytes = 0, .vfs = "simdisk"});
          ASSERT_TRUE(log.ok()) << "seed " << seed << ": " << log.status().ToString();
          const auto last = (*log)->LastSequence();
          ASSERT_TRUE(last.ok());
          ASSERT_GE(*last, acknowledged) << "seed " << seed << " life " << life;
          ASSERT_LE(*last, tried) << "seed " << seed << " life " << life;
          acknowledged = *last;
          master->crash_chance = 20'000;
          for (uint64_t n = *last + 1; n <= *last + 60; ++n) {
            tried = n;
            const std::string payload(1 + n * 37 % 3'000, static_cast<char>('a' + n % 26));
            if (!(*log)->Append({n, 1, static_cast<int64_t>(n), payload}).ok()) return;
            acknowledged = n;
          }
        });
      }
      simulation.RunUntil([&] { return master->tasks() == 0; },
                          simulation.now_ns() + 100 * kSecond);
      disk.LosePower();
    }
    EXPECT_GT(acknowledged, 0U);
  }
}

// After a failed sync the kernel takes the pages it could not write for clean: whoever syncs again
// is told that all is well. So what a failed append left must not be built upon.
TEST(SimDiskTest, TheLogKeepsWhatItAcknowledgedAfterFailedSyncs) {
  int failures = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Simulation simulation(seed);
    SimDisk disk(simulation, "disk");
    const oplog::DeviceVfs vfs("simdisk", disk);
    uint64_t acknowledged = 0;
    for (int life = 0; life < 3; ++life) {
      OnDisk(simulation, disk, [&] {
        disk.faults.sync_fails = 0;
        const auto log = oplog::SqliteLog::Open("/log.db", {.reserve_bytes = 0, .vfs = "simdisk"});
        ASSERT_TRUE(log.ok()) << "seed " << seed << ": " << log.status().ToString();
        ASSERT_GE(*(*log)->LastSequence(), acknowledged) << "seed " << seed << " life " << life;
        disk.faults.sync_fails = 100'000;
        for (int i = 0; i < 30; ++i) {
          const auto last = (*log)->LastSequence();
          if (!last.ok()) {
            ++failures;
            continue;
          }
          const std::string payload(100, static_cast<char>('a' + *last % 26));
          const Status appended =
              (*log)->Append({*last + 1, 1, static_cast<int64_t>(*last), payload});
          if (appended.ok()) {
            acknowledged = *last + 1;
          } else {
            ++failures;
          }
        }
        // The process dies here: closing would write what is left.
        simulation.Crash(*simulation.current());
      });
      disk.LosePower();
    }
  }
  EXPECT_GT(failures, 100);
}

}  // namespace
}  // namespace mooncake::sim
