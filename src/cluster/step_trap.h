// For tests: which steps an operation passes (client/steps.h), and what happens at one of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "client/store_client.h"
#include "cluster/test_cluster.h"
#include "cluster/test_publish.h"

namespace mooncake::cluster {

// Tells which steps were passed, and acts at one occurrence of one of them.
class StepTrap {
 public:
  client::StepObserver Observer() {
    return [this](std::string_view step) {
      std::unique_lock lock(mutex_);
      passed_.emplace_back(step);
      if (passed_.size() - 1 != at_) return OkStatus();
      lock.unlock();
      return action_();
    };
  }
  void ActAt(size_t occurrence, std::function<Status()> action) {
    at_ = occurrence;
    action_ = std::move(action);
  }
  std::vector<std::string> passed() {
    std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> passed_;
  size_t at_ = SIZE_MAX;
  std::function<Status()> action_;
};

// The steps of one undisturbed publish of this placement by one client.
inline std::vector<std::string> StepsOfPublish(const TestLayout& layout) {
  TestCluster cluster;
  StepTrap trap;
  client::StoreClientOptions options;
  options.step_observer = trap.Observer();
  const auto client = cluster.NewClient(options);
  const auto report = Publish(*client, TestIdentity(), MakeLayout(TestIdentity(), layout));
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  return trap.passed();
}

// Step numbers that differ in what has happened: the first and last occurrence of each name.
inline std::vector<size_t> InterestingSteps(const std::vector<std::string>& steps) {
  std::set<size_t> chosen;
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!last.contains(steps[i])) chosen.insert(i);
    last[steps[i]] = i;
  }
  for (const auto& [name, at] : last) chosen.insert(at);
  return {chosen.begin(), chosen.end()};
}

}  // namespace mooncake::cluster
