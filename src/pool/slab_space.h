// SlabSpace: which ranges of one slab are free.
//
// Free neighbours are one range; nothing is kept per used range, so that the whole follows from the
// extents that lie in the slab, in whatever order they came. Deterministic; single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace mooncake::pool {

class SlabSpace {
 public:
  explicit SlabSpace(uint64_t bytes);

  // Where `bytes` would fit best: the smallest range that holds them, the first of its size.
  std::optional<uint64_t> Find(uint64_t bytes) const;
  // False, and nothing changes: it is not all free.
  [[nodiscard]] bool Take(uint64_t offset, uint64_t bytes);
  // False, and nothing changes: some of it is free already, or it leaves the slab.
  [[nodiscard]] bool Free(uint64_t offset, uint64_t bytes);

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_free() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }

 private:
  void Add(uint64_t begin, uint64_t end);
  void Erase(std::map<uint64_t, uint64_t>::iterator range);

  uint64_t bytes_;
  uint64_t free_bytes_ = 0;
  std::map<uint64_t, uint64_t> ranges_;              // begin -> end
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // size, begin
};

}  // namespace mooncake::pool
