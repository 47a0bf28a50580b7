// NodeRegistry: what the Master knows of the nodes that talk to it now. Volatile: after a restart
// every node registers again.
//
// Owns each node's instance, grant key and last report. Never: decides what that means for a
// revision (engine), remembers capacity or arenas (objects::Catalog does, durably). Times are the
// logged clock's. Single-threaded (the sequencer owns it).
//
//   unknown --register--> ALIVE, unconfirmed --first report--> ALIVE, confirmed
//                           ^        |                              |
//                           |        +--------- silent -------------+--> SILENT
//                           +------------------ report or register --------+
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/identity.h"
#include "objects/catalog.h"
#include "objects/reconcile.h"

namespace mooncake::master {

class NodeRegistry {
 public:
  struct Node {
    std::string instance_id;
    std::string grant_key;
    int64_t last_heard_ms = 0;
    bool alive = false;
    uint64_t prepared_bytes = 0;
    bool confirmed = false;  // has reported since it registered or fell silent
    // Committed members that the last report lacked, and those that the one before it lacked too. A
    // report may have been on its way while an import was committed; the next one was not.
    std::map<model::ImportId, objects::MissingMembers> suspected;
    std::map<model::ImportId, objects::MissingMembers> missing;
  };

  void Register(const std::string& node_id, const std::string& instance_id,
                const std::string& grant_key, int64_t now_ms);

  // nullptr: not registered, or as another instance.
  const Node* Find(std::string_view node_id, std::string_view instance_id) const;
  const std::map<std::string, Node, std::less<>>& nodes() const { return nodes_; }

  struct ReportOutcome {
    bool confirmed_now = false;         // look at everything on the node
    std::set<model::ImportId> changed;  // look at these
  };
  // `missing` of committed imports only. The node must be registered.
  ReportOutcome Report(std::string_view node_id,
                       std::map<model::ImportId, objects::MissingMembers> missing, int64_t now_ms);

  void NotePrepared(std::string_view node_id, uint64_t prepared_bytes);

  // Nodes that have been silent for longer than `dead_after_ms`, each once.
  std::vector<std::string> FindSilent(int64_t now_ms, int64_t dead_after_ms);

  // Forgets nodes whose instance is not the catalogue's (any more): they must register again.
  void DropStrangers(const objects::Catalog& catalog);

  // For doubts in favour of the nodes: alive ones, and with `grace` those that are not back yet.
  objects::NodeLiveness Assumed(const objects::Catalog& catalog, bool grace) const;
  // Only what reports have confirmed.
  objects::NodeLiveness Confirmed() const;

 private:
  std::map<std::string, Node, std::less<>> nodes_;
};

}  // namespace mooncake::master
