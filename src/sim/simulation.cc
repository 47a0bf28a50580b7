#include "sim/simulation.h"

#include <algorithm>

#include "base/check.h"
#include "base/digest.h"
#include "sim/sim_disk.h"

namespace mooncake::sim {
namespace {

constexpr int64_t kTurnNs = kMicrosecond;
// Each look at its clock takes a crashed process further than anything waits for.
constexpr int64_t kRunawayNs = 3'600 * kSecond;
// As far as its clock can run.
constexpr int64_t kRunawayNsMax = 4'000'000'000 * kSecond;
constexpr int64_t kPauseNsMax = 20 * kSecond;

}  // namespace

class Simulation::Handle final : public env::World::Task {
 public:
  Handle(Simulation& simulation, std::shared_ptr<SimTask> task)
      : simulation_(simulation), task_(std::move(task)) {}
  void Join() override {
    while (task_->state != State::kEnded) simulation_.Park(&task_->join_key, kNever);
  }

 private:
  Simulation& simulation_;
  const std::shared_ptr<SimTask> task_;
};

Simulation::Simulation(uint64_t seed) : dice_(seed), random_bytes_(dice_.Split()), hash_(seed) {}

Simulation::~Simulation() { MC_CHECK(tasks_.empty()); }

int64_t Simulation::MonotonicNs() {
  Process* process = current();
  if (process == nullptr) return now_ns_;
  if (process->crashed_ && process->runaway_ns_ < kRunawayNsMax) process->runaway_ns_ += kRunawayNs;
  return now_ns_ + process->clock_offset_ns_ + process->runaway_ns_;
}

int64_t Simulation::WallMs() {
  const Process* process = current();
  const int64_t offset_ms = process == nullptr ? 0 : process->wall_offset_ms;
  return kWallEpochMs + (now_ns_ - kEpochNs) / kMillisecond + offset_ms;
}

std::string Simulation::RandomBytes(size_t bytes) { return random_bytes_.Bytes(bytes); }

env::Disk& Simulation::disk() {
  Process* process = current();
  MC_CHECK(process != nullptr && process->disk_ != nullptr);
  return *process->disk_;
}

bool Simulation::CutOff() const {
  const Process* process = current();
  return process != nullptr && process->crashed_;
}

std::shared_ptr<Process> Simulation::NewProcess(std::string name, SimDisk* disk) {
  return std::shared_ptr<Process>(
      new Process(std::move(name), disk, static_cast<int64_t>(dice_.Below(1'000'000)) * kSecond));
}

std::shared_ptr<Simulation::SimTask> Simulation::Begin(Process* process, std::string name,
                                                       std::function<void()> run) {
  auto task = std::make_shared<SimTask>();
  task->id = next_task_id_++;
  task->process = process;
  task->name = std::move(name);
  task->fiber = std::make_unique<Fiber>(std::move(run));
  if (process != nullptr) {
    task->keeps = process->shared_from_this();
    ++process->tasks_;
  }
  tasks_[task->id] = task;
  MakeRunnable(*task);
  return task;
}

std::unique_ptr<env::World::Task> Simulation::Start(std::function<void()> run) {
  MC_CHECK(running_ != nullptr);
  return std::make_unique<Handle>(
      *this, Begin(running_->process, running_->name + ".thread", std::move(run)));
}

void Simulation::Spawn(Process* process, std::string name, std::function<void()> run) {
  Begin(process, std::move(name), std::move(run));
}

void Simulation::After(int64_t delay_ns, std::function<void()> event) {
  events_.emplace(std::pair(now_ns_ + std::max<int64_t>(delay_ns, 0), next_event_++),
                  std::move(event));
}

void Simulation::Sleep(int64_t ns) { Park(nullptr, now_ns_ + ns); }

void Simulation::Yield() { Park(nullptr, now_ns_); }

void Simulation::MakeRunnable(SimTask& task) {
  if (task.process != nullptr && task.process->paused_) {
    task.state = State::kHeld;
    return;
  }
  task.state = State::kRunnable;
  runnable_.push_back(&task);
}

void Simulation::Unpark(SimTask& task) {
  if (task.key != nullptr) {
    const auto waiting = parked_.find(task.key);
    std::erase(waiting->second, &task);
    if (waiting->second.empty()) parked_.erase(waiting);
  }
  if (task.until_ns != kNever) timers_.erase({task.until_ns, task.id});
  MakeRunnable(task);
}

void Simulation::Park(const void* key, int64_t until_ns) {
  MC_CHECK(running_ != nullptr);
  SimTask& task = *running_;
  Process* process = task.process;
  // The caller's clock is its own; timers are virtual time.
  if (process != nullptr && until_ns != kNever && key != nullptr) {
    until_ns -= process->clock_offset_ns_ + process->runaway_ns_;
  }
  const bool was_alive = process != nullptr && !process->crashed_;
  if (was_alive) AwaitPoint(*process);
  // Of what a crashed process waits for, only its own tasks can still come. And who crashes here
  // has missed what its crash told those who waited.
  const bool cut_off = process != nullptr && process->crashed_ && (was_alive || until_ns != kNever);
  if (cut_off || (until_ns != kNever && until_ns <= now_ns_)) {
    task.key = nullptr;
    task.until_ns = kNever;
    MakeRunnable(task);
  } else {
    task.state = State::kParked;
    task.key = key;
    task.until_ns = until_ns;
    if (key != nullptr) parked_[key].push_back(&task);
    if (until_ns != kNever) timers_.emplace(until_ns, task.id);
  }
  Fiber::GiveWay();
}

void Simulation::Wake(const void* key, bool all) {
  for (auto waiting = parked_.find(key); waiting != parked_.end(); waiting = parked_.find(key)) {
    Unpark(*waiting->second.front());
    if (!all) return;
  }
}

void Simulation::AwaitPoint(Process& process) {
  if (process.crash_chance > 0 && dice_.Chance(process.crash_chance)) {
    Crash(process);
  } else if (process.pause_chance > 0 && dice_.Chance(process.pause_chance)) {
    Pause(process, dice_.Between(kMillisecond, kPauseNsMax));
  }
}

void Simulation::Crash(Process& process) {
  if (process.crashed_) return;
  Note("crash " + process.name_);
  process.crashed_ = true;
  if (process.paused_) Resume(process);
  for (const auto& [id, task] : tasks_) {
    if (task->process == &process && task->state == State::kParked && task->until_ns != kNever) {
      Unpark(*task);
    }
  }
  for (const auto& hook : process.on_crash) hook();
}

void Simulation::Pause(Process& process, int64_t ns) {
  if (process.crashed_ || process.paused_) return;
  Note("pause " + process.name_);
  process.paused_ = true;
  std::erase_if(runnable_, [&](SimTask* task) {
    if (task->process != &process) return false;
    task->state = State::kHeld;
    return true;
  });
  // By name: the process may be gone by then.
  std::weak_ptr<Process> paused = process.weak_from_this();
  After(ns, [this, paused] {
    if (const std::shared_ptr<Process> process = paused.lock()) Resume(*process);
  });
}

void Simulation::Resume(Process& process) {
  if (!process.paused_) return;
  process.paused_ = false;
  for (const auto& [id, task] : tasks_) {
    if (task->process == &process && task->state == State::kHeld) MakeRunnable(*task);
  }
}

void Simulation::RunTurn(size_t index) {
  SimTask* task = runnable_[index];
  runnable_[index] = runnable_.back();
  runnable_.pop_back();
  const std::shared_ptr<SimTask> kept = tasks_.at(task->id);
  task->state = State::kRunning;
  now_ns_ += kTurnNs;
  ++turns_;
  Note(task->id);
  if (on_note) on_note("turn of " + task->name);
  running_ = task;
  task->fiber->Resume();
  running_ = nullptr;
  if (!task->fiber->ended()) return;
  task->state = State::kEnded;
  if (task->process != nullptr) --task->process->tasks_;
  tasks_.erase(task->id);
  Wake(&task->join_key, true);
}

bool Simulation::AdvanceTime(int64_t until_ns) {
  const int64_t timer = timers_.empty() ? kNever : timers_.begin()->first;
  const int64_t event = events_.empty() ? kNever : events_.begin()->first.first;
  const int64_t next = std::min(timer, event);
  if (next == kNever || next > until_ns) {
    if (next != kNever) now_ns_ = std::max(now_ns_, until_ns);
    return false;
  }
  now_ns_ = std::max(now_ns_, next);
  while (!timers_.empty() && timers_.begin()->first <= now_ns_) {
    Unpark(*tasks_.at(timers_.begin()->second));
  }
  while (!events_.empty() && events_.begin()->first.first <= now_ns_) {
    const std::function<void()> run = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    run();
  }
  return true;
}

bool Simulation::RunUntil(const std::function<bool()>& done, int64_t until_ns) {
  const env::WorldScope scope(*this);
  while (!done()) {
    const bool due = (!timers_.empty() && timers_.begin()->first <= now_ns_) ||
                     (!events_.empty() && events_.begin()->first.first <= now_ns_);
    if (due || runnable_.empty()) {
      if (now_ns_ >= until_ns || !AdvanceTime(until_ns)) return done();
      continue;
    }
    if (now_ns_ >= until_ns) return done();
    RunTurn(dice_.Below(runnable_.size()));
  }
  return true;
}

std::string Simulation::DescribeTasks() const {
  std::string text = std::to_string(tasks_.size()) + " tasks";
  size_t named = 0;
  for (const auto& [id, task] : tasks_) {
    constexpr size_t kNamedMax = 12;
    if (++named > kNamedMax) break;
    text += (named == 1 ? ": " : ", ") + task->name;
    text += task->state == State::kParked ? " (waits" : " (runs";
    text += task->process != nullptr && task->process->crashed_ ? ", crashed)" : ")";
  }
  return text;
}

void Simulation::Note(uint64_t fact) {
  // splitmix64's step: any order or value that differs gives another hash.
  uint64_t mixed = hash_ ^ (fact + 0x9e3779b97f4a7c15ULL + (hash_ << 6) + (hash_ >> 2));
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
  hash_ = mixed ^ (mixed >> 31);
}

void Simulation::Note(std::string_view fact) {
  if (on_note) on_note(fact);
  const BlockDigest digest = BlockDigestOf(fact.data(), fact.size());
  uint64_t words[2];
  static_assert(sizeof words == sizeof digest.bytes);
  std::copy(digest.bytes.begin(), digest.bytes.end(), reinterpret_cast<uint8_t*>(words));
  Note(words[0] ^ words[1]);
}

}  // namespace mooncake::sim
