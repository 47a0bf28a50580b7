// Writes canonical JSON text, into memory or straight into a SHA-256.
//
// Internal to the folder. Writes what it is told: the caller spells keys and punctuation, in sorted
// order and without whitespace. Texts are valid UTF-8.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace mooncake::manifest {

enum class Escaping : uint8_t {
  kAscii,  // everything outside 0x20..0x7e as \uXXXX, astral characters as surrogate pairs
  kUtf8,   // only '"', '\' and controls below 0x20
};

class JsonWriter {
 public:
  // Into memory.
  explicit JsonWriter(Escaping escaping) : escaping_(escaping) { buffer_.reserve(kSmallBytes); }
  // Into `hash`, which outlives the writer; memory stays small. Call Flush before reading it.
  JsonWriter(Escaping escaping, Sha256& hash) : escaping_(escaping), hash_(&hash) {
    buffer_.reserve(kFlushBytes + kSmallBytes);
  }

  void Raw(std::string_view text) {
    buffer_ += text;
    if (hash_ != nullptr && buffer_.size() >= kFlushBytes) Flush();
  }
  void Text(std::string_view text);
  template <std::integral Integer>
  void Number(Integer value);
  void Numbers(std::span<const int64_t> values);
  void Texts(const std::vector<std::string>& texts);

  // Writes "[a,b]" by calling write(item).
  template <class Items, class Write>
  void Array(const Items& items, Write write) {
    Raw("[");
    bool first = true;
    for (const auto& item : items) {
      if (!first) Raw(",");
      first = false;
      write(item);
    }
    Raw("]");
  }

  void Flush();
  // The text in memory.
  std::string Take() { return std::move(buffer_); }

 private:
  static constexpr size_t kFlushBytes = 64 * 1024;
  static constexpr size_t kSmallBytes = 512;  // a fragment's text

  void Escape(uint32_t code_unit);
  // Writes the character that starts at `at`; returns the position behind it.
  size_t NonAscii(std::string_view text, size_t at);

  Escaping escaping_;
  Sha256* hash_ = nullptr;
  std::string buffer_;
};

extern template void JsonWriter::Number(int64_t);
extern template void JsonWriter::Number(uint64_t);

}  // namespace mooncake::manifest
