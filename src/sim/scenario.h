// One seed's history: a cluster, its clients and what goes wrong, from the start to the judgement
// of what is left.
//
//   1. Master, nodes and clients start;
//   2. for some virtual seconds clients work while faults of the seed's kinds come and go; whoever
//      crashed is started again after a while; the judge looks on;
//   3. everything is healed and started, clients end, leases and imports of the dead run out;
//   4. the judge compares what is left with what was told, and reads every revision that is READY.
// A run in which bits of the Master's log were flipped may end before: a Master that refuses to
// start says so by name, which is right.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/judge.h"
#include "sim/workload.h"

namespace mooncake::sim {

// A fault that is built into the seams on purpose, to see that the judge sees it.
enum class PlantedBug : uint8_t {
  kNone,
  kReplyBeforeFlush,    // the log says "durable" before it is
  kMissedFence,         // a writer still writes after its import was sealed
  kExtentFreedEarly,    // the Master tells a node to drop an arena of a READY revision
  kForgottenTombstone,  // a restart forgets the newest records of the log, removals with them
  kIgnoredLease,        // a removal goes ahead though a reader's lease is active
  kForgottenRead,       // a lookup of an object says that it is protected, and it is not
  kHastyPut,            // a put that asked for durability is acknowledged as a relaxed one
};
inline constexpr size_t kPlantedBugs = 8;  // kNone among them
std::string_view Name(PlantedBug bug);

struct ScenarioOptions {
  uint64_t seed = 1;
  int64_t seconds = 20;  // of virtual time, for step 2
  int clients = 4;
  PlantedBug bug = PlantedBug::kNone;
  std::function<void(std::string_view)> on_note;  // every fact of the history, as text
};

struct ScenarioReport {
  uint64_t seed = 0;
  uint64_t trace_hash = 0;
  double virtual_seconds = 0;
  uint64_t turns = 0;
  std::optional<Violation> violation;
  // It did not come to rest, or did not end: what still ran.
  std::string stuck;
  // The Master refused a damaged log, in its own words; nothing after it was judged.
  std::string refused;
  Workload::Counts counts;
  std::map<std::string, uint64_t> object_outcomes;  // by operation and code
  std::array<uint64_t, kRules> checks{};
  std::map<std::string, uint64_t> faults;  // by kind, how often

  bool ok() const { return !violation && stuck.empty(); }
};

ScenarioReport RunScenario(const ScenarioOptions& options);

}  // namespace mooncake::sim
