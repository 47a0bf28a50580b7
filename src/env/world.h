// What a simulation puts in the place of the kernel: time, randomness, waiting, threads, files.
//
// Nothing but this folder asks for it. A thread that runs inside a World (WorldScope) gets its
// answers from it; every other thread, so every thread of a real process, gets them from the
// kernel. A World runs everything on that one thread: what would be threads are fibers that give
// way to each other only inside Park, so that nothing here needs a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>

namespace mooncake::env {

class Disk;

class World {
 public:
  // Of a thread inside a World.
  class Task {
   public:
    virtual ~Task() = default;
    // Returns once the task's function has.
    virtual void Join() = 0;
  };

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  virtual ~World() = default;

  virtual int64_t MonotonicNs() = 0;
  virtual int64_t WallMs() = 0;
  virtual std::string RandomBytes(size_t bytes) = 0;

  // The calling task waits until Wake is called for `key`, or monotonic time `until_ns` has come;
  // it may also return for no reason, as condition variables do.
  virtual void Park(const void* key, int64_t until_ns) = 0;
  // Ends the Park of the one that has waited longest for `key`, or of all.
  virtual void Wake(const void* key, bool all) = 0;
  virtual std::unique_ptr<Task> Start(std::function<void()> run) = 0;

  virtual Disk& disk() = 0;

  // Null outside of any World.
  static World* Current() { return current_; }

 private:
  friend class WorldScope;
  static thread_local constinit World* current_;
};

// The calling thread is inside `world` while this lives.
class WorldScope {
 public:
  explicit WorldScope(World& world);
  ~WorldScope();
  WorldScope(const WorldScope&) = delete;
  WorldScope& operator=(const WorldScope&) = delete;

 private:
  World* const outer_;
};

}  // namespace mooncake::env
