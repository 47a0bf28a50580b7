// Catalog::CheckInvariants and Catalog::Digest: both walk the whole state.

#include <algorithm>
#include <tuple>

#include "model/state_digest.h"
#include "objects/catalog.h"

namespace mooncake::objects {
namespace {

Status Differs(const std::string& what, uint64_t recorded, uint64_t recomputed) {
  return Internal(what + ": recorded " + std::to_string(recorded) + ", recomputed " +
                  std::to_string(recomputed));
}

std::string Text(ArenaId id) { return "arena " + std::to_string(id.value); }
std::string Text(ImportId id) { return "import " + std::to_string(id.value); }

struct Sums {
  uint64_t live_bytes = 0;
  uint64_t slab_bytes = 0;
  uint64_t releasing_bytes = 0;
  uint64_t metadata_bytes = 0;
  uint64_t metadata_releasing_bytes = 0;
  std::set<ArenaId> arenas;
  std::set<ArenaId> lost_arenas;
  std::set<ImportId> metadata_of;
};

Status CheckNode(const Node& node, const Sums& sums) {
  const std::string name = "node " + node.address.node_id + " ";
  if (node.live_bytes != sums.live_bytes) {
    return Differs(name + "live bytes", node.live_bytes, sums.live_bytes);
  }
  if (node.slab_bytes != sums.slab_bytes) {
    return Differs(name + "slab bytes", node.slab_bytes, sums.slab_bytes);
  }
  if (node.releasing_bytes != sums.releasing_bytes) {
    return Differs(name + "releasing bytes", node.releasing_bytes, sums.releasing_bytes);
  }
  if (node.metadata_bytes != sums.metadata_bytes) {
    return Differs(name + "metadata bytes", node.metadata_bytes, sums.metadata_bytes);
  }
  if (node.metadata_releasing_bytes != sums.metadata_releasing_bytes) {
    return Differs(name + "releasing metadata bytes", node.metadata_releasing_bytes,
                   sums.metadata_releasing_bytes);
  }
  if (node.arenas != sums.arenas || node.lost_arenas != sums.lost_arenas) {
    return Internal(name + "indexes other arenas than lie on it");
  }
  if (node.metadata_of != sums.metadata_of) {
    return Internal(name + "indexes other METADATA than lies on it");
  }
  return OkStatus();
}

// Payloads by arena, as the index into the group's arenas.
using PayloadCounts = std::map<uint32_t, uint32_t>;

// The table's sums, and that no two extents overlap.
Result<PayloadCounts> CheckPayloads(const Group& group) {
  const std::string name = Text(group.import_id);
  PayloadCounts counts;
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> extents;  // arena, begin, end
  uint64_t bytes = 0;
  for (uint32_t number = 0; number < group.payloads.row_count(); ++number) {
    const PayloadTable::Row& row = group.payloads.row(number);
    if (row.arena == PayloadTable::kRemoved) continue;
    if (row.arena >= group.arenas.size()) return Internal(name + " has a payload nowhere");
    counts[row.arena] += 1;
    bytes += row.bytes;
    extents.emplace_back(row.arena, row.offset, row.offset + row.bytes);
  }
  if (bytes != group.payloads.payload_bytes()) {
    return Differs(name + " payload bytes", group.payloads.payload_bytes(), bytes);
  }
  if (extents.size() != group.payloads.payload_count()) {
    return Differs(name + " payloads", group.payloads.payload_count(), extents.size());
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i) {
    const auto& [arena, begin, end] = extents[i];
    if (arena == std::get<0>(extents[i - 1]) && begin < std::get<2>(extents[i - 1])) {
      return Internal("payloads of " + name + " overlap in " + Text(group.arenas[arena]));
    }
  }
  return counts;
}

Status CheckArena(const Arena& arena, const Group& group, uint32_t payload_count) {
  const std::string name = Text(arena.arena_id);
  if (arena.import_id != group.import_id) return Internal(name + " is of another import");
  if (arena.payload_count != payload_count) {
    return Differs(name + " payloads", arena.payload_count, payload_count);
  }
  if (payload_count > 0 && arena.state == ArenaState::kReleasing) {
    return Internal("payloads lie in given-up " + name);
  }
  if (arena.filled_bytes > arena.bytes) return Internal(name + " is overfull");
  if (group.removed && arena.state != ArenaState::kReleasing) {
    return Internal(name + " of a removed group is " + std::string(Name(arena.state)));
  }
  return OkStatus();
}

}  // namespace

Status Catalog::CheckInvariants() const {
  std::vector<Sums> sums(nodes_.size());
  for (const auto& [id, arena] : arenas_) {
    if (id != arena.arena_id || id.value >= next_arena_id_ || arena.node >= nodes_.size()) {
      return Internal(Text(id) + " is recorded under a wrong id or node");
    }
    Sums& node = sums[arena.node];
    switch (arena.state) {
      case ArenaState::kLive:
        node.live_bytes += arena.bytes;
        break;
      case ArenaState::kReleasing:
        node.releasing_bytes += arena.bytes;
        break;
      case ArenaState::kLost:
        break;
    }
    (arena.state == ArenaState::kLost ? node.lost_arenas : node.arenas).insert(id);
  }
  for (const auto& [id, arena] : arenas_) {
    if (arena.import_id == ImportId() && arena.state == ArenaState::kLive) {
      sums[arena.node].slab_bytes += arena.bytes;
    }
  }
  uint64_t payload_count = 0;
  uint64_t metadata_count = 0;
  for (const auto& [id, group] : groups_) {
    payload_count += group.payloads.payload_count();
    if (!group.removed) metadata_count += group.metadata.size();
    for (const model::MetadataObject& object : group.metadata) {
      const auto index = NodeIndex(object.node_id);
      if (!index) return Internal("METADATA " + object.name + " lies on an unknown node");
      Sums& node = sums[*index];
      (group.removed ? node.metadata_releasing_bytes : node.metadata_bytes) +=
          ChargedBytes(object.bytes);
      node.metadata_of.insert(id);
    }
  }
  for (size_t i = 0; i < nodes_.size(); ++i) MC_RETURN_IF_ERROR(CheckNode(nodes_[i], sums[i]));
  if (payload_count != payload_count_) {
    return Differs("payload count", payload_count_, payload_count);
  }
  if (metadata_count != metadata_count_) {
    return Differs("metadata count", metadata_count_, metadata_count);
  }
  return CheckGroups();
}

Status Catalog::CheckGroups() const {
  size_t arenas_seen = 0;
  for (const auto& [id, group] : groups_) {
    if (id != group.import_id) return Internal(Text(id) + " is recorded under a wrong id");
    MC_ASSIGN_OR_RETURN(const PayloadCounts payloads_in, CheckPayloads(group));
    uint32_t left = 0;
    for (size_t i = 0; i < group.arenas.size(); ++i) {
      const auto counted = payloads_in.find(static_cast<uint32_t>(i));
      const uint32_t count = counted == payloads_in.end() ? 0 : counted->second;
      const Arena* arena = FindArena(group.arenas[i]);
      if (arena != nullptr) {
        ++left;
        MC_RETURN_IF_ERROR(CheckArena(*arena, group, count));
      } else if (count > 0) {
        return Internal("payloads lie in vanished " + Text(group.arenas[i]));
      }
    }
    if (left != group.arenas_left) return Differs(Text(id) + " arenas", group.arenas_left, left);
    arenas_seen += left;
    if (group.removed && left == 0 && group.metadata.empty()) {
      return Internal(Text(id) + " is empty and was not forgotten");
    }
  }
  arenas_seen +=
      static_cast<size_t>(std::count_if(arenas_.begin(), arenas_.end(), [](const auto& entry) {
        return entry.second.import_id == ImportId();
      }));
  if (arenas_seen != arenas_.size()) return Differs("arenas", arenas_.size(), arenas_seen);
  return OkStatus();
}

Sha256Digest Catalog::Digest() const {
  model::StateDigest digest;
  digest.Text("objects 1");
  digest.Number(next_arena_id_);
  digest.Number(nodes_.size());
  for (const Node& node : nodes_) {
    digest.Address(node.address);
    digest.Number(node.capacity_bytes);
    digest.Number(node.durable_arenas ? 1 : 0);
    digest.Number(node.live_bytes);
    digest.Number(node.releasing_bytes);
    digest.Number(node.metadata_bytes);
    digest.Number(node.metadata_releasing_bytes);
    // Only where it is so: states from before it have the digest that they had.
    if (node.objects_only || node.left) digest.Text(node.left ? "left" : "objects only");
  }
  digest.Number(arenas_.size());
  for (const auto& [id, arena] : arenas_) {
    digest.Number(id.value);
    digest.Number(arena.import_id.value);
    digest.Number(arena.node);
    digest.Number(arena.bytes);
    digest.Number(static_cast<uint64_t>(arena.state));
    digest.Number(arena.filled_bytes);
    digest.Number(arena.payload_count);
  }
  digest.Number(groups_.size());
  for (const auto& [id, group] : groups_) {
    digest.Number(id.value);
    digest.Number(group.removed ? 1 : 0);
    digest.Number(group.arenas.size());
    for (const ArenaId arena : group.arenas) digest.Number(arena.value);
    digest.Number(group.payloads.row_count());
    for (uint32_t number = 0; number < group.payloads.row_count(); ++number) {
      const PayloadTable::Row& row = group.payloads.row(number);
      digest.Text(group.payloads.name(number));
      digest.Number(row.bytes);
      digest.Number(row.offset);
      digest.Number(row.arena);
      digest.Number(row.participant);
      digest.Number(row.unit);
    }
    digest.Number(group.metadata.size());
    for (const model::MetadataObject& object : group.metadata) digest.Metadata(object);
  }
  return digest.Finish();
}

}  // namespace mooncake::objects
