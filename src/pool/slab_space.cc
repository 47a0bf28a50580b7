#include "pool/slab_space.h"

namespace mooncake::pool {

SlabSpace::SlabSpace(uint64_t bytes) : bytes_(bytes) {
  if (bytes > 0) Add(0, bytes);
}

void SlabSpace::Add(uint64_t begin, uint64_t end) {
  ranges_.emplace(begin, end);
  by_size_.emplace(end - begin, begin);
  free_bytes_ += end - begin;
}

void SlabSpace::Erase(std::map<uint64_t, uint64_t>::iterator range) {
  const uint64_t bytes = range->second - range->first;
  by_size_.erase({bytes, range->first});
  free_bytes_ -= bytes;
  ranges_.erase(range);
}

std::optional<uint64_t> SlabSpace::Find(uint64_t bytes) const {
  const auto at = by_size_.lower_bound({bytes, 0});
  if (bytes == 0 || at == by_size_.end()) return std::nullopt;
  return at->second;
}

bool SlabSpace::Take(uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || bytes > bytes_ || offset > bytes_ - bytes) return false;
  auto at = ranges_.upper_bound(offset);
  if (at == ranges_.begin()) return false;
  --at;
  const auto [begin, end] = *at;
  if (end < offset + bytes) return false;
  Erase(at);
  if (begin < offset) Add(begin, offset);
  if (offset + bytes < end) Add(offset + bytes, end);
  return true;
}

bool SlabSpace::Free(uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || bytes > bytes_ || offset > bytes_ - bytes) return false;
  uint64_t begin = offset;
  uint64_t end = offset + bytes;
  const auto next = ranges_.lower_bound(offset);
  if (next != ranges_.end() && next->first < end) return false;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (before->second > offset) return false;
    if (before->second == offset) {
      begin = before->first;
      Erase(before);
    }
  }
  if (next != ranges_.end() && next->first == end) {
    end = next->second;
    Erase(next);
  }
  Add(begin, end);
  return true;
}

}  // namespace mooncake::pool
