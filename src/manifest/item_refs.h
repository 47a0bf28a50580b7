// Lists of values that lie elsewhere, which read as lists of the values themselves.
//
// A placement's fragments and tensors stand in several lists (of a part, of the placement, of a
// plan): each value lies in memory once. All are immutable lists of immutable values, with the
// reading half of std::vector's interface.
#pragma once

#include <compare>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace mooncake::manifest {

// Over pointers of any kind, gives what they point to.
template <class T, class Base>
class DerefIterator {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = std::ptrdiff_t;
  using pointer = const T*;
  using reference = const T&;

  DerefIterator() = default;
  explicit DerefIterator(Base base) : base_(base) {}

  const T& operator*() const { return **base_; }
  const T* operator->() const { return &**base_; }
  const T& operator[](std::ptrdiff_t n) const { return *base_[n]; }
  DerefIterator& operator++() { return *this += 1; }
  DerefIterator& operator--() { return *this += -1; }
  DerefIterator operator++(int) { return DerefIterator(base_++); }
  DerefIterator operator--(int) { return DerefIterator(base_--); }
  DerefIterator& operator+=(std::ptrdiff_t n) {
    base_ += n;
    return *this;
  }
  DerefIterator& operator-=(std::ptrdiff_t n) { return *this += -n; }
  friend DerefIterator operator+(DerefIterator a, std::ptrdiff_t n) { return a += n; }
  friend DerefIterator operator+(std::ptrdiff_t n, DerefIterator a) { return a += n; }
  friend DerefIterator operator-(DerefIterator a, std::ptrdiff_t n) { return a -= n; }
  friend std::ptrdiff_t operator-(DerefIterator a, DerefIterator b) { return a.base_ - b.base_; }
  friend bool operator==(const DerefIterator&, const DerefIterator&) = default;
  friend auto operator<=>(const DerefIterator&, const DerefIterator&) = default;

 private:
  Base base_{};
};

// Values that this list and others own together.
template <class T>
class SharedList {
 public:
  using Pointer = std::shared_ptr<const T>;
  using const_iterator = DerefIterator<T, typename std::vector<Pointer>::const_iterator>;
  using value_type = T;

  SharedList() = default;
  SharedList(std::initializer_list<T> values) : SharedList(std::vector<T>(values)) {}
  explicit SharedList(std::vector<T> values) {
    reserve(values.size());
    for (T& value : values) push_back(std::move(value));
  }

  void push_back(T value) { items_.push_back(std::make_shared<const T>(std::move(value))); }
  void push_back(Pointer value) { items_.push_back(std::move(value)); }
  void reserve(size_t count) { items_.reserve(count); }
  void clear() { items_.clear(); }
  void replace(size_t at, Pointer value) { items_[at] = std::move(value); }
  std::vector<Pointer>& pointers() { return items_; }
  const std::vector<Pointer>& pointers() const { return items_; }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const T& operator[](size_t at) const { return *items_[at]; }
  const_iterator begin() const { return const_iterator(items_.begin()); }
  const_iterator end() const { return const_iterator(items_.end()); }

  friend bool operator==(const SharedList& a, const SharedList& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i) {
      if (a.items_[i] != b.items_[i] && !(a[i] == b[i])) return false;
    }
    return true;
  }

 private:
  std::vector<Pointer> items_;
};

// Values that somebody else owns, who outlives the list.
template <class T>
class ItemRefs {
 public:
  using const_iterator = DerefIterator<T, typename std::vector<const T*>::const_iterator>;
  using value_type = T;

  ItemRefs() = default;
  explicit ItemRefs(std::vector<const T*> items) : items_(std::move(items)) {}

  std::span<const T* const> pointers() const { return items_; }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  const T& operator[](size_t at) const { return *items_[at]; }
  const_iterator begin() const { return const_iterator(items_.begin()); }
  const_iterator end() const { return const_iterator(items_.end()); }

 private:
  std::vector<const T*> items_;
};

// Values by position, wherever they lie: side by side, or each on its own. As std::span, it owns
// neither the values nor the list.
template <class T>
class ItemSpan {
 public:
  using value_type = T;

  ItemSpan() = default;
  // NOLINTBEGIN(google-explicit-constructor): a list is given where a span is wanted
  ItemSpan(const std::vector<T>& items) : dense_(items.data()), size_(items.size()) {}
  ItemSpan(std::span<const T> items) : dense_(items.data()), size_(items.size()) {}
  ItemSpan(std::span<const T* const> items) : refs_(items.data()), size_(items.size()) {}
  ItemSpan(const ItemRefs<T>& items) : ItemSpan(items.pointers()) {}
  // NOLINTEND(google-explicit-constructor)

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t at) const { return refs_ == nullptr ? dense_[at] : *refs_[at]; }
  ItemSpan subspan(size_t at, size_t count) const {
    ItemSpan part = *this;
    if (refs_ == nullptr) {
      part.dense_ += at;
    } else {
      part.refs_ += at;
    }
    part.size_ = count;
    return part;
  }

  class const_iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = const T&;

    const_iterator() = default;
    const_iterator(const ItemSpan& span, size_t at)
        : dense_(span.dense_), refs_(span.refs_), at_(static_cast<std::ptrdiff_t>(at)) {}

    const T& operator*() const { return refs_ == nullptr ? dense_[at_] : *refs_[at_]; }
    const T* operator->() const { return &**this; }
    const T& operator[](std::ptrdiff_t n) const { return *(*this + n); }
    const_iterator& operator++() { return *this += 1; }
    const_iterator& operator--() { return *this += -1; }
    const_iterator operator++(int) { return std::exchange(*this, *this + 1); }
    const_iterator operator--(int) { return std::exchange(*this, *this - 1); }
    const_iterator& operator+=(std::ptrdiff_t n) {
      at_ += n;
      return *this;
    }
    const_iterator& operator-=(std::ptrdiff_t n) { return *this += -n; }
    friend const_iterator operator+(const_iterator a, std::ptrdiff_t n) { return a += n; }
    friend const_iterator operator+(std::ptrdiff_t n, const_iterator a) { return a += n; }
    friend const_iterator operator-(const_iterator a, std::ptrdiff_t n) { return a -= n; }
    friend std::ptrdiff_t operator-(const const_iterator& a, const const_iterator& b) {
      return a.at_ - b.at_;
    }
    friend bool operator==(const const_iterator& a, const const_iterator& b) {
      return a.at_ == b.at_;
    }
    friend auto operator<=>(const const_iterator& a, const const_iterator& b) {
      return a.at_ <=> b.at_;
    }

   private:
    const T* dense_ = nullptr;
    const T* const* refs_ = nullptr;
    std::ptrdiff_t at_ = 0;
  };
  const_iterator begin() const { return {*this, 0}; }
  const_iterator end() const { return {*this, size_}; }

 private:
  const T* dense_ = nullptr;
  const T* const* refs_ = nullptr;  // null: side by side
  size_t size_ = 0;
};

}  // namespace mooncake::manifest
