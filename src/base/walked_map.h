// A std::map whose walks are counted: every step of an iterator hits the probe "base.map_step".
//
// For state that grows with what a store holds, so that a test can say in steps, not in time, what
// a request looks at: finding one entry takes none. Owns nothing else, and is a std::map where one
// is asked for (whose own iterators count nothing).
#pragma once

#include <functional>
#include <map>

#include "base/probe.h"

namespace mooncake {

inline void CountMapStep() { MC_PROBE("base.map_step"); }

template <class Key, class Value, class Less = std::less<Key>>
class WalkedMap : public std::map<Key, Value, Less> {
  using Map = std::map<Key, Value, Less>;

  template <class Base>
  class Walk : public Base {
   public:
    Walk() = default;
    Walk(Base at) : Base(at) {}  // NOLINT(google-explicit-constructor): as the map's own convert
    Walk& operator++() {
      CountMapStep();
      Base::operator++();
      return *this;
    }
    Walk operator++(int) {
      const Walk before = *this;
      ++*this;
      return before;
    }
    Walk& operator--() {
      CountMapStep();
      Base::operator--();
      return *this;
    }
  };

 public:
  using iterator = Walk<typename Map::iterator>;
  using const_iterator = Walk<typename Map::const_iterator>;

  iterator begin() { return Map::begin(); }
  iterator end() { return Map::end(); }
  const_iterator begin() const { return Map::begin(); }
  const_iterator end() const { return Map::end(); }

  template <class Wanted>
  iterator find(const Wanted& key) {
    return Map::find(key);
  }
  template <class Wanted>
  const_iterator find(const Wanted& key) const {
    return Map::find(key);
  }
  template <class Wanted>
  iterator lower_bound(const Wanted& key) {
    return Map::lower_bound(key);
  }
  template <class Wanted>
  const_iterator lower_bound(const Wanted& key) const {
    return Map::lower_bound(key);
  }
  template <class Wanted>
  iterator upper_bound(const Wanted& key) {
    return Map::upper_bound(key);
  }
  template <class Wanted>
  const_iterator upper_bound(const Wanted& key) const {
    return Map::upper_bound(key);
  }
};

}  // namespace mooncake
