// SharedText: an immutable text that many values share.
//
// A model's tensor ids stand in every fragment of every rank: copying a SharedText copies a pointer
// and counts it. It reads as the std::string that it holds. Threads: as std::shared_ptr.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <compare>
#include <cstddef>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace mooncake::manifest {

class SharedText {
 public:
  SharedText() = default;
  // NOLINTBEGIN(google-explicit-constructor): a text is given where a SharedText is wanted
  SharedText(std::string text) : node_(text.empty() ? nullptr : new Node(std::move(text))) {}
  SharedText(const char* text) : SharedText(std::string(text)) {}
  SharedText(std::string_view text) : SharedText(std::string(text)) {}
  // NOLINTEND(google-explicit-constructor)
  SharedText(const SharedText& other) : node_(other.node_) {
    if (node_ != nullptr) node_->count.fetch_add(1, std::memory_order_relaxed);
  }
  SharedText(SharedText&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  SharedText& operator=(SharedText other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~SharedText() {
    if (node_ == nullptr) return;
    // The last owner must see all that the others did with the text before it frees it.
    if (node_->count.fetch_sub(1, std::memory_order_acq_rel) == 1) delete node_;
  }

  const std::string& str() const { return node_ == nullptr ? Empty() : node_->text; }
  // NOLINTBEGIN(google-explicit-constructor): and the other way round
  operator const std::string&() const { return str(); }
  operator std::string_view() const { return str(); }
  // NOLINTEND(google-explicit-constructor)
  bool empty() const { return node_ == nullptr; }
  size_t size() const { return str().size(); }
  const char* data() const { return str().data(); }
  // Both are one text in memory. What is not may still be equal.
  bool IsSameAs(const SharedText& other) const { return node_ == other.node_; }

  friend bool operator==(const SharedText& a, const SharedText& b) {
    return a.node_ == b.node_ || a.str() == b.str();
  }
  friend bool operator==(const SharedText& a, std::string_view b) { return a.str() == b; }
  friend bool operator==(const SharedText& a, const std::string& b) { return a.str() == b; }
  friend bool operator==(const SharedText& a, const char* b) { return a.str() == b; }
  friend std::strong_ordering operator<=>(const SharedText& a, const SharedText& b) {
    return a.str() <=> b.str();
  }
  friend std::string operator+(std::string a, const SharedText& b) {
    a += b.str();
    return a;
  }
  friend std::string operator+(const SharedText& a, std::string_view b) {
    std::string joined = a.str();
    joined += b;
    return joined;
  }
  friend std::ostream& operator<<(std::ostream& out, const SharedText& text) {
    return out << text.str();
  }

 private:
  struct Node {
    explicit Node(std::string value) : text(std::move(value)) {}
    std::atomic<size_t> count{1};
    const std::string text;
  };
  static const std::string& Empty() {
    static const std::string* const empty = new std::string;
    return *empty;
  }

  Node* node_ = nullptr;  // null: the empty text
};

}  // namespace mooncake::manifest

template <>
struct fmt::formatter<mooncake::manifest::SharedText> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const mooncake::manifest::SharedText& text, Context& context) const {
    return fmt::formatter<std::string_view>::format(text.str(), context);
  }
};

template <>
struct std::hash<mooncake::manifest::SharedText> {
  size_t operator()(const mooncake::manifest::SharedText& text) const {
    return std::hash<std::string_view>()(text.str());
  }
};
