#include "objects/catalog.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "model/affinity.h"

namespace mooncake::objects {
namespace {

std::string Text(ArenaId id) { return "arena " + std::to_string(id.value); }
std::string Text(ImportId id) { return "import " + std::to_string(id.value); }

bool WouldOverflow(uint64_t a, uint64_t b) { return a > UINT64_MAX - b; }

bool HasDuplicates(std::vector<ArenaId> ids) {
  std::sort(ids.begin(), ids.end());
  return std::adjacent_find(ids.begin(), ids.end()) != ids.end();
}

}  // namespace

std::string_view Name(ArenaState state) {
  switch (state) {
    case ArenaState::kLive:
      return "LIVE";
    case ArenaState::kReleasing:
      return "RELEASING";
    case ArenaState::kLost:
      return "LOST";
  }
  return "?";
}

// ---- lookups ----

std::optional<uint32_t> Catalog::NodeIndex(std::string_view node_id) const {
  const auto it = node_index_.find(node_id);
  if (it == node_index_.end()) return std::nullopt;
  return it->second;
}

const Node* Catalog::FindNode(std::string_view node_id) const {
  const auto index = NodeIndex(node_id);
  return index ? &nodes_[*index] : nullptr;
}

const Arena* Catalog::FindArena(ArenaId id) const {
  const auto it = arenas_.find(id);
  return it == arenas_.end() ? nullptr : &it->second;
}

const Group* Catalog::FindGroup(ImportId id) const {
  const auto it = groups_.find(id);
  return it == groups_.end() ? nullptr : &it->second;
}

PayloadLocation Catalog::LocationOf(const Group& group, uint32_t number) const {
  const PayloadTable::Row& row = group.payloads.row(number);
  const ArenaId arena_id = group.arenas[row.arena];
  PayloadLocation location;
  location.name = group.payloads.name(number);
  location.participant = row.participant;
  location.unit = row.unit;
  location.extent.arena_id = arena_id;
  location.extent.offset = row.offset;
  location.extent.bytes = row.bytes;
  // A payload pins its arena: it is given up only when its last payload is gone.
  location.extent.node_id = nodes_[arenas_.at(arena_id).node].address.node_id;
  return location;
}

Result<PayloadLocation> Catalog::FindPayload(ImportId id, std::string_view name) const {
  const Group* group = FindGroup(id);
  if (group == nullptr) return NotFound("no objects of " + Text(id));
  const auto row = group->payloads.Find(name);
  if (!row) return NotFound(Text(id) + " has no payload " + std::string(name));
  return LocationOf(*group, *row);
}

std::vector<PayloadLocation> Catalog::PayloadsOf(ImportId id, uint32_t participant) const {
  std::vector<PayloadLocation> locations;
  const Group* group = FindGroup(id);
  if (group == nullptr) return locations;
  const auto [first, last] = group->payloads.RowsOf(participant);
  for (uint32_t number = first; number < last; ++number) {
    if (group->payloads.row(number).arena == PayloadTable::kRemoved) continue;
    locations.push_back(LocationOf(*group, number));
  }
  return locations;
}

model::GroupFacts Catalog::FactsOf(ImportId id, std::string_view group_id) const {
  model::GroupFacts facts;
  const Group* group = FindGroup(id);
  if (group == nullptr) return facts;
  const PayloadTable& payloads = group->payloads;
  facts.payload_count = payloads.payload_count();
  facts.logical_payload_bytes = payloads.payload_bytes();

  std::vector<model::AffinityMember> members;
  std::vector<std::string> keys;
  for (uint32_t number = 0; number < payloads.row_count(); ++number) {
    const PayloadTable::Row& row = payloads.row(number);
    if (row.arena == PayloadTable::kRemoved) continue;
    members.push_back({payloads.name(number), row.bytes, row.unit});
    keys.push_back(model::PayloadKey(group_id, payloads.name(number)));
  }
  const auto keys_sha256 = Sha256FromHex(model::PayloadKeyDigest({keys.begin(), keys.end()}));
  const model::AffinitySummary summary = model::SummarizeAffinity(std::move(members));
  facts.payload_keys_sha256 = keys_sha256.value();
  facts.affinity_count = summary.unit_count;
  facts.affinity_bytes = summary.json.size();
  facts.affinity_sha256 = Sha256FromHex(summary.sha256).value();
  return facts;
}

uint64_t Catalog::PhysicalBytes(ImportId id) const {
  const Group* group = FindGroup(id);
  if (group == nullptr || group->removed) return 0;
  uint64_t bytes = 0;
  for (const ArenaId arena_id : group->arenas) {
    const Arena* arena = FindArena(arena_id);
    if (arena != nullptr && arena->state == ArenaState::kLive) bytes += arena->bytes;
  }
  for (const model::MetadataObject& object : group->metadata) bytes += ChargedBytes(object.bytes);
  return bytes;
}

std::vector<ImportId> Catalog::ImportsOn(std::string_view node_id) const {
  const Node* node = FindNode(node_id);
  if (node == nullptr) return {};
  std::set<ImportId> imports = node->metadata_of;
  for (const ArenaId id : node->arenas) {
    if (arenas_.at(id).import_id != ImportId()) imports.insert(arenas_.at(id).import_id);
  }
  for (const ArenaId id : node->lost_arenas) imports.insert(arenas_.at(id).import_id);
  return {imports.begin(), imports.end()};
}

bool Catalog::HoldsNoWeights(std::string_view node_id) const {
  const Node* node = FindNode(node_id);
  if (node == nullptr) return true;
  return node->metadata_of.empty() && node->lost_arenas.empty() &&
         std::none_of(node->arenas.begin(), node->arenas.end(),
                      [this](ArenaId id) { return arenas_.at(id).import_id != ImportId(); });
}

// ---- apply ----

Status Catalog::Apply(const Event& event) {
  return std::visit([this](const auto& one) { return ApplyOne(one); }, event);
}

Status Catalog::ApplyOne(const NodeJoined& event) {
  const std::string& node_id = event.address.node_id;
  if (node_id.empty()) return Corrupt("a node without an id joined");
  const auto known = NodeIndex(node_id);
  if (!known) {
    node_index_.emplace(node_id, static_cast<uint32_t>(nodes_.size()));
    Node& node = nodes_.emplace_back();
    node.address = event.address;
    node.capacity_bytes = event.capacity_bytes;
    node.durable_arenas = event.durable_arenas;
    node.objects_only = event.objects_only;
    return OkStatus();
  }
  Node& node = nodes_[*known];
  const bool new_instance = node.address.instance_id != event.address.instance_id;
  node.address = event.address;
  node.capacity_bytes = event.capacity_bytes;
  node.durable_arenas = event.durable_arenas;
  node.objects_only = event.objects_only;
  node.left = false;
  if (new_instance && !event.durable_arenas) LoseMemory(*known);
  return OkStatus();
}

Status Catalog::ApplyOne(const NodeLeft& event) {
  const auto index = NodeIndex(event.node_id);
  if (!index) return Corrupt("node " + event.node_id + " leaves but never joined");
  Node& node = nodes_[*index];
  const std::set<ArenaId> arenas = node.arenas;
  if (!HoldsNoWeights(event.node_id))
    return Corrupt("node " + event.node_id + " leaves with weights on it");
  for (const ArenaId id : arenas) Forget(id);
  node.address.instance_id.clear();
  node.capacity_bytes = 0;
  node.left = true;
  return OkStatus();
}

Status Catalog::ApplyOne(const ArenaReserved& event) {
  const auto index = NodeIndex(event.node_id);
  if (!index) return Corrupt(Text(event.arena_id) + " lies on unknown node " + event.node_id);
  Node& node = nodes_[*index];
  if (node.address.instance_id != event.instance_id) {
    return Corrupt(Text(event.arena_id) + " belongs to instance " + event.instance_id +
                   " of node " + event.node_id + ", which is now " + node.address.instance_id);
  }
  if (event.arena_id.value < next_arena_id_ || event.arena_id.value == UINT64_MAX) {
    return Corrupt(Text(event.arena_id) + " was given already: the next one is " +
                   std::to_string(next_arena_id_));
  }
  if (event.bytes == 0 || WouldOverflow(node.used_bytes(), event.bytes)) {
    return Corrupt(Text(event.arena_id) + " has " + std::to_string(event.bytes) + " bytes of " +
                   Text(event.import_id));
  }
  const auto group_it = groups_.find(event.import_id);
  if (group_it != groups_.end() && group_it->second.removed) {
    return Corrupt(Text(event.arena_id) + " belongs to " + Text(event.import_id) +
                   ", which was removed");
  }
  const bool slab = event.import_id == ImportId();
  if (!slab && node.objects_only) {
    return Corrupt(Text(event.arena_id) + " of weights lies on node " + event.node_id +
                   ", which takes objects only");
  }
  next_arena_id_ = event.arena_id.value + 1;
  Arena& arena = arenas_[event.arena_id];
  arena.arena_id = event.arena_id;
  arena.import_id = event.import_id;
  arena.node = *index;
  arena.bytes = event.bytes;
  node.live_bytes += event.bytes;
  node.arenas.insert(event.arena_id);
  if (slab) {
    node.slab_bytes += event.bytes;
    return OkStatus();
  }
  Group& group = groups_[event.import_id];
  group.import_id = event.import_id;
  group.arenas.push_back(event.arena_id);
  group.arenas_left += 1;
  return OkStatus();
}

Status Catalog::ApplyOne(const ArenasReleasing& event) {
  if (HasDuplicates(event.arena_ids)) return Corrupt("an arena is given up twice");
  for (const ArenaId id : event.arena_ids) {
    const Arena* arena = FindArena(id);
    if (arena == nullptr) return Corrupt(Text(id) + " is given up but does not exist");
    if (arena->state == ArenaState::kReleasing) return Corrupt(Text(id) + " is given up twice");
    if (arena->payload_count != 0) {
      return Corrupt(Text(id) + " is given up with " + std::to_string(arena->payload_count) +
                     " payloads in it");
    }
  }
  for (const ArenaId id : event.arena_ids) GiveUp(id);
  return OkStatus();
}

Status Catalog::ApplyOne(const ArenasReleased& event) {
  if (HasDuplicates(event.arena_ids)) return Corrupt("an arena is released twice");
  for (const ArenaId id : event.arena_ids) {
    const Arena* arena = FindArena(id);
    if (arena == nullptr || arena->state != ArenaState::kReleasing) {
      return Corrupt(Text(id) + " is released but was not given up");
    }
  }
  for (const ArenaId id : event.arena_ids) Forget(id);
  return OkStatus();
}

Status Catalog::ApplyOne(const ObjectsReserved& event) {
  const auto group_it = groups_.find(event.import_id);
  if (group_it == groups_.end() || group_it->second.removed) {
    return Corrupt("objects of " + Text(event.import_id) + ", which has no arenas");
  }
  Group& group = group_it->second;
  if (event.payloads.empty() || group.payloads.HasParticipant(event.participant)) {
    return Corrupt("participant " + std::to_string(event.participant) + " of " +
                   Text(event.import_id) + " has no payloads, or reserved them already");
  }
  std::unordered_set<std::string_view> names;
  std::map<ArenaId, uint64_t> filled;  // where the next payload of an arena may begin
  std::vector<PayloadTable::NewRow> rows;
  rows.reserve(event.payloads.size());
  for (const ReservedPayload& payload : event.payloads) {
    const auto at = std::lower_bound(group.arenas.begin(), group.arenas.end(), payload.arena_id);
    const Arena* arena = FindArena(payload.arena_id);
    if (at == group.arenas.end() || *at != payload.arena_id || arena == nullptr ||
        arena->state != ArenaState::kLive) {
      return Corrupt("payload " + payload.name + " lies in " + Text(payload.arena_id) +
                     ", which is no live arena of " + Text(event.import_id));
    }
    uint64_t& begin = filled.try_emplace(payload.arena_id, arena->filled_bytes).first->second;
    if (payload.offset < begin || payload.bytes == 0 || payload.offset > arena->bytes ||
        payload.bytes > arena->bytes - payload.offset) {
      return Corrupt("payload " + payload.name + " overlaps another or leaves " +
                     Text(payload.arena_id));
    }
    begin = payload.offset + payload.bytes;
    if (!names.insert(payload.name).second || group.payloads.Find(payload.name)) {
      return Corrupt("payload " + payload.name + " is reserved twice");
    }
    PayloadTable::NewRow& added = rows.emplace_back();
    added.name = payload.name;
    added.row.bytes = payload.bytes;
    added.row.offset = payload.offset;
    added.row.arena = static_cast<uint32_t>(at - group.arenas.begin());
    added.row.participant = event.participant;
    added.row.unit = payload.unit;
  }
  for (const auto& [id, end] : filled) arenas_.at(id).filled_bytes = end;
  for (const ReservedPayload& payload : event.payloads) {
    arenas_.at(payload.arena_id).payload_count += 1;
  }
  group.payloads.Append(rows);
  payload_count_ += rows.size();
  return OkStatus();
}

Status Catalog::ApplyOne(const ObjectsRemoved& event) {
  const auto group_it = groups_.find(event.import_id);
  if (group_it == groups_.end()) return Corrupt("no objects of " + Text(event.import_id));
  Group& group = group_it->second;
  std::vector<uint32_t> rows;
  rows.reserve(event.names.size());
  for (const std::string& name : event.names) {
    const auto row = group.payloads.Find(name);
    if (!row) return Corrupt(Text(event.import_id) + " has no payload " + name);
    rows.push_back(*row);
  }
  std::vector<uint32_t> sorted = rows;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Corrupt("a payload of " + Text(event.import_id) + " is removed twice");
  }
  for (const uint32_t row : rows) {
    arenas_.at(group.arenas[group.payloads.row(row).arena]).payload_count -= 1;
    group.payloads.Remove(row);
  }
  payload_count_ -= rows.size();
  return OkStatus();
}

