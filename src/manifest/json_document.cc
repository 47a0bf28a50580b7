#include "manifest/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "manifest/field_checks.h"
#include "manifest/json.h"

namespace mooncake::manifest {

JsonValue JsonDocument::root() const { return {this, 0}; }

std::string_view JsonValue::text() const {
  const JsonNode& n = node();
  const std::string_view whole = n.kind == JsonKind::kEscapedText
                                     ? std::string_view(document_->unescaped_)
                                     : document_->source_;
  return whole.substr(n.value, n.count);
}

JsonValue JsonValue::next() const {
  const JsonNode& n = node();
  const bool container = n.kind == JsonKind::kArray || n.kind == JsonKind::kObject;
  return {document_, container ? n.value : index_ + 1};
}

namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

void AppendUtf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
    return;
  }
  if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      out += static_cast<char>(0xE0 | code_point >> 12);
    } else {
      out += static_cast<char>(0xF0 | code_point >> 18);
      out += static_cast<char>(0x80 | (code_point >> 12 & 0x3F));
    }
    out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
  }
  out += static_cast<char>(0x80 | (code_point & 0x3F));
}

}  // namespace

// One pass, recursive descent over values; depth is checked before every container.
class JsonParser {
 public:
  JsonParser(std::string_view what, std::string_view source) : what_(what), source_(source) {
    document_.source_ = source;
  }

  Result<JsonDocument> Run() {
    if (source_.size() > UINT32_MAX) return Invalid("larger than 4 GiB");
    if (!IsValidUtf8(source_)) {
      return InvalidArgument(fmt::format("{} is not valid JSON: not UTF-8", what_));
    }
    MC_RETURN_IF_ERROR(Value(0));
    SkipSpace();
    if (at_ != source_.size()) return Invalid("extra data");
    return std::move(document_);
  }

 private:
  Status Invalid(std::string_view why) const {
    return InvalidArgument(fmt::format("{} is not valid JSON: {} at byte {}", what_, why, at_));
  }

  // 0 at the end: a NUL is nowhere part of the grammar.
  char Peek() const { return at_ < source_.size() ? source_[at_] : '\0'; }
  void SkipSpace() {
    while (at_ < source_.size() && IsSpace(source_[at_])) ++at_;
  }
  bool Take(char c) {
    if (Peek() != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (!source_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  void Push(JsonKind kind, uint32_t count = 0, uint64_t value = 0) {
    document_.nodes_.push_back({kind, count, value});
  }

  // `depth` counts the containers around the value.
  Status Value(int depth) {
    SkipSpace();
    switch (Peek()) {
      case '{':
        return depth < kJsonDepthMax ? Object(depth) : TooDeep();
      case '[':
        return depth < kJsonDepthMax ? Array(depth) : TooDeep();
      case '"':
        return Text();
      default:
        return Literal();
    }
  }

  Status TooDeep() const {
    return Invalid(fmt::format("nesting deeper than {} levels", kJsonDepthMax));
  }

  Status Literal() {
    if (TakeWord("null")) return Push(JsonKind::kNull), OkStatus();
    if (TakeWord("true")) return Push(JsonKind::kBool, 0, 1), OkStatus();
    if (TakeWord("false")) return Push(JsonKind::kBool), OkStatus();
    for (const std::string_view constant : {"NaN", "Infinity", "-Infinity"}) {
      if (TakeWord(constant)) {
        return InvalidArgument(fmt::format("non-finite JSON number is unsupported: {}", constant));
      }
    }
    return Number();
  }

  Status Number() {
    const size_t begin = at_;
    Take('-');
    if (!IsDigit(Peek())) return Invalid("expected a value");
    if (!Take('0')) SkipDigits();
    bool is_float = false;
    // As the contract's reader: a '.' or 'e' without digits ends the number and is extra data.
    if (Peek() == '.' && IsDigit(PeekAt(1))) {
      is_float = true;
      ++at_;
      SkipDigits();
    }
    if (Peek() == 'e' || Peek() == 'E') {
      const size_t sign = PeekAt(1) == '+' || PeekAt(1) == '-' ? 1 : 0;
      if (IsDigit(PeekAt(1 + sign))) {
        is_float = true;
        at_ += 1 + sign;
        SkipDigits();
      }
    }
    PushNumber(begin, is_float);
    return OkStatus();
  }

  char PeekAt(size_t ahead) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  void SkipDigits() {
    while (IsDigit(Peek())) ++at_;
  }

  void PushNumber(size_t begin, bool is_float) {
    const char* first = source_.data() + begin;
    const char* last = source_.data() + at_;
    const auto length = static_cast<uint32_t>(at_ - begin);
    if (is_float) return Push(JsonKind::kFloat, length, begin);
    int64_t integer = 0;
    if (std::from_chars(first, last, integer).ec == std::errc()) {
      return Push(JsonKind::kInteger, 0, static_cast<uint64_t>(integer));
    }
    uint64_t unsigned_integer = 0;
    if (*first != '-' && std::from_chars(first, last, unsigned_integer).ec == std::errc()) {
      return Push(JsonKind::kUnsigned, 0, unsigned_integer);
    }
    Push(JsonKind::kBigInteger, length, begin);
  }

  Status Text() {
    ++at_;  // the opening quote
    const size_t begin = at_;
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '"') {
        Push(JsonKind::kText, static_cast<uint32_t>(at_ - begin), begin);
        ++at_;
        return OkStatus();
      }
      if (c == '\\') return EscapedText(begin);
      if (static_cast<uint8_t>(c) < 0x20) return Invalid("control character in a string");
      ++at_;
    }
    return Invalid("unterminated string");
  }

  // A text that has an escape at at_; it began at `begin`.
  Status EscapedText(size_t begin) {
    std::string& out = document_.unescaped_;
    const size_t out_begin = out.size();
    out += source_.substr(begin, at_ - begin);
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (c == '"') {
        ++at_;
        Push(JsonKind::kEscapedText, static_cast<uint32_t>(out.size() - out_begin), out_begin);
        return OkStatus();
      }
      if (static_cast<uint8_t>(c) < 0x20) return Invalid("control character in a string");
      if (c == '\\') {
        MC_RETURN_IF_ERROR(Escape(out));
      } else {
        out += c;
        ++at_;
      }
    }
    return Invalid("unterminated string");
  }

