#include "objects/event_codec.h"

#include "codec/log_event.h"
#include "codec/values.h"

namespace mooncake::objects {
namespace {

// ---- encode ----

v1::LogEvent Encode(const NodeJoined& event) {
  v1::NodeEvent body;
  auto& joined = *body.mutable_joined();
  codec::ToProto(event.address, joined.mutable_address());
  joined.set_capacity_bytes(event.capacity_bytes);
  joined.set_durable_arenas(event.durable_arenas);
  joined.set_objects_only(event.objects_only);
  return codec::SealEvent(v1::EVENT_KIND_NODE, kEventVersion, body);
}

v1::LogEvent Encode(const NodeLeft& event) {
  v1::NodeEvent body;
  body.mutable_left()->set_node_id(event.node_id);
  return codec::SealEvent(v1::EVENT_KIND_NODE, kEventVersion, body);
}

v1::LogEvent Encode(const ArenaReserved& event) {
  v1::ArenaEvent body;
  auto& reserved = *body.mutable_reserved();
  reserved.set_arena_id(event.arena_id.value);
  reserved.set_import_id(event.import_id.value);
  reserved.set_node_id(event.node_id);
  reserved.set_instance_id(event.instance_id);
  reserved.set_bytes(event.bytes);
  return codec::SealEvent(v1::EVENT_KIND_ARENA, kEventVersion, body);
}

v1::LogEvent Encode(const ArenasReleasing& event) {
  v1::ArenaEvent body;
  auto& releasing = *body.mutable_releasing();
  for (const ArenaId id : event.arena_ids) releasing.add_arena_ids(id.value);
  return codec::SealEvent(v1::EVENT_KIND_ARENA, kEventVersion, body);
}

v1::LogEvent Encode(const ArenasReleased& event) {
  v1::ArenaEvent body;
  auto& released = *body.mutable_released();
  for (const ArenaId id : event.arena_ids) released.add_arena_ids(id.value);
  return codec::SealEvent(v1::EVENT_KIND_ARENA, kEventVersion, body);
}

v1::LogEvent Encode(const ObjectsReserved& event) {
  v1::ObjectEvent body;
  auto& reserved = *body.mutable_reserved();
  reserved.set_import_id(event.import_id.value);
  reserved.set_participant(event.participant);
  for (const ReservedPayload& payload : event.payloads) {
    reserved.add_names(payload.name);
    reserved.add_bytes(payload.bytes);
    reserved.add_units(payload.unit);
    reserved.add_arena_ids(payload.arena_id.value);
    reserved.add_offsets(payload.offset);
  }
  return codec::SealEvent(v1::EVENT_KIND_OBJECT, kEventVersion, body);
}

v1::LogEvent Encode(const ObjectsRemoved& event) {
  v1::ObjectEvent body;
  auto& removed = *body.mutable_removed();
  removed.set_import_id(event.import_id.value);
  for (const std::string& name : event.names) removed.add_names(name);
  return codec::SealEvent(v1::EVENT_KIND_OBJECT, kEventVersion, body);
}

v1::LogEvent Encode(const GroupRemoved& event) {
  v1::ObjectEvent body;
  body.mutable_group_removed()->set_import_id(event.import_id.value);
  return codec::SealEvent(v1::EVENT_KIND_OBJECT, kEventVersion, body);
}

v1::LogEvent Encode(const MetadataStored& event) {
  v1::ObjectEvent body;
  auto& stored = *body.mutable_metadata_stored();
  stored.set_import_id(event.import_id.value);
  for (const model::MetadataObject& object : event.objects) {
    codec::ToProto(object, stored.add_objects());
  }
  return codec::SealEvent(v1::EVENT_KIND_OBJECT, kEventVersion, body);
}

v1::LogEvent Encode(const MetadataReleased& event) {
  v1::ObjectEvent body;
  auto& released = *body.mutable_metadata_released();
  released.set_node_id(event.node_id);
  for (const ImportId id : event.import_ids) released.add_import_ids(id.value);
  return codec::SealEvent(v1::EVENT_KIND_OBJECT, kEventVersion, body);
}

// ---- decode ----

std::vector<ArenaId> ArenaIds(const google::protobuf::RepeatedField<uint64_t>& ids) {
  std::vector<ArenaId> arenas;
  arenas.reserve(static_cast<size_t>(ids.size()));
  for (const uint64_t id : ids) arenas.emplace_back(id);
  return arenas;
}

Result<Event> DecodeNode(const std::string& bytes) {
  v1::NodeEvent body;
  if (!body.ParseFromString(bytes) || body.event_case() == v1::NodeEvent::EVENT_NOT_SET) {
    return Corrupt("a logged node event is malformed");
  }
  if (body.has_left()) return Event(NodeLeft{body.left().node_id()});
  const auto& joined = body.joined();
  NodeJoined event;
  event.address = codec::FromProto(joined.address());
  event.capacity_bytes = joined.capacity_bytes();
  event.durable_arenas = joined.durable_arenas();
  event.objects_only = joined.objects_only();
  return Event(std::move(event));
}

Result<Event> DecodeArena(const std::string& bytes) {
  v1::ArenaEvent body;
  if (!body.ParseFromString(bytes)) return Corrupt("a logged arena event is malformed");
  switch (body.event_case()) {
    case v1::ArenaEvent::kReserved: {
      const auto& reserved = body.reserved();
      return Event(ArenaReserved{ArenaId(reserved.arena_id()), ImportId(reserved.import_id()),
                                 reserved.node_id(), reserved.instance_id(), reserved.bytes()});
    }
    case v1::ArenaEvent::kReleasing:
      return Event(ArenasReleasing{ArenaIds(body.releasing().arena_ids())});
    case v1::ArenaEvent::kReleased:
      return Event(ArenasReleased{ArenaIds(body.released().arena_ids())});
    case v1::ArenaEvent::EVENT_NOT_SET:
      break;
  }
  return Corrupt("a logged arena event is empty");
}

Result<Event> DecodeObjectsReserved(const v1::ObjectEvent::Reserved& reserved) {
  const int count = reserved.names_size();
  if (reserved.bytes_size() != count || reserved.units_size() != count ||
      reserved.arena_ids_size() != count || reserved.offsets_size() != count) {
    return Corrupt("a logged reservation of " + std::to_string(count) +
                   " objects has columns of other lengths");
  }
  ObjectsReserved event;
  event.import_id = ImportId(reserved.import_id());
  event.participant = reserved.participant();
  event.payloads.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    event.payloads.push_back({reserved.names(i), reserved.bytes(i), reserved.units(i),
                              ArenaId(reserved.arena_ids(i)), reserved.offsets(i)});
  }
  return Event(std::move(event));
}

Result<Event> DecodeMetadataStored(const v1::ObjectEvent::MetadataStored& stored) {
  MetadataStored event;
  event.import_id = ImportId(stored.import_id());
  for (const v1::MetadataObject& object : stored.objects()) {
    MC_ASSIGN_OR_RETURN(event.objects.emplace_back(), codec::FromLog(object));
  }
  return Event(std::move(event));
}

Result<Event> DecodeObject(const std::string& bytes) {
  v1::ObjectEvent body;
  if (!body.ParseFromString(bytes)) return Corrupt("a logged object event is malformed");
  switch (body.event_case()) {
    case v1::ObjectEvent::kReserved:
      return DecodeObjectsReserved(body.reserved());
    case v1::ObjectEvent::kRemoved: {
      const auto& removed = body.removed();
      return Event(ObjectsRemoved{ImportId(removed.import_id()),
                                  {removed.names().begin(), removed.names().end()}});
    }
    case v1::ObjectEvent::kGroupRemoved:
      return Event(GroupRemoved{ImportId(body.group_removed().import_id())});
    case v1::ObjectEvent::kMetadataStored:
      return DecodeMetadataStored(body.metadata_stored());
    case v1::ObjectEvent::kMetadataReleased: {
      MetadataReleased event;
      event.node_id = body.metadata_released().node_id();
      for (const uint64_t id : body.metadata_released().import_ids()) {
        event.import_ids.emplace_back(id);
      }
      return Event(std::move(event));
    }
    case v1::ObjectEvent::EVENT_NOT_SET:
      break;
  }
  return Corrupt("a logged object event is empty");
}

}  // namespace

bool HandlesKind(uint32_t kind) {
  return kind == v1::EVENT_KIND_OBJECT || kind == v1::EVENT_KIND_ARENA ||
         kind == v1::EVENT_KIND_NODE;
}

v1::LogEvent EncodeEvent(const Event& event) {
  return std::visit([](const auto& one) { return Encode(one); }, event);
}

Result<Event> DecodeEvent(const v1::LogEvent& logged) {
  if (!HandlesKind(logged.kind())) {
    return Unsupported("event kind " + std::to_string(logged.kind()) +
                       " is not the object catalogue's");
  }
  MC_RETURN_IF_ERROR(codec::CheckReader(logged, kEventVersion));
  switch (logged.kind()) {
    case v1::EVENT_KIND_NODE:
      return DecodeNode(logged.body());
    case v1::EVENT_KIND_ARENA:
      return DecodeArena(logged.body());
    default:
      return DecodeObject(logged.body());
  }
}

}  // namespace mooncake::objects
