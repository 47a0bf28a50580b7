#include "env/own_memory.h"

#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "env/clock.h"
#include "env/file.h"

namespace mooncake::env {
namespace {

// How long a list of mappings is believed.
constexpr int64_t kMappingsMs = 1'000;

std::optional<PeerProcess> OpenSelf() {
  Result<PeerProcess> self = PeerProcess::Open(::getpid());
  if (!self.ok()) return std::nullopt;
  return *std::move(self);
}

uint64_t Hex(std::string_view text, size_t* used) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  *used = error == std::errc() ? static_cast<size_t>(end - text.data()) : 0;
  return number;
}

Status Unusable(const OwnRange& range, bool write) {
  return InvalidArgument(std::to_string(range.bytes) + " bytes at address " +
                         std::to_string(reinterpret_cast<uint64_t>(range.address)) +
                         " are no memory that this process can " + (write ? "write" : "read"));
}

}  // namespace

OwnMemory::OwnMemory() : self_(OpenSelf()) {}

bool OwnMemory::ProbesSucceed(std::span<const OwnRange> ranges) const {
  std::vector<PeerRange> probes;
  probes.reserve(ranges.size() * 2);
  std::byte sink{};
  for (const OwnRange& range : ranges) {
    if (range.bytes == 0) continue;
    const auto begin = reinterpret_cast<uint64_t>(range.address);
    if (range.bytes - 1 > UINT64_MAX - begin) return false;
    probes.push_back({begin, &sink, 1});
    if (range.bytes > 1) probes.push_back({begin + range.bytes - 1, &sink, 1});
  }
  const Status read = self_->Read(probes);
  // Anything else says nothing about the memory.
  return read.code() != Code::kInvalidArgument;
}

std::optional<OwnMemory::Mappings> OwnMemory::ReadMappings() {
  std::lock_guard lock(mutex_);
  const int64_t now_ms = SystemClock::Instance().MonotonicMs();
  if (!mappings_.empty() && now_ms - read_ms_ < kMappingsMs) return mappings_;
  const Result<std::string> text = ReadFile("/proc/self/maps");
  if (!text.ok()) return std::nullopt;
  mappings_.clear();
  auto last = mappings_.end();
  std::string_view left = *text;
  while (!left.empty()) {
    // 7f12a000-7f12b000 rw-p ...
    const size_t line_end = std::min(left.find('\n'), left.size() - 1);
    const std::string_view line = left.substr(0, line_end);
    left.remove_prefix(line_end + 1);
    size_t used = 0;
    const uint64_t begin = Hex(line, &used);
    if (used == 0 || used + 1 >= line.size()) continue;
    const std::string_view behind = line.substr(used + 1);
    const uint64_t end = Hex(behind, &used);
    if (used == 0 || used + 2 >= behind.size() || behind[used + 1] != 'r') continue;
    const bool writable = behind[used + 2] == 'w';
    if (last != mappings_.end() && last->second.end == begin && last->second.writable == writable) {
      last->second.end = end;
    } else {
      last = mappings_.emplace_hint(mappings_.end(), begin, Mapped{end, writable});
    }
  }
  read_ms_ = now_ms;
  return mappings_;
}

std::vector<Status> OwnMemory::Check(std::span<const OwnRange> ranges, bool write) {
  std::vector<Status> statuses(ranges.size());
  if (!self_.has_value() || ProbesSucceed(ranges)) return statuses;
  const std::optional<Mappings> mappings = ReadMappings();
  if (!mappings.has_value()) return statuses;
  for (size_t i = 0; i < ranges.size(); ++i) {
    uint64_t at = reinterpret_cast<uint64_t>(ranges[i].address);
    uint64_t left = ranges[i].bytes;
    while (left > 0) {
      auto behind = mappings->upper_bound(at);
      const bool inside = behind != mappings->begin() && (--behind)->second.end > at &&
                          (behind->second.writable || !write);
      if (!inside) {
        statuses[i] = Unusable(ranges[i], write);
        break;
      }
      const uint64_t step = std::min(left, behind->second.end - at);
      at += step;
      left -= step;
    }
  }
  return statuses;
}

}  // namespace mooncake::env
