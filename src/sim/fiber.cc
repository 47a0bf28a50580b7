#include "sim/fiber.h"

#include <sys/mman.h>

#include <utility>
#include <vector>

#include "base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace mooncake::sim {
namespace {

constexpr size_t kPageBytes = 4096;
// SQLite and protobuf are the deepest; an instrumented build needs several times as much.
constexpr size_t kStackBytes = size_t{1} << 20;

thread_local Fiber* current = nullptr;

// Stacks that are free: mapping one costs more than a short fiber runs.
class StackPool {
 public:
  ~StackPool() {
    for (std::byte* stack : free_) ::munmap(stack, kPageBytes + kStackBytes);
  }
  std::byte* Take() {
    if (!free_.empty()) {
      std::byte* stack = free_.back();
      free_.pop_back();
      return stack;
    }
    void* mapped = ::mmap(nullptr, kPageBytes + kStackBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MC_CHECK(mapped != MAP_FAILED);
    MC_CHECK(::mprotect(mapped, kPageBytes, PROT_NONE) == 0);
    return static_cast<std::byte*>(mapped);
  }
  void Give(std::byte* stack) {
#if defined(__SANITIZE_ADDRESS__)
    // What the last frames marked as out of bounds is the next fiber's.
    __asan_unpoison_memory_region(stack + kPageBytes, kStackBytes);
#endif
    free_.push_back(stack);
  }

 private:
  std::vector<std::byte*> free_;
};

StackPool& Stacks() {
  thread_local StackPool pool;
  return pool;
}

void BeforeSwitch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}

void AfterSwitch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** from,
                 [[maybe_unused]] size_t* from_bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, from, from_bytes);
#endif
}

}  // namespace

Fiber::Fiber(std::function<void()> run) : run_(std::move(run)), stack_(Stacks().Take()) {
  MC_CHECK(::getcontext(&own_) == 0);
  own_.uc_stack.ss_sp = stack_ + kPageBytes;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  ::makecontext(&own_, &Fiber::Enter, 0);
}

Fiber::~Fiber() {
  MC_CHECK(ended_);
  Stacks().Give(stack_);
}

Fiber* Fiber::Current() { return current; }

void Fiber::Resume() {
  MC_CHECK(current == nullptr && !ended_);
  current = this;
  BeforeSwitch(&resumer_fake_stack_, stack_ + kPageBytes, kStackBytes);
  MC_CHECK(::swapcontext(&resumer_, &own_) == 0);
  AfterSwitch(resumer_fake_stack_, nullptr, nullptr);
  current = nullptr;
}

void Fiber::GiveWay() {
  MC_CHECK(current != nullptr);
  current->Leave(false);
}

void Fiber::Leave(bool for_good) {
  BeforeSwitch(for_good ? nullptr : &own_fake_stack_, resumer_stack_, resumer_stack_bytes_);
  MC_CHECK(::swapcontext(&own_, &resumer_) == 0);
  AfterSwitch(own_fake_stack_, &resumer_stack_, &resumer_stack_bytes_);
}

void Fiber::Enter() {
  Fiber* fiber = current;
  AfterSwitch(nullptr, &fiber->resumer_stack_, &fiber->resumer_stack_bytes_);
  fiber->run_();
  fiber->run_ = nullptr;
  fiber->ended_ = true;
  fiber->Leave(true);
}

}  // namespace mooncake::sim
