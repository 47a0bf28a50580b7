// What must hold of ordinary objects, whatever happens: nobody reads bytes of another object, what
// was removed or replaced stays so, what is leased is not evicted, and what was pinned and told
// durable is there as long as its node lives.
//
// Every put has a version of its own, from which each of its bytes follows. Otherwise a cache may
// forget what it likes. Threads: all on one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/judge.h"

namespace mooncake::sim {

struct ObjectName {
  std::string tenant_id;
  std::string key;
  friend auto operator<=>(const ObjectName&, const ObjectName&) = default;
};

class ObjectJudge {
 public:
  ObjectJudge(SimCluster& cluster, Judge& judge) : cluster_(cluster), judge_(judge) {}

  // ---- what clients did and were told; `begun` is a Tick from before they asked ----

  // Later than every tick before.
  uint64_t Tick() { return ++tick_; }
  // A put of so many bytes begins: its version.
  uint64_t PutTried(const ObjectName& name, uint64_t bytes);
  struct PutFacts {
    bool durable = false;
    bool upsert = false;
    bool hard_pin = false;
  };
  void PutTold(const ObjectName& name, uint64_t version, uint64_t begun, const PutFacts& facts);
  void RemoveTried(const ObjectName& name);
  void RemoveTold(const ObjectName& name, uint64_t begun);
  // `bytes` were read from the object's byte `from` on; `size` is the whole object's.
  void ReadTold(const ObjectName& name, uint64_t begun, std::string_view bytes, uint64_t from,
                uint64_t size);
  void ReadFailed(const ObjectName& name, const Status& why);

  // ---- what passes the network, and the log ----
  void OnMasterRequest(const std::string& request);
  void OnMasterAnswer(const std::string& request, const std::string& answer);
  void OnLogRecord(std::string_view payload);

  // What must be readable when everything has come to rest.
  std::vector<ObjectName> MustBeThere() const;
  void ReadAtRest(const ObjectName& name, const Status& status);

  static std::string ContentOf(uint64_t version, uint64_t bytes);

 private:
  struct Version {
    uint64_t bytes = 0;
    uint64_t told = 0;  // tick; 0: not told
    uint64_t gone = 0;  // tick at which its end was told; 0: it may be there
  };
  struct Facts {
    std::map<uint64_t, Version> versions;
    // The last version that was pinned for good and told durable, and where it lies; nothing was
    // tried since.
    uint64_t pinned = 0;
    std::set<std::string> instances;
  };
  void EndBefore(Facts& facts, uint64_t begun, uint64_t but);

  SimCluster& cluster_;
  Judge& judge_;
  uint64_t tick_ = 0;
  uint64_t next_version_ = 1;
  std::map<ObjectName, Facts> objects_;
  std::map<std::string, int64_t> arrived_ns_;       // of lookups under way, by their bytes
  std::map<uint64_t, int64_t> protected_until_ns_;  // by object id
};

}  // namespace mooncake::sim
