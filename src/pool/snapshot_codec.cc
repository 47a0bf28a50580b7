#include "pool/snapshot_codec.h"

#include <algorithm>
#include <string>
#include <vector>

#include "pool/event_codec.h"

namespace mooncake::pool {
namespace {

void Save(const v1::PoolRecord& record, const std::function<void(std::string_view)>& add) {
  add(record.SerializeAsString());
}

NewObject PlainOf(const Catalog& catalog, const Object& object) {
  NewObject plain;
  plain.object_id = object.object_id;
  plain.key = object.key;
  plain.bytes = object.bytes;
  if (object.group != kNone) plain.group_id = catalog.group(object.group).group_id;
  for (const Replica& replica : object.replicas()) {
    plain.replicas.push_back({catalog.slab(replica.slab).slab_id, replica.offset});
  }
  return plain;
}

void SaveObject(const Catalog& catalog, const Object& object,
                const std::function<void(std::string_view)>& add) {
  v1::PoolRecord record;
  auto& saved = *record.mutable_object();
  ToProto(PlainOf(catalog, object), saved.mutable_object());
  saved.set_tenant_id(catalog.tenant(object.tenant).tenant_id);
  saved.set_data_type(object.data_type);
  saved.set_hard_pin(object.hard_pin);
  if (object.readable) {
    saved.set_ready_ms(object.ready_ms);
    saved.set_soft_pin_until_ms(object.soft_pin_until_ms);
  } else {
    const Unfinished& unfinished = catalog.UnfinishedOf(object);
    saved.set_client_id(unfinished.client_id);
    saved.set_put_id(unfinished.put_id);
    saved.set_soft_pin(static_cast<uint32_t>(unfinished.soft_pin));
    saved.set_soft_pin_ttl_ms(unfinished.soft_pin_ttl_ms);
  }
  Save(record, add);
}

}  // namespace

void SaveSnapshot(const Catalog& catalog, const std::function<void(std::string_view)>& add) {
  if (catalog.empty()) return;
  v1::PoolRecord counters;
  counters.mutable_counters()->set_next_object_id(catalog.next_object_id().value);
  Save(counters, add);
  for (const auto& [tenant_id, handle] : catalog.tenants()) {
    const Tenant& tenant = catalog.tenant(handle);
    v1::PoolRecord record;
    auto& saved = *record.mutable_tenant();
    saved.set_tenant_id(tenant_id);
    saved.set_known(tenant.known);
    saved.set_bytes_max(tenant.bytes_max);
    saved.set_objects_max(tenant.objects_max);
    Save(record, add);
  }
  for (const auto& [id, handle] : catalog.slabs()) {
    const Slab& slab = catalog.slab(handle);
    v1::PoolRecord record;
    auto& saved = *record.mutable_slab();
    saved.set_slab_id(id.value);
    saved.set_tenant_id(catalog.tenant(slab.tenant).tenant_id);
    saved.set_node_id(slab.node_id);
    saved.set_bytes(slab.bytes);
    Save(record, add);
  }
  // In the order of their ids: what comes later must have a greater one.
  std::vector<const Object*> objects;
  objects.reserve(catalog.object_count());
  for (uint32_t slot = 0; slot < catalog.slot_count(); ++slot) {
    if (const Object* object = catalog.AtSlot(slot)) objects.push_back(object);
  }
  std::sort(objects.begin(), objects.end(),
            [](const Object* a, const Object* b) { return a->object_id < b->object_id; });
  for (const Object* object : objects) SaveObject(catalog, *object, add);
}

Status SnapshotLoader::Add(std::string_view bytes) {
  v1::PoolRecord record;
  if (!record.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Corrupt(std::to_string(bytes.size()) + " bytes that are no PoolRecord");
  }
  const bool counters = record.record_case() == v1::PoolRecord::kCounters;
  if (counters != (next_object_id_ == 0)) return Corrupt("the counters must come first, and once");
  switch (record.record_case()) {
    case v1::PoolRecord::kCounters:
      next_object_id_ = record.counters().next_object_id();
      return next_object_id_ != 0 ? OkStatus() : Corrupt("next_object_id is 0");
    case v1::PoolRecord::kTenant:
      return Load(record.tenant());
    case v1::PoolRecord::kSlab: {
      const auto& slab = record.slab();
      if (catalog_.FindTenant(slab.tenant_id()) == nullptr) {
        return Corrupt("slab " + std::to_string(slab.slab_id()) + " is of unknown tenant " +
                       slab.tenant_id());
      }
      return catalog_.Apply(
          SlabAdded{ArenaId(slab.slab_id()), slab.tenant_id(), slab.node_id(), slab.bytes()}, 0);
    }
    case v1::PoolRecord::kObject:
      return Load(record.object());
    case v1::PoolRecord::RECORD_NOT_SET:
      break;
  }
  return Corrupt("an empty PoolRecord");
}

Status SnapshotLoader::Load(const v1::PoolRecord::Tenant& record) {
  if (record.tenant_id().empty() || catalog_.FindTenant(record.tenant_id()) != nullptr) {
    return Corrupt("tenant \"" + record.tenant_id() + "\" is nobody, or stands twice");
  }
  const TenantSet set{record.tenant_id(), record.bytes_max(), record.objects_max()};
  MC_RETURN_IF_ERROR(catalog_.Apply(set, 0));
  catalog_.tenants_[*catalog_.TenantHandle(record.tenant_id())].known = record.known();
  return OkStatus();
}

Status SnapshotLoader::Load(const v1::PoolRecord::Object& record) {
  PutsStarted started;
  started.client_id = record.client_id();
  started.put_id = record.put_id();
  started.tenant_id = record.tenant_id();
  if (record.data_type() > UINT8_MAX)
    return Corrupt("data type " + std::to_string(record.data_type()));
  started.data_type = static_cast<uint8_t>(record.data_type());
  started.hard_pin = record.hard_pin();
  MC_ASSIGN_OR_RETURN(started.soft_pin, SoftPinFromNumber(record.soft_pin()));
  started.soft_pin_ttl_ms = record.soft_pin_ttl_ms();
  MC_ASSIGN_OR_RETURN(NewObject object, FromProto(record.object()));
  const ObjectId id = object.object_id;
  const std::string key = object.key;
  const bool readable = record.client_id().empty();
  const Object* same = catalog_.FindReadable(started.tenant_id, key);
  if (readable && same != nullptr) return Corrupt("two readable objects have one key");
  // Of two with one key the readable one is the older.
  if (readable && catalog_.FindUnfinished(started.tenant_id, key) != nullptr) {
    return Corrupt("object " + std::to_string(id.value) + " is younger than the one being put");
  }
  started.objects.push_back(std::move(object));
  MC_RETURN_IF_ERROR(catalog_.Apply(started, 0));
  if (!readable) return OkStatus();
  MC_RETURN_IF_ERROR(catalog_.Apply(PutsEnded{{id}}, record.ready_ms()));
  catalog_.slots_[*catalog_.SlotOf(id)].soft_pin_until_ms = record.soft_pin_until_ms();
  return OkStatus();
}

Catalog SnapshotLoader::Take() {
  catalog_.next_object_id_ = std::max(catalog_.next_object_id_, next_object_id_);
  return std::move(catalog_);
}

}  // namespace mooncake::pool
