#include "oplog/wal_check.h"

#include <fmt/format.h>

#include <cstdint>

namespace mooncake::oplog {
namespace {

constexpr size_t kHeaderBytes = 32;
constexpr size_t kFrameHeaderBytes = 24;
constexpr uint32_t kOurPageBytes = 4096;  // SQLite's default, which the log never changes
constexpr uint32_t kMagic = 0x377f0682;   // its last bit: checksums are over big-endian words

uint32_t Word(std::string_view bytes, size_t at, bool big_endian = true) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[at + (big_endian ? i : 3 - i)]);
    word = word << 8 | byte;
  }
  return word;
}

// SQLite's running checksum.
struct Checksum {
  bool big_endian = false;
  uint32_t first = 0;
  uint32_t second = 0;

  void Add(std::string_view bytes) {
    for (size_t at = 0; at + 8 <= bytes.size(); at += 8) {
      first += Word(bytes, at, big_endian) + second;
      second += Word(bytes, at + 4, big_endian) + first;
    }
  }
  bool Is(std::string_view bytes, size_t at) const {
    return Word(bytes, at) == first && Word(bytes, at + 4) == second;
  }
};

// Where frames have the salts of this use of the file, from `at` on: whether a commit is among them
// that another frame follows.
bool WholeCommitFrom(std::string_view file, size_t at, size_t frame_bytes, std::string_view salts) {
  bool committed = false;
  for (; at + frame_bytes <= file.size(); at += frame_bytes) {
    if (file.substr(at + 8, 8) != salts) continue;
    if (committed) return true;
    committed = Word(file, at + 4) != 0;
  }
  return false;
}

}  // namespace

Status CheckWriteAheadFile(std::string_view file) {
  if (file.size() < kHeaderBytes + kFrameHeaderBytes) return OkStatus();
  const uint32_t magic = Word(file, 0);
  Checksum sum{.big_endian = (magic & 1) != 0};
  sum.Add(file.substr(0, 24));
  // A header is one sector, which a disk writes whole or not at all, and it is synced before the
  // first frame.
  const bool header_checks = (magic & ~1U) == kMagic && sum.Is(file, 24);
  const size_t frame_bytes = kFrameHeaderBytes + (header_checks ? Word(file, 8) : kOurPageBytes);
  const std::string_view salts = file.substr(header_checks ? 16 : kHeaderBytes + 8, 8);
  size_t at = kHeaderBytes;
  for (; header_checks && at + frame_bytes <= file.size(); at += frame_bytes) {
    sum.Add(file.substr(at, 8));
    sum.Add(file.substr(at + kFrameHeaderBytes, frame_bytes - kFrameHeaderBytes));
    if (file.substr(at + 8, 8) != salts || !sum.Is(file, at + 16)) break;
  }
  if (!WholeCommitFrom(file, at, frame_bytes, salts)) return OkStatus();
  return Corrupt(fmt::format(
      "the write-ahead file is damaged at byte {}: what does not check is followed by commits",
      header_checks ? at : 0));
}

}  // namespace mooncake::oplog
