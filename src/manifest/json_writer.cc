#include "manifest/json_writer.h"

#include <array>
#include <charconv>

namespace mooncake::manifest {

namespace {

// The short escape of `c`, 0 when it has none.
char ShortEscape(char c) {
  switch (c) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    default:
      return 0;
  }
}

// Printable ASCII without an escape.
bool IsPlain(char c) {
  static constexpr std::array<bool, 256> kPlain = [] {
    std::array<bool, 256> plain{};
    for (size_t byte = 0x20; byte < 0x7F; ++byte) plain[byte] = byte != '"' && byte != '\\';
    return plain;
  }();
  return kPlain[static_cast<uint8_t>(c)];
}

}  // namespace

void JsonWriter::Escape(uint32_t code_unit) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const char escape[] = {'\\',
                         'u',
                         kDigits[code_unit >> 12 & 15],
                         kDigits[code_unit >> 8 & 15],
                         kDigits[code_unit >> 4 & 15],
                         kDigits[code_unit & 15]};
  buffer_.append(escape, sizeof(escape));
}

size_t JsonWriter::NonAscii(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t code_point = lead & (0xFF >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    const uint8_t tail = at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0;
    code_point = code_point << 6 | (tail & 0x3F);
  }
  if (code_point < 0x10000) {
    Escape(code_point);
  } else {
    Escape(0xD800 + ((code_point - 0x10000) >> 10));
    Escape(0xDC00 + ((code_point - 0x10000) & 0x3FF));
  }
  return at + length;
}

void JsonWriter::Text(std::string_view text) {
  buffer_ += '"';
  size_t at = 0;
  while (at < text.size()) {
    // What stands for itself is written at once.
    size_t plain = at;
    while (plain < text.size() && IsPlain(text[plain])) ++plain;
    buffer_.append(text, at, plain - at);
    at = plain;
    if (at == text.size()) break;
    const char c = text[at];
    const auto byte = static_cast<uint8_t>(c);
    if (const char escape = ShortEscape(c); escape != 0) {
      buffer_ += '\\';
      buffer_ += escape;
      ++at;
    } else if (byte < 0x20 || (byte == 0x7F && escaping_ == Escaping::kAscii)) {
      Escape(byte);
      ++at;
    } else if (byte < 0x80 || escaping_ == Escaping::kUtf8) {
      buffer_ += c;
      ++at;
    } else {
      at = NonAscii(text, at);
    }
  }
  Raw("\"");
}

template <std::integral Integer>
void JsonWriter::Number(Integer value) {
  if (value >= 0 && value < 10) {  // most: ranks, offsets
    buffer_ += static_cast<char>('0' + static_cast<int>(value));
    return;
  }
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  buffer_.append(digits, static_cast<size_t>(end - digits));
}

template void JsonWriter::Number(int64_t);
template void JsonWriter::Number(uint64_t);

void JsonWriter::Numbers(std::span<const int64_t> values) {
  Array(values, [this](int64_t value) { Number(value); });
}

void JsonWriter::Texts(const std::vector<std::string>& texts) {
  Array(texts, [this](const std::string& text) { Text(text); });
}

void JsonWriter::Flush() {
  if (hash_ == nullptr) return;
  hash_->Update(buffer_);
  buffer_.clear();
}

}  // namespace mooncake::manifest
