// Sorting of contract values by one of their ids, and finding equal ids.
//
// Internal to the folder. The values are several hundred bytes each: what is sorted is their ids
// and positions, and every value moves at most once.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mooncake::manifest {

// Positions 0..n-1 ordered by their ids; equal ones keep their order. `id_of(position)` gives a
// std::string_view that stays.
//
// Ids that are digests differ in their first bytes after "sha256:": eight bytes from where the ids
// begin to differ are kept beside each position and decide nearly every comparison, so that the
// texts, which lie all over memory, are read once.
template <class IdOf>
std::vector<uint32_t> PositionsById(size_t count, IdOf id_of) {
  struct Key {
    uint64_t prefix = 0;
    uint32_t position = 0;
  };
  std::vector<uint32_t> positions(count);
  if (count == 0) return positions;
  const std::string_view first = id_of(0);
  size_t common = first.size();
  for (size_t i = 1; i < count && common > 0; ++i) {
    const std::string_view id = id_of(i);
    common = std::min(common, id.size());
    if (id.substr(0, common) == first.substr(0, common)) continue;
    common = static_cast<size_t>(
        std::mismatch(id.begin(), id.begin() + static_cast<ptrdiff_t>(common), first.begin())
            .first -
        id.begin());
  }
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view rest = id_of(i).substr(common);
    uint64_t prefix = 0;  // a shorter id comes first, and so do its zeros
    rest.copy(reinterpret_cast<char*>(&prefix), sizeof(prefix));
    if constexpr (std::endian::native == std::endian::little) prefix = __builtin_bswap64(prefix);
    keys[i] = {prefix, static_cast<uint32_t>(i)};
  }
  std::sort(keys.begin(), keys.end(), [&id_of](const Key& a, const Key& b) {
    if (a.prefix != b.prefix) return a.prefix < b.prefix;
    const int order = id_of(a.position).compare(id_of(b.position));
    return order != 0 ? order < 0 : a.position < b.position;
  });
  for (size_t i = 0; i < count; ++i) positions[i] = keys[i].position;
  return positions;
}

// Stable.
template <class T, class Id>
void SortBy(std::vector<T>& values, Id T::*id) {
  const auto less = [id](const T& a, const T& b) { return a.*id < b.*id; };
  if (std::is_sorted(values.begin(), values.end(), less)) return;
  const std::vector<uint32_t> order =
      PositionsById(values.size(), [&](size_t i) { return std::string_view(values[i].*id); });
  std::vector<T> sorted;
  sorted.reserve(values.size());
  for (const uint32_t position : order) sorted.push_back(std::move(values[position]));
  values = std::move(sorted);
}

// The first value whose id equals its predecessor's; nullptr when ids are distinct. `sorted` is.
template <class Sorted, class Member>
auto FirstTwin(const Sorted& sorted, Member id) -> decltype(&sorted[0]) {
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].*id == sorted[i - 1].*id) return &sorted[i];
  }
  return nullptr;
}

// Positions 0..n-1 ordered by `less` over positions; equal ones keep their order.
template <class Less>
std::vector<uint32_t> SortedPositions(size_t count, Less less) {
  std::vector<uint32_t> positions(count);
  std::iota(positions.begin(), positions.end(), 0U);
  std::stable_sort(positions.begin(), positions.end(), less);
  return positions;
}

}  // namespace mooncake::manifest
