#include "objects/snapshot_codec.h"

#include <algorithm>
#include <utility>

#include "codec/values.h"

namespace mooncake::objects {
namespace {

using Record = v1::ObjectsRecord;

std::string Text(ImportId id) { return "import " + std::to_string(id.value); }

void Add(const Record& record, const std::function<void(std::string_view)>& add) {
  add(record.SerializeAsString());
}

void SaveNode(const Node& node, const std::function<void(std::string_view)>& add) {
  Record record;
  Record::Node& out = *record.mutable_node();
  codec::ToProto(node.address, out.mutable_address());
  out.set_capacity_bytes(node.capacity_bytes);
  out.set_durable_arenas(node.durable_arenas);
  out.set_objects_only(node.objects_only);
  out.set_left(node.left);
  Add(record, add);
}

void SaveArena(const Arena& arena, const std::function<void(std::string_view)>& add) {
  Record record;
  Record::Arena& out = *record.mutable_arena();
  out.set_arena_id(arena.arena_id.value);
  out.set_import_id(arena.import_id.value);
  out.set_node(arena.node);
  out.set_bytes(arena.bytes);
  out.set_state(static_cast<uint32_t>(arena.state));
  out.set_filled_bytes(arena.filled_bytes);
  Add(record, add);
}

void SavePayloads(const PayloadTable& table, const std::function<void(std::string_view)>& add) {
  // A participant's rows lie together.
  for (uint32_t number = 0; number < table.row_count();) {
    Record record;
    Record::Payloads& out = *record.mutable_payloads();
    out.set_participant(table.row(number).participant);
    for (; number < table.row_count() && table.row(number).participant == out.participant();
         ++number) {
      const PayloadTable::Row& row = table.row(number);
      const std::string_view name = table.name(number);
      out.add_names(name.data(), name.size());
      out.add_bytes(row.bytes);
      out.add_offsets(row.offset);
      out.add_arenas(row.arena == PayloadTable::kRemoved ? 0 : row.arena + 1);
      out.add_units(row.unit);
    }
    Add(record, add);
  }
}

void SaveGroup(const Group& group, const std::function<void(std::string_view)>& add) {
  Record record;
  Record::Group& out = *record.mutable_group();
  out.set_import_id(group.import_id.value);
  out.set_removed(group.removed);
  for (const ArenaId id : group.arenas) out.add_arena_ids(id.value);
  for (const model::MetadataObject& object : group.metadata) {
    codec::ToProto(object, out.add_metadata());
  }
  Add(record, add);
  SavePayloads(group.payloads, add);
}

}  // namespace

void SaveSnapshot(const Catalog& catalog, const std::function<void(std::string_view)>& add) {
  Record counters;
  counters.mutable_counters()->set_next_arena_id(catalog.next_arena_id().value);
  Add(counters, add);
  for (const Node& node : catalog.nodes()) SaveNode(node, add);
  for (const auto& [id, arena] : catalog.arenas()) SaveArena(arena, add);
  for (const auto& [id, group] : catalog.groups()) SaveGroup(group, add);
}

Status SnapshotLoader::Add(std::string_view bytes) {
  Record record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Corrupt(std::to_string(bytes.size()) + " bytes that are no ObjectsRecord");
  }
  switch (record.record_case()) {
    case Record::kCounters:
      return Load(record.counters());
    case Record::kNode:
      return Load(record.node());
    case Record::kArena:
      return Load(record.arena());
    case Record::kGroup:
      return Load(record.group());
    case Record::kPayloads:
      return Load(record.payloads());
    case Record::RECORD_NOT_SET:
      break;
  }
  return Corrupt("an ObjectsRecord without content, or of a kind that is not known here");
}

Status SnapshotLoader::Load(const Record::Counters& counters) {
  if (std::exchange(has_counters_, true)) return Corrupt("the counters are there twice");
  catalog_.next_arena_id_ = counters.next_arena_id();
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::Node& record) {
  const v1::NodeAddress& address = record.address();
  const auto index = static_cast<uint32_t>(catalog_.nodes_.size());
  if (address.node_id().empty() || !catalog_.node_index_.emplace(address.node_id(), index).second) {
    return Corrupt("node '" + address.node_id() + "' has no id, or is there twice");
  }
  Node& node = catalog_.nodes_.emplace_back();
  node.address = codec::FromProto(address);
  node.capacity_bytes = record.capacity_bytes();
  node.durable_arenas = record.durable_arenas();
  node.objects_only = record.objects_only();
  node.left = record.left();
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::Arena& record) {
  const ArenaId id(record.arena_id());
  const std::string what = "arena " + std::to_string(id.value);
  if (record.node() >= catalog_.nodes_.size() ||
      record.state() > static_cast<uint32_t>(ArenaState::kLost)) {
    return Corrupt(what + " is in state " + std::to_string(record.state()) + " on node " +
                   std::to_string(record.node()) + " of " + std::to_string(catalog_.nodes_.size()));
  }
  const auto [it, is_new] = catalog_.arenas_.try_emplace(id);
  if (!is_new) return Corrupt(what + " is there twice");
  Arena& arena = it->second;
  arena.arena_id = id;
  arena.import_id = ImportId(record.import_id());
  arena.node = record.node();
  arena.bytes = record.bytes();
  arena.state = static_cast<ArenaState>(record.state());
  arena.filled_bytes = record.filled_bytes();
  Node& node = catalog_.nodes_[arena.node];
  if (node.used_bytes() > UINT64_MAX - arena.bytes) return Corrupt(what + " is too large");
  if (arena.state == ArenaState::kLost) {
    node.lost_arenas.insert(id);
    return OkStatus();
  }
  node.arenas.insert(id);
  if (arena.import_id == ImportId() && arena.state == ArenaState::kLive) {
    node.slab_bytes += arena.bytes;
  }
  (arena.state == ArenaState::kLive ? node.live_bytes : node.releasing_bytes) += arena.bytes;
  return OkStatus();
}