Status Catalog::ApplyOne(const GroupRemoved& event) {
  const auto group_it = groups_.find(event.import_id);
  if (group_it == groups_.end() || group_it->second.removed) {
    return Corrupt(Text(event.import_id) + " has no group to remove");
  }
  Group& group = group_it->second;
  payload_count_ -= group.payloads.payload_count();
  group.payloads = PayloadTable();
  for (const ArenaId id : group.arenas) {
    const auto arena = arenas_.find(id);
    if (arena == arenas_.end()) continue;
    arena->second.payload_count = 0;
    if (arena->second.state != ArenaState::kReleasing) GiveUp(id);
  }
  metadata_count_ -= group.metadata.size();
  for (const model::MetadataObject& object : group.metadata) {
    Node& node = nodes_[*NodeIndex(object.node_id)];
    node.metadata_bytes -= ChargedBytes(object.bytes);
    node.metadata_releasing_bytes += ChargedBytes(object.bytes);
  }
  group.removed = true;  // last: until here nothing above erases the group
  EraseIfEmpty(event.import_id);
  return OkStatus();
}

Status Catalog::ApplyOne(const MetadataStored& event) {
  const auto group_it = groups_.find(event.import_id);
  if (group_it == groups_.end() || group_it->second.removed) {
    return Corrupt("METADATA of " + Text(event.import_id) + ", which has no objects");
  }
  Group& group = group_it->second;
  uint64_t total = 0;
  for (const model::MetadataObject& object : event.objects) {
    const Node* node = FindNode(object.node_id);
    if (node == nullptr) {
      return Corrupt("METADATA " + object.name + " lies on unknown node " + object.node_id);
    }
    if (WouldOverflow(total, ChargedBytes(object.bytes)) ||
        WouldOverflow(node->used_bytes(), total + ChargedBytes(object.bytes))) {
      return Corrupt("METADATA " + object.name + " has " + std::to_string(object.bytes) + " bytes");
    }
    total += ChargedBytes(object.bytes);
  }
  for (const model::MetadataObject& object : event.objects) {
    const auto same = std::find_if(group.metadata.begin(), group.metadata.end(),
                                   [&](const auto& other) { return other.name == object.name; });
    if (same != group.metadata.end()) {
      const std::string old_node = same->node_id;
      nodes_[*NodeIndex(old_node)].metadata_bytes -= ChargedBytes(same->bytes);
      group.metadata.erase(same);
      metadata_count_ -= 1;
      const bool more = std::any_of(group.metadata.begin(), group.metadata.end(),
                                    [&](const auto& other) { return other.node_id == old_node; });
      if (!more) nodes_[*NodeIndex(old_node)].metadata_of.erase(event.import_id);
    }
    Node& node = nodes_[*NodeIndex(object.node_id)];
    node.metadata_bytes += ChargedBytes(object.bytes);
    node.metadata_of.insert(event.import_id);
    group.metadata.push_back(object);
    metadata_count_ += 1;
  }
  return OkStatus();
}

