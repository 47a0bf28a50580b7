// Inputs of several messages: each behind its length as two bytes, little-endian. Whatever the
// bytes are, they are some list of frames.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake::fuzz {

inline std::vector<std::string_view> FramesOf(std::string_view bytes) {
  std::vector<std::string_view> frames;
  while (bytes.size() >= 2) {
    const size_t length =
        static_cast<uint8_t>(bytes[0]) | static_cast<size_t>(static_cast<uint8_t>(bytes[1])) << 8;
    frames.push_back(bytes.substr(2, length));
    bytes.remove_prefix(2 + frames.back().size());
  }
  return frames;
}

// Frames are shorter than 64 KiB.
inline void AppendFrame(std::string_view frame, std::string* bytes) {
  bytes->push_back(static_cast<char>(frame.size() & 0xff));
  bytes->push_back(static_cast<char>(frame.size() >> 8));
  *bytes += frame;
}

}  // namespace mooncake::fuzz