Status SnapshotLoader::LoadMetadata(const v1::MetadataObject& record) {
  MC_ASSIGN_OR_RETURN(model::MetadataObject object, codec::FromLog(record));
  const auto index = catalog_.NodeIndex(object.node_id);
  if (!index) {
    return Corrupt("METADATA " + object.name + " of " + Text(group_->import_id) +
                   " lies on unknown node " + object.node_id);
  }
  Node& node = catalog_.nodes_[*index];
  const uint64_t charged = ChargedBytes(object.bytes);
  if (node.used_bytes() > UINT64_MAX - charged) {
    return Corrupt("METADATA " + object.name + " is too large");
  }
  (group_->removed ? node.metadata_releasing_bytes : node.metadata_bytes) += charged;
  node.metadata_of.insert(group_->import_id);
  if (!group_->removed) ++catalog_.metadata_count_;
  group_->metadata.push_back(std::move(object));
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::Group& record) {
  const ImportId id(record.import_id());
  const auto [it, is_new] = catalog_.groups_.try_emplace(id);
  if (!is_new) return Corrupt("the group of " + Text(id) + " is there twice");
  group_ = &it->second;
  group_->import_id = id;
  group_->removed = record.removed();
  for (const uint64_t arena_id : record.arena_ids()) {
    group_->arenas.emplace_back(arena_id);
    if (catalog_.FindArena(ArenaId(arena_id)) != nullptr) ++group_->arenas_left;
  }
  if (!std::is_sorted(group_->arenas.begin(), group_->arenas.end())) {
    return Corrupt("the arenas of " + Text(id) + " are not in order");
  }
  for (const v1::MetadataObject& object : record.metadata()) {
    MC_RETURN_IF_ERROR(LoadMetadata(object));
  }
  return OkStatus();
}

Status SnapshotLoader::CheckPayloads(const Record::Payloads& record) const {
  if (group_ == nullptr) return Corrupt("payloads come before any group");
  const int count = record.names_size();
  const std::string what =
      "participant " + std::to_string(record.participant()) + " of " + Text(group_->import_id);
  if (count == 0 || record.bytes_size() != count || record.offsets_size() != count ||
      record.arenas_size() != count || record.units_size() != count) {
    return Corrupt(what + " has " + std::to_string(count) + " names and other numbers of facts");
  }
  if (group_->payloads.HasParticipant(record.participant())) {
    return Corrupt(what + " is there twice");
  }
  for (const uint32_t arena : record.arenas()) {
    if (arena > group_->arenas.size()) return Corrupt(what + " has a payload nowhere");
    if (arena != 0 && catalog_.FindArena(group_->arenas[arena - 1]) == nullptr) {
      return Corrupt(what + " has a payload in a vanished arena");
    }
  }
  return OkStatus();
}

Status SnapshotLoader::Load(const Record::Payloads& record) {
  MC_RETURN_IF_ERROR(CheckPayloads(record));
  const uint32_t first = group_->payloads.row_count();
  std::vector<PayloadTable::NewRow> rows(static_cast<size_t>(record.names_size()));
  for (int i = 0; i < record.names_size(); ++i) {
    PayloadTable::NewRow& row = rows[static_cast<size_t>(i)];
    row.name = record.names(i);
    row.row.bytes = record.bytes(i);
    row.row.offset = record.offsets(i);
    row.row.arena = record.arenas(i) == 0 ? 0 : record.arenas(i) - 1;
    row.row.participant = record.participant();
    row.row.unit = record.units(i);
  }
  group_->payloads.Append(rows);
  for (int i = 0; i < record.names_size(); ++i) {
    if (record.arenas(i) == 0) {
      group_->payloads.Remove(first + static_cast<uint32_t>(i));
      continue;
    }
    catalog_.arenas_.at(group_->arenas[record.arenas(i) - 1]).payload_count += 1;
    ++catalog_.payload_count_;
  }
  return OkStatus();
}

}  // namespace mooncake::objects