Status Catalog::ApplyOne(const MetadataReleased& event) {
  const auto index = NodeIndex(event.node_id);
  if (!index) return Corrupt("METADATA released by unknown node " + event.node_id);
  Node& node = nodes_[*index];
  std::set<ImportId> distinct;
  for (const ImportId id : event.import_ids) {
    const Group* group = FindGroup(id);
    if (group == nullptr || !group->removed || !node.metadata_of.contains(id) ||
        !distinct.insert(id).second) {
      return Corrupt("node " + event.node_id + " releases METADATA of " + Text(id) +
                     ", which it was not asked to");
    }
  }
  for (const ImportId id : event.import_ids) {
    node.metadata_of.erase(id);
    std::erase_if(groups_.at(id).metadata, [&](const model::MetadataObject& object) {
      if (object.node_id != event.node_id) return false;
      node.metadata_releasing_bytes -= ChargedBytes(object.bytes);
      return true;
    });
    EraseIfEmpty(id);
  }
  return OkStatus();
}

void Catalog::GiveUp(ArenaId id) {
  Arena& arena = arenas_.at(id);
  if (arena.state == ArenaState::kLost) {
    Forget(id);
    return;
  }
  MC_CHECK(arena.state == ArenaState::kLive);
  Node& node = nodes_[arena.node];
  node.live_bytes -= arena.bytes;
  if (arena.import_id == ImportId()) node.slab_bytes -= arena.bytes;
  node.releasing_bytes += arena.bytes;
  arena.state = ArenaState::kReleasing;
}

