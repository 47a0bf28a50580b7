#include "pool/event_codec.h"

#include <string>

#include "codec/log_event.h"

namespace mooncake::pool {
namespace {

// ---- encode ----

v1::LogEvent Encode(const SlabAdded& event) {
  v1::SlabEvent body;
  auto& added = *body.mutable_added();
  added.set_slab_id(event.slab_id.value);
  added.set_tenant_id(event.tenant_id);
  added.set_node_id(event.node_id);
  added.set_bytes(event.bytes);
  return codec::SealEvent(v1::EVENT_KIND_SLAB, kEventVersion, body);
}

v1::LogEvent Encode(const SlabsGone& event) {
  v1::SlabEvent body;
  auto& gone = *body.mutable_gone();
  for (const ArenaId id : event.slab_ids) gone.add_slab_ids(id.value);
  return codec::SealEvent(v1::EVENT_KIND_SLAB, kEventVersion, body);
}

v1::LogEvent Encode(const PutsStarted& event) {
  v1::PutEvent body;
  auto& started = *body.mutable_started();
  started.set_client_id(event.client_id);
  started.set_put_id(event.put_id);
  started.set_tenant_id(event.tenant_id);
  started.set_data_type(event.data_type);
  started.set_hard_pin(event.hard_pin);
  started.set_soft_pin(static_cast<uint32_t>(event.soft_pin));
  started.set_soft_pin_ttl_ms(event.soft_pin_ttl_ms);
  for (const NewObject& object : event.objects) ToProto(object, started.add_objects());
  return codec::SealEvent(v1::EVENT_KIND_PUT, kEventVersion, body);
}

v1::LogEvent Encode(const PutsEnded& event) {
  v1::PutEvent body;
  auto& ended = *body.mutable_ended();
  for (const ObjectId id : event.object_ids) ended.add_object_ids(id.value);
  return codec::SealEvent(v1::EVENT_KIND_PUT, kEventVersion, body);
}

v1::LogEvent Encode(const ObjectsDropped& event) {
  v1::PutEvent body;
  auto& dropped = *body.mutable_dropped();
  for (const ObjectId id : event.object_ids) dropped.add_object_ids(id.value);
  dropped.set_cause(static_cast<uint32_t>(event.cause));
  return codec::SealEvent(v1::EVENT_KIND_PUT, kEventVersion, body);
}

v1::LogEvent Encode(const ReplicaDropped& event) {
  v1::PutEvent body;
  body.mutable_replica_dropped()->set_object_id(event.object_id.value);
  body.mutable_replica_dropped()->set_slab_id(event.slab_id.value);
  return codec::SealEvent(v1::EVENT_KIND_PUT, kEventVersion, body);
}

v1::LogEvent Encode(const TenantSet& event) {
  v1::TenantEvent body;
  body.mutable_set()->set_tenant_id(event.tenant_id);
  body.mutable_set()->set_bytes_max(event.bytes_max);
  body.mutable_set()->set_objects_max(event.objects_max);
  return codec::SealEvent(v1::EVENT_KIND_TENANT, kEventVersion, body);
}

v1::LogEvent Encode(const TenantRemoved& event) {
  v1::TenantEvent body;
  body.mutable_removed()->set_tenant_id(event.tenant_id);
  return codec::SealEvent(v1::EVENT_KIND_TENANT, kEventVersion, body);
}

// ---- decode ----

template <class Id, class Numbers>
std::vector<Id> Ids(const Numbers& numbers) {
  std::vector<Id> ids;
  ids.reserve(static_cast<size_t>(numbers.size()));
  for (const uint64_t number : numbers) ids.emplace_back(number);
  return ids;
}

Status NoSuchEvent(const v1::LogEvent& logged) {
  return Corrupt("kind " + std::to_string(logged.kind()) + ": " +
                 std::to_string(logged.body().size()) + " bytes that are no such event");
}

Result<Event> DecodeSlab(const v1::LogEvent& logged) {
  v1::SlabEvent body;
  if (!body.ParseFromString(logged.body())) return NoSuchEvent(logged);
  switch (body.event_case()) {
    case v1::SlabEvent::kAdded:
      return Event(SlabAdded{ArenaId(body.added().slab_id()), body.added().tenant_id(),
                             body.added().node_id(), body.added().bytes()});
    case v1::SlabEvent::kGone:
      return Event(SlabsGone{Ids<ArenaId>(body.gone().slab_ids())});
    case v1::SlabEvent::EVENT_NOT_SET:
      break;
  }
  return NoSuchEvent(logged);
}

Result<Event> DecodeStarted(const v1::PutEvent::Started& body) {
  PutsStarted event;
  event.client_id = body.client_id();
  event.put_id = body.put_id();
  event.tenant_id = body.tenant_id();
  if (body.data_type() > UINT8_MAX) {
    return Corrupt("data type must be at most 255, got " + std::to_string(body.data_type()));
  }
  event.data_type = static_cast<uint8_t>(body.data_type());
  event.hard_pin = body.hard_pin();
  MC_ASSIGN_OR_RETURN(event.soft_pin, SoftPinFromNumber(body.soft_pin()));
  event.soft_pin_ttl_ms = body.soft_pin_ttl_ms();
  event.objects.reserve(static_cast<size_t>(body.objects_size()));
  for (const v1::PutEvent::Object& object : body.objects()) {
    MC_ASSIGN_OR_RETURN(NewObject added, FromProto(object));
    event.objects.push_back(std::move(added));
  }
  return Event(std::move(event));
}

Result<Event> DecodePut(const v1::LogEvent& logged) {
  v1::PutEvent body;
  if (!body.ParseFromString(logged.body())) return NoSuchEvent(logged);
  switch (body.event_case()) {
    case v1::PutEvent::kStarted:
      return DecodeStarted(body.started());
    case v1::PutEvent::kEnded:
      return Event(PutsEnded{Ids<ObjectId>(body.ended().object_ids())});
    case v1::PutEvent::kDropped: {
      const uint32_t cause = body.dropped().cause();
      if (cause == 0 || cause > kDropCauseMax) {
        return Corrupt("a cause of dropping must be 1 to " + std::to_string(kDropCauseMax) +
                       ", got " + std::to_string(cause));
      }
      return Event(ObjectsDropped{Ids<ObjectId>(body.dropped().object_ids()),
                                  static_cast<DropCause>(cause)});
    }
    case v1::PutEvent::kReplicaDropped:
      return Event(ReplicaDropped{ObjectId(body.replica_dropped().object_id()),
                                  ArenaId(body.replica_dropped().slab_id())});
    case v1::PutEvent::EVENT_NOT_SET:
      break;
  }
  return NoSuchEvent(logged);
}

Result<Event> DecodeTenant(const v1::LogEvent& logged) {
  v1::TenantEvent body;
  if (!body.ParseFromString(logged.body())) return NoSuchEvent(logged);
  switch (body.event_case()) {
    case v1::TenantEvent::kSet:
      return Event(
          TenantSet{body.set().tenant_id(), body.set().bytes_max(), body.set().objects_max()});
    case v1::TenantEvent::kRemoved:
      return Event(TenantRemoved{body.removed().tenant_id()});
    case v1::TenantEvent::EVENT_NOT_SET:
      break;
  }
  return NoSuchEvent(logged);
}

}  // namespace

bool HandlesKind(uint32_t kind) {
  return kind == v1::EVENT_KIND_SLAB || kind == v1::EVENT_KIND_PUT || kind == v1::EVENT_KIND_TENANT;
}

v1::LogEvent EncodeEvent(const Event& event) {
  return std::visit([](const auto& one) { return Encode(one); }, event);
}

Result<Event> DecodeEvent(const v1::LogEvent& logged) {
  if (!HandlesKind(logged.kind())) {
    return Unsupported("event kind " + std::to_string(logged.kind()) + " is not known here");
  }
  MC_RETURN_IF_ERROR(codec::CheckReader(logged, kEventVersion));
  if (logged.kind() == v1::EVENT_KIND_SLAB) return DecodeSlab(logged);
  if (logged.kind() == v1::EVENT_KIND_PUT) return DecodePut(logged);
  return DecodeTenant(logged);
}

void ToProto(const NewObject& object, v1::PutEvent::Object* proto) {
  proto->set_object_id(object.object_id.value);
  proto->set_key(object.key);
  proto->set_bytes(object.bytes);
  proto->set_group_id(object.group_id);
  for (const ReplicaPlace& place : object.replicas) {
    proto->add_slab_ids(place.slab_id.value);
    proto->add_offsets(place.offset);
  }
}

Result<NewObject> FromProto(const v1::PutEvent::Object& proto) {
  if (proto.slab_ids_size() != proto.offsets_size()) {
    return Corrupt("an object has " + std::to_string(proto.slab_ids_size()) + " slabs and " +
                   std::to_string(proto.offsets_size()) + " offsets");
  }
  NewObject object;
  object.object_id = ObjectId(proto.object_id());
  object.key = proto.key();
  object.bytes = proto.bytes();
  object.group_id = proto.group_id();
  for (int i = 0; i < proto.slab_ids_size(); ++i) {
    object.replicas.push_back({ArenaId(proto.slab_ids(i)), proto.offsets(i)});
  }
  return object;
}

Result<SoftPin> SoftPinFromNumber(uint32_t number) {
  if (number > 2) return Corrupt("soft pin must be 0 to 2, got " + std::to_string(number));
  return static_cast<SoftPin>(number);
}

}  // namespace mooncake::pool
