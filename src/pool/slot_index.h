// SlotIndex: finds a slot number by a hash and a test of equality; what is in the slots is the
// caller's. Open addressing, 8 bytes a place, at most two thirds full. Single-threaded.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/check.h"

namespace mooncake::pool {

class SlotIndex {
 public:
  // The slot with this hash for which `same(slot)`.
  template <class Same>
  std::optional<uint32_t> Find(uint64_t hash, const Same& same) const {
    if (places_.empty()) return std::nullopt;
    const uint32_t short_hash = Short(hash);
    for (size_t i = Home(short_hash); places_[i].slot != kEmpty; i = Next(i)) {
      if (places_[i].hash == short_hash && same(places_[i].slot)) return places_[i].slot;
    }
    return std::nullopt;
  }

  // The slot must not be in yet.
  void Insert(uint64_t hash, uint32_t slot) {
    if ((count_ + 1) * 3 > places_.size() * 2) Grow();
    Put({Short(hash), slot});
    ++count_;
  }

  // The slot must be in.
  void Erase(uint64_t hash, uint32_t slot) {
    MC_CHECK(!places_.empty());
    size_t hole = Home(Short(hash));
    while (places_[hole].slot != slot) {
      MC_CHECK(places_[hole].slot != kEmpty);
      hole = Next(hole);
    }
    // Whoever was pushed past the hole moves back, so that no search ends at it too early.
    for (size_t i = Next(hole); places_[i].slot != kEmpty; i = Next(i)) {
      const size_t home = Home(places_[i].hash);
      const bool stays = hole < i ? hole < home && home <= i : hole < home || home <= i;
      if (stays) continue;
      places_[hole] = places_[i];
      hole = i;
    }
    places_[hole].slot = kEmpty;
    --count_;
  }

  size_t size() const { return count_; }

 private:
  static constexpr uint32_t kEmpty = UINT32_MAX;
  struct Place {
    uint32_t hash = 0;
    uint32_t slot = kEmpty;
  };

  static uint32_t Short(uint64_t hash) { return static_cast<uint32_t>(hash ^ (hash >> 32)); }
  size_t Home(uint32_t short_hash) const { return short_hash & (places_.size() - 1); }
  size_t Next(size_t i) const { return (i + 1) & (places_.size() - 1); }
  void Put(Place place) {
    size_t i = Home(place.hash);
    while (places_[i].slot != kEmpty) i = Next(i);
    places_[i] = place;
  }
  void Grow() {
    std::vector<Place> old(places_.empty() ? 16 : places_.size() * 2);
    old.swap(places_);
    for (const Place& place : old) {
      if (place.slot != kEmpty) Put(place);
    }
  }

  std::vector<Place> places_;
  size_t count_ = 0;
};

}  // namespace mooncake::pool
