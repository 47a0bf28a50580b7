// Manifests and plans that the next load may need again.
//
// Keyed by content (digests), so nothing in it can be stale; the least recently used goes first.
// What is handed out stays valid whatever is evicted. Threads: every method from any thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "env/sync.h"
#include "manifest/types.h"
#include "reshard/plan.h"
#include "reshard/planner.h"

namespace mooncake::client {

// A list in order of use; meant for a handful of big values.
template <class Value>
class RecentValues {
 public:
  explicit RecentValues(size_t count_max) : count_max_(count_max) {}

  const Value* Find(const std::string& key) {
    for (auto at = values_.begin(); at != values_.end(); ++at) {
      if (at->first != key) continue;
      values_.splice(values_.begin(), values_, at);
      return &values_.front().second;
    }
    return nullptr;
  }
  void Add(std::string key, Value value) {
    if (Find(key) != nullptr) return;
    values_.emplace_front(std::move(key), std::move(value));
    if (values_.size() > count_max_) values_.pop_back();
  }

 private:
  const size_t count_max_;
  std::list<std::pair<std::string, Value>> values_;
};

class PlanCache {
 public:
  // nullptr: not here.
  manifest::StoredManifestPtr FindManifest(const std::string& sha256);
  void AddManifest(const std::string& sha256, manifest::StoredManifestPtr manifest);

  // The plan that fills `participant_id` of `target` from `source`: from here, from one of another
  // generation that was cut the same way, or made now.
  struct Planned {
    reshard::LogicalPlanPtr plan;
    bool reused = false;
  };
  Result<Planned> Plan(const manifest::StoredManifestPtr& source,
                       const manifest::PlacementPtr& target, const std::string& participant_id);

 private:
  env::Mutex mutex_;
  RecentValues<manifest::StoredManifestPtr> manifests_{4};
  RecentValues<reshard::SourceIndexPtr> indexes_{4};
  RecentValues<reshard::LogicalPlanPtr> plans_{32};
  RecentValues<reshard::LogicalPlanPtr> by_geometry_{32};  // by geometry digest
};

}  // namespace mooncake::client
