// Hashes of contract values, for sets and maps that live inside one check.
//
// Internal to the folder. Never persisted.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "manifest/types.h"

namespace mooncake::manifest {

// Folds values into one 64-bit hash (the finalizer of SplitMix64 after every value).
class HashFold {
 public:
  HashFold& Add(uint64_t value) {
    state_ = (state_ ^ value) + 0x9e3779b97f4a7c15;
    state_ = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9;
    state_ = (state_ ^ (state_ >> 27)) * 0x94d049bb133111eb;
    state_ ^= state_ >> 31;
    return *this;
  }
  HashFold& Add(std::span<const int64_t> values) {
    Add(values.size());
    for (const int64_t value : values) Add(static_cast<uint64_t>(value));
    return *this;
  }
  HashFold& Add(std::string_view text) { return Add(std::hash<std::string_view>()(text)); }
  HashFold& Add(const std::vector<std::string>& texts) {
    Add(texts.size());
    for (const std::string& text : texts) Add(std::string_view(text));
    return *this;
  }
  HashFold& Add(const ParallelRank& rank) {
    return Add(static_cast<uint64_t>(rank.dp))
        .Add(static_cast<uint64_t>(rank.tp))
        .Add(static_cast<uint64_t>(rank.pp))
        .Add(static_cast<uint64_t>(rank.ep));
  }
  size_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// Numbers alias groups 0, 1, ...; equal groups get equal numbers. Keeps pointers to the groups.
class AliasGroupNumbers {
 public:
  static constexpr uint32_t kNone = 0;  // the empty group

  uint32_t NumberOf(const std::vector<std::string>& group) {
    if (group.empty()) return kNone;
    const auto [it, added] =
        numbers_.try_emplace(&group, static_cast<uint32_t>(groups_.size() + 1));
    if (added) groups_.push_back(&group);
    return it->second;
  }
  const std::vector<std::string>& Group(uint32_t number) const { return *groups_[number - 1]; }
  uint32_t count() const { return static_cast<uint32_t>(groups_.size()); }

 private:
  struct Hash {
    size_t operator()(const std::vector<std::string>* group) const {
      return HashFold().Add(*group).value();
    }
  };
  struct Equal {
    bool operator()(const std::vector<std::string>* a, const std::vector<std::string>* b) const {
      return *a == *b;
    }
  };
  std::unordered_map<const std::vector<std::string>*, uint32_t, Hash, Equal> numbers_;
  std::vector<const std::vector<std::string>*> groups_;
};

}  // namespace mooncake::manifest
