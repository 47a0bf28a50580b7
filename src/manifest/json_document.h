// A parsed JSON text (RFC 8259, strictly), as a flat tape of 16-byte nodes over the text itself.
//
// Internal to the folder. The text is the world's: any bytes give a document or INVALID_ARGUMENT.
// Integers keep their exact value; a float is only known to be one. Memory is linear in the text
// and recursion is bounded by kJsonDepthMax. A document keeps views into the text, which outlives
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake::manifest {

enum class JsonKind : uint8_t {
  kNull,
  kBool,
  kInteger,     // fits in int64_t
  kUnsigned,    // fits in uint64_t, not in int64_t
  kBigInteger,  // fits in neither
  kFloat,
  kText,         // no escapes: a piece of the source
  kEscapedText,  // unescaped, in the document
  kArray,
  kObject,
};

// 16 bytes. `count`: elements, members, or bytes of a text. `value`: the integer's bits, where a
// text begins, or for a container the index of the node behind its last descendant.
struct JsonNode {
  JsonKind kind = JsonKind::kNull;
  uint32_t count = 0;
  uint64_t value = 0;
};

class JsonValue;

class JsonDocument {
 public:
  // `what` names the document in messages: "{what} is not valid JSON: ...".
  static Result<JsonDocument> Parse(std::string_view what, std::string_view source);

  JsonValue root() const;

 private:
  friend class JsonParser;
  friend class JsonValue;

  std::string_view source_;
  std::string unescaped_;
  std::vector<JsonNode> nodes_;
};

// A place in a document; cheap to copy, valid while the document is.
class JsonValue {
 public:
  JsonValue() = default;
  JsonValue(const JsonDocument* document, size_t index) : document_(document), index_(index) {}

  JsonKind kind() const { return node().kind; }
  bool is_text() const { return kind() == JsonKind::kText || kind() == JsonKind::kEscapedText; }
  // Elements of an array, members of an object.
  size_t count() const { return node().count; }
  // kInteger.
  int64_t integer() const { return static_cast<int64_t>(node().value); }
  // kBool.
  bool boolean() const { return node().value != 0; }
  // kUnsigned.
  uint64_t unsigned_integer() const { return node().value; }
  std::string_view text() const;

  // First element of an array; first key of an object, whose value follows it.
  JsonValue first() const { return {document_, index_ + 1}; }
  // The value behind this one and all its descendants.
  JsonValue next() const;

 private:
  const JsonNode& node() const { return document_->nodes_[index_]; }

  const JsonDocument* document_ = nullptr;
  size_t index_ = 0;
};

}  // namespace mooncake::manifest
