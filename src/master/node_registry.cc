#include "master/node_registry.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace mooncake::master {
namespace {

using MissingMap = std::map<model::ImportId, objects::MissingMembers>;

bool Same(const objects::MissingMembers& a, const objects::MissingMembers& b) {
  return a.arenas == b.arenas && a.metadata_objects == b.metadata_objects;
}

// What both reports lack.
MissingMap Both(const MissingMap& before, const MissingMap& now) {
  MissingMap both;
  for (const auto& [id, members] : now) {
    const auto earlier = before.find(id);
    if (earlier == before.end()) continue;
    objects::MissingMembers common;
    std::set_intersection(members.arenas.begin(), members.arenas.end(),
                          earlier->second.arenas.begin(), earlier->second.arenas.end(),
                          std::back_inserter(common.arenas));
    common.metadata_objects = std::min(members.metadata_objects, earlier->second.metadata_objects);
    if (!common.arenas.empty() || common.metadata_objects > 0) both[id] = std::move(common);
  }
  return both;
}

}  // namespace

void NodeRegistry::Register(const std::string& node_id, const std::string& instance_id,
                            const std::string& grant_key, int64_t now_ms) {
  Node& node = nodes_[node_id];
  if (node.instance_id != instance_id) node = Node{};
  node.instance_id = instance_id;
  node.grant_key = grant_key;
  node.last_heard_ms = now_ms;
  node.confirmed = node.confirmed && node.alive;
  node.alive = true;
}

const NodeRegistry::Node* NodeRegistry::Find(std::string_view node_id,
                                             std::string_view instance_id) const {
  const auto found = nodes_.find(node_id);
  if (found == nodes_.end() || found->second.instance_id != instance_id) return nullptr;
  return &found->second;
}

void NodeRegistry::NotePrepared(std::string_view node_id, uint64_t prepared_bytes) {
  const auto found = nodes_.find(node_id);
  MC_CHECK(found != nodes_.end());
  found->second.prepared_bytes = prepared_bytes;
}

NodeRegistry::ReportOutcome NodeRegistry::Report(std::string_view node_id, MissingMap missing,
                                                 int64_t now_ms) {
  const auto found = nodes_.find(node_id);
  MC_CHECK(found != nodes_.end());
  Node& node = found->second;
  ReportOutcome outcome;
  outcome.confirmed_now = !node.confirmed;
  node.last_heard_ms = now_ms;
  node.alive = true;
  node.confirmed = true;
  for (auto& [id, members] : missing) std::sort(members.arenas.begin(), members.arenas.end());
  MissingMap both = Both(node.suspected, missing);
  for (const auto& [id, members] : both) {
    const auto before = node.missing.find(id);
    if (before == node.missing.end() || !Same(before->second, members)) outcome.changed.insert(id);
  }
  for (const auto& [id, members] : node.missing) {
    if (!both.contains(id)) outcome.changed.insert(id);
  }
  for (const auto& [id, members] : node.suspected) {
    if (!missing.contains(id)) outcome.changed.insert(id);
  }
  node.missing = std::move(both);
  node.suspected = std::move(missing);
  return outcome;
}

std::vector<std::string> NodeRegistry::FindSilent(int64_t now_ms, int64_t dead_after_ms) {
  std::vector<std::string> silent;
  for (auto& [node_id, node] : nodes_) {
    if (!node.alive || now_ms - node.last_heard_ms <= dead_after_ms) continue;
    node.alive = false;
    node.confirmed = false;
    silent.push_back(node_id);
  }
  return silent;
}

void NodeRegistry::DropStrangers(const objects::Catalog& catalog) {
  std::erase_if(nodes_, [&catalog](const auto& entry) {
    const objects::Node* known = catalog.FindNode(entry.first);
    return known == nullptr || known->address.instance_id != entry.second.instance_id;
  });
}

objects::NodeLiveness NodeRegistry::Assumed(const objects::Catalog& catalog, bool grace) const {
  objects::NodeLiveness liveness;
  for (const objects::Node& known : catalog.nodes()) {
    const std::string& node_id = known.address.node_id;
    const Node* node = Find(node_id, known.address.instance_id);
    if (node == nullptr ? grace : node->alive) liveness.reporting.insert(node_id);
    if (node != nullptr && !node->missing.empty()) liveness.missing[node_id] = node->missing;
  }
  return liveness;
}

objects::NodeLiveness NodeRegistry::Confirmed() const {
  objects::NodeLiveness liveness;
  for (const auto& [node_id, node] : nodes_) {
    if (!node.alive || !node.confirmed) continue;
    liveness.reporting.insert(node_id);
    // A first report that lacks something is enough not to call a revision whole.
    if (!node.suspected.empty()) liveness.missing[node_id] = node.suspected;
  }
  return liveness;
}

}  // namespace mooncake::master
