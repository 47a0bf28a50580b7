// Marks a rare path, so that a test or a simulation can tell whether it was ever taken.
//
//   MC_PROBE("master.rebuild");
//
// Costs one relaxed increment where it stands. Every probe of a program is known from its start,
// reached or not. Names are distinct, "folder.what_happens".
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace mooncake {

class Probe {
 public:
  explicit Probe(const char* name) noexcept : name_(name), next_(first_) { first_ = this; }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void Hit() noexcept { hits_.fetch_add(1, std::memory_order_relaxed); }
  const char* name() const { return name_; }
  uint64_t hits() const { return hits_.load(std::memory_order_relaxed); }

  // Every probe that is linked in, in no order.
  static std::vector<const Probe*> All() {
    std::vector<const Probe*> all;
    for (const Probe* probe = first_; probe != nullptr; probe = probe->next_) all.push_back(probe);
    return all;
  }

 private:
  const char* const name_;
  Probe* const next_;
  std::atomic<uint64_t> hits_{0};
  // Filled before main, by the constructors of what the macro declares.
  static inline constinit Probe* first_ = nullptr;
};

// Ties a probe's object, which exists from the start, to the place that hits it.
template <class Place>
struct ProbeAt {
  static inline Probe probe{Place::Name()};
};

}  // namespace mooncake

#define MC_PROBE(text)                                     \
  do {                                                     \
    struct Place {                                         \
      static constexpr const char* Name() { return text; } \
    };                                                     \
    ::mooncake::ProbeAt<Place>::probe.Hit();               \
  } while (false)
