// Distinct types for distinct numbers: a WeightGeneration never compiles where a MetadataGeneration
// is wanted.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace mooncake {

template <class Tag>
struct StrongId {
  uint64_t value = 0;

  constexpr StrongId() = default;
  constexpr explicit StrongId(uint64_t v) : value(v) {}
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

}  // namespace mooncake

template <class Tag>
struct std::hash<mooncake::StrongId<Tag>> {
  size_t operator()(mooncake::StrongId<Tag> id) const noexcept {
    return std::hash<uint64_t>()(id.value);
  }
};
