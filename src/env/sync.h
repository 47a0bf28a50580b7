// Threads, and what they wait for each other with: those of the standard library, or, inside a
// World, its own. Method names are the standard's, whose types these stand for, so that
// std::lock_guard and std::unique_lock take them.
//
// A Mutex or CondVar belongs to the World it is used in, or to none. Whatever may run inside a
// World uses these alone; sockets and library threads, which never do, use the standard's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

#include "env/world.h"

namespace mooncake::env {

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() {
    if (World* world = World::Current()) return LockIn(*world);
    mutex_.lock();
  }
  void unlock() {
    if (World* world = World::Current()) return UnlockIn(*world);
    mutex_.unlock();
  }

 private:
  void LockIn(World& world);
  void UnlockIn(World& world);

  std::mutex mutex_;
  bool held_ = false;  // inside a World
};

class SharedMutex {
 public:
  SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock();
  void unlock();
  void lock_shared();
  void unlock_shared();

 private:
  std::shared_mutex mutex_;
  int sharers_ = 0;  // inside a World; -1: exclusive
};

class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void notify_one() { Notify(false); }
  void notify_all() { Notify(true); }

  void wait(std::unique_lock<Mutex>& lock);
  template <class Predicate>
  void wait(std::unique_lock<Mutex>& lock, Predicate done) {
    while (!done()) wait(lock);
  }
  // Returns what `done` says at the end; false: also when `stop` was requested.
  template <class Predicate>
  bool wait(std::unique_lock<Mutex>& lock, const std::stop_token& stop, Predicate done) {
    return WaitUntilDone(lock, stop, World::kNever, std::move(done));
  }

  // May return early for no reason.
  void wait_for(std::unique_lock<Mutex>& lock, std::chrono::nanoseconds time);
  template <class Predicate>
  bool wait_for(std::unique_lock<Mutex>& lock, std::chrono::nanoseconds time, Predicate done) {
    return WaitUntilDone(lock, {}, EndOf(time), std::move(done));
  }
  template <class Predicate>
  bool wait_for(std::unique_lock<Mutex>& lock, const std::stop_token& stop,
                std::chrono::nanoseconds time, Predicate done) {
    return WaitUntilDone(lock, stop, EndOf(time), std::move(done));
  }

 private:
  // The monotonic time `time` from now.
  static int64_t EndOf(std::chrono::nanoseconds time);
  static bool Passed(int64_t end_ns);
  void Notify(bool all);
  // Until notified, `stop` or `end_ns`; may return early for no reason.
  void WaitOnce(std::unique_lock<Mutex>& lock, const std::stop_token& stop, int64_t end_ns);

  template <class Predicate>
  bool WaitUntilDone(std::unique_lock<Mutex>& lock, const std::stop_token& stop, int64_t end_ns,
                     Predicate done) {
    while (!done()) {
      if (stop.stop_requested() || Passed(end_ns)) return done();
      WaitOnce(lock, stop, end_ns);
    }
    return true;
  }

  std::condition_variable_any condition_;
};

// A thread that is asked to stop and joined by its destructor. `run` may take a std::stop_token.
class Thread {
 public:
  Thread() : stop_(std::nostopstate) {}
  template <class Run>
  requires(!std::is_same_v<std::decay_t<Run>, Thread>) explicit Thread(Run run) {
    if constexpr (std::is_invocable_v<Run, std::stop_token>) {
      Begin([run = std::move(run), stop = stop_.get_token()]() mutable { run(stop); });
    } else {
      Begin(std::move(run));
    }
  }
  Thread(Thread&&) = default;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { StopAndJoin(); }

  bool joinable() const { return thread_.joinable() || task_ != nullptr; }
  void join();
  void request_stop() { stop_.request_stop(); }
  // For a forked child, where the thread does not exist.
  void detach() { thread_.detach(); }

 private:
  void Begin(std::function<void()> run);
  void StopAndJoin();

  std::stop_source stop_;
  std::thread thread_;
  std::unique_ptr<World::Task> task_;  // inside a World
};

// Sleeps; false as soon as `cancel` is requested.
bool PauseMs(int64_t ms, const std::stop_token& cancel);

}  // namespace mooncake::env
