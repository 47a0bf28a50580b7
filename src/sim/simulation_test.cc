#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "env/clock.h"
#include "env/deadline.h"
#include "env/sync.h"
#include "sim/sim_disk.h"

namespace mooncake::sim {
namespace {

// Runs `body` as the director's task to its end.
void Direct(Simulation& simulation, std::function<void()> body) {
  bool done = false;
  {
    const env::WorldScope scope(simulation);
    simulation.Spawn(nullptr, "director", [&] {
      body();
      done = true;
    });
  }
  EXPECT_TRUE(simulation.RunUntil([&] { return done; }, Simulation::kEpochNs + 1'000 * kSecond));
}

TEST(SimulationTest, TimePassesOnlyWhenNobodyCanRun) {
  Simulation simulation(1);
  std::vector<int64_t> slept;
  Direct(simulation, [&] {
    const int64_t begin = env::SystemClock::Instance().MonotonicMs();
    EXPECT_TRUE(env::PauseMs(5'000, {}));
    slept.push_back(env::SystemClock::Instance().MonotonicMs() - begin);
  });
  EXPECT_EQ(slept, std::vector<int64_t>{5'000});
}

TEST(SimulationTest, ThreadsMutexesAndConditionsWork) {
  Simulation simulation(2);
  std::vector<int> order;
  Direct(simulation, [&] {
    env::Mutex mutex;
    env::CondVar changed;
    int turn = 0;
    std::vector<env::Thread> threads;
    for (int i = 0; i < 5; ++i) {
      threads.emplace_back([&, i] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return turn == i; });
        order.push_back(i);
        ++turn;
        changed.notify_all();
      });
    }
    for (env::Thread& thread : threads) thread.join();
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(SimulationTest, AStopRequestEndsAWait) {
  Simulation simulation(3);
  bool stopped = false;
  Direct(simulation, [&] {
    env::Mutex mutex;
    env::CondVar never;
    env::Thread waiter([&](const std::stop_token& stop) {
      std::unique_lock lock(mutex);
      EXPECT_FALSE(never.wait(lock, stop, [] { return false; }));
      stopped = true;
    });
    EXPECT_TRUE(env::PauseMs(10, {}));
    EXPECT_FALSE(stopped);
  });
  EXPECT_TRUE(stopped);
}

// A few tasks that interleave at their sleeps.
uint64_t HashOfHistory(uint64_t seed) {
  Simulation simulation(seed);
  Direct(simulation, [&] {
    std::vector<env::Thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int k = 0; k < 10; ++k)
          env::PauseMs(i + static_cast<int>(simulation.dice().Below(3)), {});
      });
    }
  });
  return simulation.trace_hash();
}

TEST(SimulationTest, OneSeedIsOneHistory) {
  EXPECT_EQ(HashOfHistory(7), HashOfHistory(7));
  EXPECT_NE(HashOfHistory(7), HashOfHistory(8));
}

TEST(SimulationTest, ACrashedProcessComesToItsEndUnseen) {
  Simulation simulation(4);
  SimDisk disk(simulation, "disk");
  std::string seen;
  Direct(simulation, [&] {
    const std::shared_ptr<Process> process = simulation.NewProcess("victim", &disk);
    simulation.Spawn(process.get(), "victim", [&] {
      EXPECT_TRUE(env::Disk::Current().Write("/before", "1").ok());
      // Longer than anyone waits; a crash ends it at once.
      env::PauseMs(1'000'000, {});
      EXPECT_EQ(env::Disk::Current().Write("/after", "1").code(), Code::kUnavailable);
      EXPECT_TRUE(env::Deadline::AfterMs(1'000'000).Expired());
      seen = "ended";
    });
    simulation.Sleep(kSecond);
    simulation.Crash(*process);
    while (process->tasks() > 0) simulation.Sleep(kMillisecond);
  });
  EXPECT_EQ(seen, "ended");
  EXPECT_LT(simulation.seconds(), 2);
  Direct(simulation, [&] {
    const std::shared_ptr<Process> reader = simulation.NewProcess("reader", &disk);
    bool done = false;
    simulation.Spawn(reader.get(), "reader", [&] {
      EXPECT_EQ(*env::Disk::Current().List("/"), std::vector<std::string>{"before"});
      done = true;
    });
    while (!done) simulation.Sleep(kMillisecond);
  });
}

TEST(SimulationTest, APausedProcessStandsStillAndGoesOn) {
  Simulation simulation(5);
  SimDisk disk(simulation, "disk");
  int beats = 0;
  Direct(simulation, [&] {
    const std::shared_ptr<Process> process = simulation.NewProcess("p", &disk);
    simulation.Spawn(process.get(), "p", [&] {
      for (int i = 0; i < 100; ++i) {
        env::PauseMs(10, {});
        ++beats;
      }
    });
    simulation.Sleep(100 * kMillisecond);
    const int before = beats;
    simulation.Pause(*process, kSecond);
    simulation.Sleep(900 * kMillisecond);
    EXPECT_EQ(beats, before);
    simulation.Sleep(2 * kSecond);
    EXPECT_EQ(beats, 100);
  });
}

}  // namespace
}  // namespace mooncake::sim
