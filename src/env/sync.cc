#include "env/sync.h"

#include "base/check.h"
#include "env/clock.h"

namespace mooncake::env {

void Mutex::LockIn(World& world) {
  while (held_) world.Park(this, World::kNever);
  held_ = true;
}

void Mutex::UnlockIn(World& world) {
  MC_CHECK(held_);
  held_ = false;
  world.Wake(this, false);
}

void SharedMutex::lock() {
  World* world = World::Current();
  if (world == nullptr) return mutex_.lock();
  while (sharers_ != 0) world->Park(this, World::kNever);
  sharers_ = -1;
}

void SharedMutex::unlock() {
  World* world = World::Current();
  if (world == nullptr) return mutex_.unlock();
  MC_CHECK(sharers_ == -1);
  sharers_ = 0;
  world->Wake(this, true);
}

void SharedMutex::lock_shared() {
  World* world = World::Current();
  if (world == nullptr) return mutex_.lock_shared();
  while (sharers_ < 0) world->Park(this, World::kNever);
  ++sharers_;
}

void SharedMutex::unlock_shared() {
  World* world = World::Current();
  if (world == nullptr) return mutex_.unlock_shared();
  MC_CHECK(sharers_ > 0);
  if (--sharers_ == 0) world->Wake(this, true);
}

int64_t CondVar::EndOf(std::chrono::nanoseconds time) {
  const int64_t now = SystemClock::Instance().MonotonicNs();
  return time.count() >= World::kNever - now ? World::kNever : now + time.count();
}

bool CondVar::Passed(int64_t end_ns) {
  return end_ns != World::kNever && SystemClock::Instance().MonotonicNs() >= end_ns;
}

void CondVar::Notify(bool all) {
  if (World* world = World::Current()) return world->Wake(this, all);
  all ? condition_.notify_all() : condition_.notify_one();
}

void CondVar::wait(std::unique_lock<Mutex>& lock) { WaitOnce(lock, {}, World::kNever); }

void CondVar::wait_for(std::unique_lock<Mutex>& lock, std::chrono::nanoseconds time) {
  WaitOnce(lock, {}, EndOf(time));
}

void CondVar::WaitOnce(std::unique_lock<Mutex>& lock, const std::stop_token& stop, int64_t end_ns) {
  if (World* world = World::Current()) {
    const std::stop_callback wake(stop, [this, world] { world->Wake(this, true); });
    if (stop.stop_requested()) return;
    lock.unlock();
    world->Park(this, end_ns);
    lock.lock();
    return;
  }
  // With a predicate that is true at the second look: one notification ends the wait.
  bool looked = false;
  const auto notified = [&looked] { return std::exchange(looked, true); };
  if (end_ns == World::kNever) {
    condition_.wait(lock, stop, notified);
    return;
  }
  // steady_clock is CLOCK_MONOTONIC, whose nanoseconds SystemClock tells.
  const std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(end_ns)};
  condition_.wait_until(lock, stop, end, notified);
}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    StopAndJoin();
    stop_ = std::move(other.stop_);
    thread_ = std::move(other.thread_);
    task_ = std::move(other.task_);
  }
  return *this;
}

void Thread::Begin(std::function<void()> run) {
  if (World* world = World::Current()) {
    task_ = world->Start(std::move(run));
  } else {
    thread_ = std::thread(std::move(run));
  }
}

void Thread::join() {
  if (task_ == nullptr) return thread_.join();
  task_->Join();
  task_.reset();
}

void Thread::StopAndJoin() {
  if (!joinable()) return;
  request_stop();
  join();
}

bool PauseMs(int64_t ms, const std::stop_token& cancel) {
  Mutex mutex;
  CondVar wake;
  std::unique_lock lock(mutex);
  wake.wait_for(lock, cancel, std::chrono::milliseconds(ms), [] { return false; });
  return !cancel.stop_requested();
}

}  // namespace mooncake::env
