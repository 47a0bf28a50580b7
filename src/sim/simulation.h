// A World of simulated processes on one thread: who runs next, what time it is, who is alive.
//
// Owns the tasks (a fiber each), virtual time, and the dice. Time moves only when nobody can run,
// and by a microsecond for every turn of a task. Which of those who can run goes next is the dice's
// choice. So one seed is one history: its hash says whether two runs were the same.
//
// Threads of a process become tasks of it. A process that crashes is cut off at the await point
// where it stands: from then on nothing of it reaches its disk, the network or anybody else
// (CutOff), its timed waits end at once and its clock runs away, so that what is still on its
// stacks comes to an end by itself and frees what it owns. The rest of the world never sees that.
//
// Task:     RUNNABLE <------ wake, time-out, crash ------ PARKED
//              |  `--- its turn --> RUNNING --- Park --------^
//              `--- its process is paused --> HELD --- resumed --> RUNNABLE
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/world.h"
#include "sim/dice.h"
#include "sim/fiber.h"

namespace mooncake::sim {

class Simulation;
class SimDisk;

inline constexpr int64_t kMicrosecond = 1'000;
inline constexpr int64_t kMillisecond = 1'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;

// One process of the simulated world, from its start to its end. It is cut off for ever once it
// crashed; what starts again is another Process.
class Process : public std::enable_shared_from_this<Process> {
 public:
  const std::string& name() const { return name_; }
  bool crashed() const { return crashed_; }
  bool paused() const { return paused_; }
  size_t tasks() const { return tasks_; }
  SimDisk& disk() const { return *disk_; }

  // Of every await point of its tasks, per million: it crashes there, or stops for a while.
  uint32_t crash_chance = 0;
  uint32_t pause_chance = 0;
  // The wall clock's difference from virtual time.
  int64_t wall_offset_ms = 0;
  // Called once, when it crashes or is told to end, on no task: must not wait.
  std::vector<std::function<void()>> on_crash;

 private:
  friend class Simulation;
  Process(std::string name, SimDisk* disk, int64_t clock_offset_ns)
      : name_(std::move(name)), disk_(disk), clock_offset_ns_(clock_offset_ns) {}

  const std::string name_;
  SimDisk* const disk_;
  const int64_t clock_offset_ns_;  // a host's monotonic clock begins anywhere
  bool crashed_ = false;
  bool paused_ = false;
  int64_t runaway_ns_ = 0;  // of a crashed process's clock
  size_t tasks_ = 0;        // not ended
};

class Simulation final : public env::World {
 public:
  explicit Simulation(uint64_t seed);
  // Every task must have ended.
  ~Simulation() override;

  // ---- env::World, for the running task ----
  int64_t MonotonicNs() override;
  int64_t WallMs() override;
  std::string RandomBytes(size_t bytes) override;
  void Park(const void* key, int64_t until_ns) override;
  void Wake(const void* key, bool all) override;
  std::unique_ptr<Task> Start(std::function<void()> run) override;
  env::Disk& disk() override;

  // ---- for whoever directs it ----
  Dice& dice() { return dice_; }
  int64_t now_ns() const { return now_ns_; }
  // Virtual seconds since the beginning.
  double seconds() const { return static_cast<double>(now_ns_ - kEpochNs) / kSecond; }

  std::shared_ptr<Process> NewProcess(std::string name, SimDisk* disk);
  // A task that nobody joins. Null process: the director's own, whom nothing ever hits.
  void Spawn(Process* process, std::string name, std::function<void()> run);
  // Runs on no task, so it must not wait.
  void After(int64_t delay_ns, std::function<void()> event);
  // The running task sleeps for virtual time.
  void Sleep(int64_t ns);
  // The running task lets others go first.
  void Yield();

  void Crash(Process& process);
  void Pause(Process& process, int64_t ns);
  // Whether the running task's process is cut off from the world. Every door to it asks.
  bool CutOff() const;
  // Of the running task; null for the director's.
  Process* current() const { return running_ == nullptr ? nullptr : running_->process; }

  // Runs until `done` (looked at before every turn), until virtual time `until_ns`, or until nobody
  // will ever run again. True: done.
  bool RunUntil(const std::function<bool()>& done, int64_t until_ns);

  // No task is left.
  bool idle() const { return tasks_.empty(); }
  // Those that are left, for people.
  std::string DescribeTasks() const;

  // One more fact of this history.
  void Note(uint64_t fact);
  void Note(std::string_view fact);
  // For a person who looks for where two histories part: told every fact as text.
  std::function<void(std::string_view)> on_note;
  uint64_t trace_hash() const { return hash_; }
  uint64_t turns() const { return turns_; }

  static constexpr int64_t kEpochNs = 1'000 * kSecond;
  static constexpr int64_t kWallEpochMs = 1'800'000'000'000;

 private:
  enum class State : uint8_t { kRunnable, kRunning, kParked, kHeld, kEnded };
  struct SimTask {
    uint64_t id = 0;
    Process* process = nullptr;
    std::shared_ptr<Process> keeps;  // the process lives as long as its tasks
    std::string name;
    std::unique_ptr<Fiber> fiber;
    State state = State::kRunnable;
    const void* key = nullptr;
    int64_t until_ns = kNever;
    int64_t join_key = 0;  // its address is what joiners wait for
  };
  class Handle;

  std::shared_ptr<SimTask> Begin(Process* process, std::string name, std::function<void()> run);
  void MakeRunnable(SimTask& task);
  void Unpark(SimTask& task);
  void AwaitPoint(Process& process);
  void Resume(Process& process);
  void RunTurn(size_t index);
  // The next thing that time brings; false: nothing ever.
  bool AdvanceTime(int64_t until_ns);

  Dice dice_;
  Dice random_bytes_;
  int64_t now_ns_ = kEpochNs;
  uint64_t hash_ = 0;
  uint64_t turns_ = 0;
  uint64_t next_task_id_ = 1;
  uint64_t next_event_ = 1;
  SimTask* running_ = nullptr;
  std::map<uint64_t, std::shared_ptr<SimTask>> tasks_;
  std::vector<SimTask*> runnable_;
  std::map<const void*, std::deque<SimTask*>> parked_;  // by key, longest first
  std::set<std::pair<int64_t, uint64_t>> timers_;       // time, task id
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
};

}  // namespace mooncake::sim