  Status Escape(std::string& out) {
    const char kind = PeekAt(1);
    if (kind == 'u') return UnicodeEscape(out);
    static constexpr std::string_view kShort = "\"\\/bfnrt";
    static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
    const size_t position = kind == '\0' ? kShort.npos : kShort.find(kind);
    if (position == kShort.npos) return Invalid("invalid escape");
    out += kMeaning[position];
    at_ += 2;
    return OkStatus();
  }

  Status UnicodeEscape(std::string& out) {
    uint32_t code_point = 0;
    if (!CodeUnit(code_point)) return Invalid("invalid \\u escape");
    if (code_point >= 0xDC00 && code_point < 0xE000) return Invalid("lone surrogate escape");
    if (code_point >= 0xD800 && code_point < 0xDC00) {
      uint32_t low = 0;
      if (!CodeUnit(low) || low < 0xDC00 || low >= 0xE000) return Invalid("lone surrogate escape");
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
    }
    AppendUtf8(code_point, out);
    return OkStatus();
  }

  // Takes "\uXXXX".
  bool CodeUnit(uint32_t& unit) {
    if (Peek() != '\\' || PeekAt(1) != 'u' || at_ + 6 > source_.size()) return false;
    const char* first = source_.data() + at_ + 2;
    const auto [end, error] = std::from_chars(first, first + 4, unit, 16);
    if (error != std::errc() || end != first + 4) return false;
    at_ += 6;
    return true;
  }

  Status Array(int depth) {
    ++at_;
    const size_t node = document_.nodes_.size();
    Push(JsonKind::kArray);
    uint32_t count = 0;
    SkipSpace();
    if (!Take(']')) {
      do {
        MC_RETURN_IF_ERROR(Value(depth + 1));
        ++count;
        SkipSpace();
      } while (Take(','));
      if (!Take(']')) return Invalid("expected ',' or ']'");
    }
    document_.nodes_[node] = {JsonKind::kArray, count, document_.nodes_.size()};
    return OkStatus();
  }

  Status Object(int depth) {
    ++at_;
    const size_t node = document_.nodes_.size();
    Push(JsonKind::kObject);
    uint32_t count = 0;
    SkipSpace();
    if (!Take('}')) {
      do {
        SkipSpace();
        if (Peek() != '"') return Invalid("expected a key");
        MC_RETURN_IF_ERROR(Text());
        SkipSpace();
        if (!Take(':')) return Invalid("expected ':'");
        MC_RETURN_IF_ERROR(Value(depth + 1));
        ++count;
        SkipSpace();
      } while (Take(','));
      if (!Take('}')) return Invalid("expected ',' or '}'");
    }
    document_.nodes_[node] = {JsonKind::kObject, count, document_.nodes_.size()};
    return CheckKeysDistinct(JsonValue(&document_, node));
  }

  Status CheckKeysDistinct(JsonValue object) {
    keys_.clear();
    JsonValue key = object.first();
    for (size_t i = 0; i < object.count(); ++i, key = key.next().next())
      keys_.push_back(key.text());
    std::sort(keys_.begin(), keys_.end());
    const auto twin = std::adjacent_find(keys_.begin(), keys_.end());
    if (twin == keys_.end()) return OkStatus();
    return InvalidArgument(fmt::format("duplicate JSON field: {}", *twin));
  }

  std::string_view what_;
  std::string_view source_;
  size_t at_ = 0;
  JsonDocument document_;
  std::vector<std::string_view> keys_;  // of the object just read; kept for its memory
};

Result<JsonDocument> JsonDocument::Parse(std::string_view what, std::string_view source) {
  return JsonParser(what, source).Run();
}

}  // namespace mooncake::manifest
