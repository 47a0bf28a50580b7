// A call stack of its own that runs until it gives way: how a simulation runs what would be threads
// on one thread.
//
// Owns its stack (mapped, with a page below it that faults). A Fiber that has not ended must not be
// destroyed: what lies on its stack would never be. Threads: all on one.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>

namespace mooncake::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> run);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs it until it gives way or ends. Not from inside a Fiber.
  void Resume();
  bool ended() const { return ended_; }

  // Inside a Fiber: back to whoever resumed it.
  static void GiveWay();
  // Null outside.
  static Fiber* Current();

 private:
  static void Enter();
  void Leave(bool for_good);

  std::function<void()> run_;
  bool ended_ = false;
  std::byte* stack_ = nullptr;  // the page that faults comes first
  ucontext_t own_{};
  ucontext_t resumer_{};
  // For the address sanitizer, which must be told of every change of stacks.
  void* own_fake_stack_ = nullptr;
  void* resumer_fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
};

}  // namespace mooncake::sim
