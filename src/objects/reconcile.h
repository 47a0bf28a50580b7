// What the Master does about nodes and about groups that must go: pure decisions over the catalogue
// and what nodes report. Level-triggered: every function looks at the whole present state, so a
// lost reply or a restart needs no special code.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/node.h"
#include "model/revision.h"
#include "objects/catalog.h"
#include "objects/events.h"

namespace mooncake::objects {

// ---- nodes ----

// No event when the catalogue knows exactly this already. INVALID_ARGUMENT: empty node_id or
// instance_id, text that is not UTF-8, no capacity.
Result<std::vector<Event>> DecideNodeJoin(const Catalog& catalog, const model::NodeAddress& address,
                                          uint64_t capacity_bytes, bool durable_arenas,
                                          bool objects_only = false);

struct HeldImport {
  ImportId import_id;
  std::vector<ArenaId> arena_ids;
  uint64_t metadata_objects = 0;
};

// LIVE members that the catalogue places on the node and the report does not list. Normal while the
// import is open (arenas appear at first open); a loss once it is committed: the caller knows
// which.
struct MissingMembers {
  std::vector<ArenaId> arenas;
  uint64_t metadata_objects = 0;  // how many too few
};

struct Reconciliation {
  std::vector<ArenaId> drop_arenas;    // for the reply: unknown or RELEASING
  std::vector<ImportId> drop_imports;  // for the reply: unknown or removed; everything of it
  std::vector<Event> events;           // what the report confirms
  std::map<ImportId, MissingMembers> missing;
};

// NOT_FOUND: the node, or this instance of it, has not joined.
Result<Reconciliation> ReconcileReport(const Catalog& catalog, std::string_view node_id,
                                       std::string_view instance_id,
                                       const std::vector<HeldImport>& held);

// ---- whether a group can be read ----

// The Master's volatile view of the nodes.
struct NodeLiveness {
  std::set<std::string, std::less<>> reporting;  // node ids that report now
  // From each reporting node's last report.
  std::map<std::string, std::map<ImportId, MissingMembers>, std::less<>> missing;
};

// Whether every member of the group has a readable replica, and if not why: the first of "node n1
// lost the memory of arena 7 when it restarted", "node n1 is not reporting", "node n1 no longer
// holds arena 7".
model::MemberFacts ObserveMembers(const Catalog& catalog, ImportId id,
                                  const NodeLiveness& liveness);

// ---- groups that go ----

// The next bounded step of a deletion: up to max_members payloads and the arenas that they empty;
// when no payload is left, the group itself (METADATA last). Empty: nothing of the group is left.
std::vector<Event> NextRemovalStep(const Catalog& catalog, ImportId id, uint32_t max_members);

// Everything at once, for an import that was aborted (nothing of it was ever discoverable). Empty:
// nothing of the group is left.
std::vector<Event> PlanGroupDrop(const Catalog& catalog, ImportId id);

}  // namespace mooncake::objects