void Catalog::Forget(ArenaId id) {
  const auto it = arenas_.find(id);
  const Arena arena = it->second;
  Node& node = nodes_[arena.node];
  if (arena.state == ArenaState::kReleasing) node.releasing_bytes -= arena.bytes;
  const bool slab = arena.import_id == ImportId();
  if (arena.state == ArenaState::kLive) node.live_bytes -= arena.bytes;
  if (arena.state == ArenaState::kLive && slab) node.slab_bytes -= arena.bytes;
  node.arenas.erase(id);
  node.lost_arenas.erase(id);
  arenas_.erase(it);
  if (slab) return;
  Group& group = groups_.at(arena.import_id);
  group.arenas_left -= 1;
  EraseIfEmpty(arena.import_id);
}

void Catalog::LoseMemory(uint32_t index) {
  const std::set<ArenaId> arenas = nodes_[index].arenas;
  for (const ArenaId id : arenas) {
    Arena& arena = arenas_.at(id);
    if (arena.state == ArenaState::kReleasing || arena.import_id == ImportId()) {
      Forget(id);
      continue;
    }
    arena.state = ArenaState::kLost;
    Node& node = nodes_[index];
    node.live_bytes -= arena.bytes;
    node.arenas.erase(id);
    node.lost_arenas.insert(id);
  }
}

void Catalog::EraseIfEmpty(ImportId id) {
  const auto it = groups_.find(id);
  if (it == groups_.end()) return;
  const Group& group = it->second;
  if (group.removed && group.arenas_left == 0 && group.metadata.empty()) groups_.erase(it);
}

}  // namespace mooncake::objects
