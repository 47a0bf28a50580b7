// What simulated clients do: publish alone, together, twice or against each other, load into other
// layouts, look, list, remove, give up half-way.
//
// Owns the names that are published and who takes part in what. Which operations a run has, and how
// often, is the dice's choice (a swarm: some runs only load, some only fight over one name).
// Threads: all on one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/judge.h"
#include "sim/object_workload.h"
#include "sim/sim_cluster.h"

namespace mooncake::sim {

class Workload {
 public:
  Workload(SimCluster& cluster, Judge& judge, ObjectWorkload& objects);

  // One client's life: operations until `stopping()`, or its process crashes. On a task of the
  // client's process.
  void RunClient(Process& process);
  void Stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

  // Loads `identity` into some layout and lets the judge see what came of it.
  Status LoadAndCheck(client::StoreClient& client, const model::WeightIdentity& identity);

  struct Counts {
    uint64_t publishes = 0;
    uint64_t published = 0;
    uint64_t loads = 0;
    uint64_t loaded = 0;
    uint64_t removes = 0;
    uint64_t removed = 0;
    std::map<std::string, uint64_t> failures;  // by operation and code
    std::map<std::string, std::string> examples;
  };
  const Counts& counts() const { return counts_; }

 private:
  // A publish that several clients take part in.
  struct Job {
    Content content;
    cluster::TestLayout layout;
    std::vector<std::string> participants;  // of this taker; empty: all
  };
  enum class Kind : uint8_t { kPublish, kLoad, kRemove, kLook, kList, kObject, kIdle };

  Status Failed(const std::string& operation, const Status& why);
  Kind PickKind();
  Job NextJob();
  Content NewContent();
  void Publish(client::StoreClient& client);
  void Remove(client::StoreClient& client);
  void Look(client::StoreClient& client);
  void List(client::StoreClient& client);

  SimCluster& cluster_;
  Judge& judge_;
  ObjectWorkload& objects_;
  Dice& dice_;
  const bool large_;
  bool stopping_ = false;
  std::vector<std::pair<Kind, uint32_t>> weights_;
  uint64_t next_generation_ = 1;
  std::vector<Content> used_;
  std::deque<Job> jobs_;
  Counts counts_;
};

}  // namespace mooncake::sim
