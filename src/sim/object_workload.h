// What simulated clients do with ordinary objects, beside the revisions: put, replace, read whole
// and in parts, look, list, remove; of two tenants that use the same keys.
//
// Threads: all on one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/object_client.h"
#include "sim/object_judge.h"
#include "sim/sim_cluster.h"

namespace mooncake::sim {

class ObjectWorkload {
 public:
  ObjectWorkload(SimCluster& cluster, ObjectJudge& judge);

  // A run without objects has none of this.
  bool active() const { return active_; }
  std::string PickTenant();
  // One operation, whatever the dice say.
  void Act(client::ObjectClient& client, const std::string& tenant_id);
  Status ReadAndCheck(client::ObjectClient& client, const ObjectName& name);

  // By operation and code.
  const std::map<std::string, uint64_t>& outcomes() const { return outcomes_; }

 private:
  enum class Kind : uint8_t { kPut, kGet, kRange, kLook, kRemove, kList };

  ObjectName PickName(const std::string& tenant_id);
  void Put(client::ObjectClient& client, const std::string& tenant_id);
  void ReadRange(client::ObjectClient& client, const ObjectName& name);
  void Remove(client::ObjectClient& client, const std::string& tenant_id);
  void Count(const std::string& operation, const Status& status);

  SimCluster& cluster_;
  ObjectJudge& judge_;
  Dice& dice_;
  const bool active_;
  const uint64_t keys_;
  const uint64_t bytes_max_;
  std::vector<std::pair<Kind, uint32_t>> weights_;
  std::map<std::string, uint64_t> outcomes_;
};

}  // namespace mooncake::sim
