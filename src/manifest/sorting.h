// Sorting of contract values by one of their ids, and finding equal ids.
//
// Internal to the folder. The values are several hundred bytes each: what is sorted is their ids
// and positions, and every value moves at most once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mooncake::manifest {

// Stable.
template <class T>
void SortBy(std::vector<T>& values, std::string T::*id) {
  const auto less = [id](const T& a, const T& b) { return a.*id < b.*id; };
  if (std::is_sorted(values.begin(), values.end(), less)) return;
  std::vector<std::pair<std::string_view, size_t>> order;
  order.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) order.emplace_back(values[i].*id, i);
  std::sort(order.begin(), order.end());
  std::vector<T> sorted;
  sorted.reserve(values.size());
  for (const auto& [key, position] : order) sorted.push_back(std::move(values[position]));
  values = std::move(sorted);
}

// The first value whose id equals its predecessor's; nullptr when ids are distinct. `sorted` is.
template <class T>
const T* FirstTwin(const std::vector<T>& sorted, std::string T::*id) {
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
