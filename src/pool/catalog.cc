#include "pool/catalog.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/check.h"

namespace mooncake::pool {
namespace {

std::string Text(ObjectId id) { return "object " + std::to_string(id.value); }
std::string Text(ArenaId id) { return "slab " + std::to_string(id.value); }

uint64_t Mix(uint64_t value) {
  value ^= value >> 33;
  value *= 0xff51afd7ed558ccdull;
  return value ^ (value >> 33);
}

uint64_t KeyHash(std::string_view tenant_id, std::string_view key) {
  return Mix(std::hash<std::string_view>()(key) + 31 * std::hash<std::string_view>()(tenant_id));
}

// A place in a table of the given kind, reused where one is free.
template <class T>
uint32_t TakePlace(std::deque<T>* table, std::vector<uint32_t>* free) {
  if (free->empty()) {
    table->emplace_back();
    return static_cast<uint32_t>(table->size() - 1);
  }
  const uint32_t place = free->back();
  free->pop_back();
  return place;
}

template <class T>
void GivePlace(std::deque<T>* table, std::vector<uint32_t>* free, uint32_t place) {
  (*table)[place] = T();
  free->push_back(place);
}

}  // namespace

// ---- lookups ----

std::optional<uint32_t> Catalog::SlotOf(ObjectId id) const {
  return by_id_.Find(Mix(id.value), [&](uint32_t slot) { return slots_[slot].object_id == id; });
}

std::optional<uint32_t> Catalog::SlotOf(const SlotIndex& index, std::string_view tenant_id,
                                        std::string_view key) const {
  return index.Find(KeyHash(tenant_id, key), [&](uint32_t slot) {
    return slots_[slot].key == key && tenants_[slots_[slot].tenant].tenant_id == tenant_id;
  });
}

uint64_t Catalog::HashOf(const Object& object) const {
  return KeyHash(tenants_[object.tenant].tenant_id, object.key);
}

const Object* Catalog::Find(ObjectId id) const {
  const auto slot = SlotOf(id);
  return slot ? &slots_[*slot] : nullptr;
}

const Object* Catalog::FindReadable(std::string_view tenant_id, std::string_view key) const {
  const auto slot = SlotOf(readable_, tenant_id, key);
  return slot ? &slots_[*slot] : nullptr;
}

const Object* Catalog::FindUnfinished(std::string_view tenant_id, std::string_view key) const {
  const auto slot = SlotOf(being_put_, tenant_id, key);
  return slot ? &slots_[*slot] : nullptr;
}

const Unfinished& Catalog::UnfinishedOf(const Object& object) const {
  return unfinished_.at(object.object_id);
}

std::optional<uint32_t> Catalog::TenantHandle(std::string_view tenant_id) const {
  const auto at = tenant_index_.find(tenant_id);
  if (at == tenant_index_.end()) return std::nullopt;
  return at->second;
}

const Tenant* Catalog::FindTenant(std::string_view tenant_id) const {
  const auto handle = TenantHandle(tenant_id);
  return handle ? &tenants_[*handle] : nullptr;
}

const Slab* Catalog::FindSlab(ArenaId id) const {
  const auto at = slab_index_.find(id);
  return at == slab_index_.end() ? nullptr : &slabs_[at->second];
}

const Group* Catalog::FindGroup(std::string_view tenant_id, std::string_view group_id) const {
  const auto tenant = TenantHandle(tenant_id);
  if (!tenant) return nullptr;
  const auto at = group_index_.find({*tenant, std::string(group_id)});
  return at == group_index_.end() ? nullptr : &groups_[at->second];
}

int64_t Catalog::LeaseOf(const Object& object) const {
  if (object.group == kNone) return object.lease_until_ms;
  return std::max(object.lease_until_ms, groups_[object.group].lease_until_ms);
}

void Catalog::ExtendLease(const Object& object, int64_t until_ms) const {
  object.lease_until_ms = std::max(object.lease_until_ms, until_ms);
  if (object.group == kNone) return;
  const Group& group = groups_[object.group];
  group.lease_until_ms = std::max(group.lease_until_ms, until_ms);
}

// ---- apply ----

Status Catalog::Apply(const Event& event, int64_t logged_ms) {
  return std::visit([&](const auto& one) { return ApplyOne(one, logged_ms); }, event);
}

uint32_t Catalog::MakeTenant(std::string_view tenant_id) {
  if (const auto known = TenantHandle(tenant_id)) return *known;
  const uint32_t handle = TakePlace(&tenants_, &free_tenants_);
  tenants_[handle].tenant_id = tenant_id;
  tenant_index_.emplace(tenant_id, handle);
  return handle;
}

Status Catalog::ApplyOne(const SlabAdded& event, int64_t) {
  if (event.slab_id.value == 0 || slab_index_.contains(event.slab_id) || event.node_id.empty() ||
      event.tenant_id.empty() || event.bytes < kExtentHeaderBytes + kExtentUnit ||
      event.bytes > kPayloadBytesMax * 2) {
    return Corrupt(Text(event.slab_id) + " of " + std::to_string(event.bytes) +
                   " bytes is there already, or is none");
  }
  const uint32_t handle = TakePlace(&slabs_, &free_slabs_);
  Slab& slab = slabs_[handle];
  slab.slab_id = event.slab_id;
  slab.tenant = MakeTenant(event.tenant_id);
  slab.node_id = event.node_id;
  slab.bytes = event.bytes;
  slab.space = SlabSpace(event.bytes);
  slab_index_.emplace(event.slab_id, handle);
  Tenant& tenant = tenants_[slab.tenant];
  tenant.slab_bytes += event.bytes;
  slab.place = static_cast<uint32_t>(tenant.slabs.size());
  tenant.slabs.push_back(handle);
  tenant.rooms[event.node_id].emplace(slab.space.largest_free(), handle);
  return OkStatus();
}

Status Catalog::ApplyOne(const SlabsGone& event, int64_t) {
  for (const ArenaId id : event.slab_ids) {
    const auto at = slab_index_.find(id);
    if (at == slab_index_.end()) return Corrupt(Text(id) + " is gone but does not exist");
    const uint32_t handle = at->second;
    while (!slabs_[handle].members.empty()) {
      const uint32_t slot = slabs_[handle].members.back();
      const std::span<const Replica> replicas = std::as_const(slots_[slot]).replicas();
      size_t number = 0;
      while (replicas[number].slab != handle) ++number;
      DropReplica(slot, number);
    }
    Slab& slab = slabs_[handle];
    Tenant& tenant = tenants_[slab.tenant];
    tenant.slab_bytes -= slab.bytes;
    tenant.slabs[slab.place] = tenant.slabs.back();
    slabs_[tenant.slabs[slab.place]].place = slab.place;
    tenant.slabs.pop_back();
    const auto rooms = tenant.rooms.find(slab.node_id);
    rooms->second.erase({slab.space.largest_free(), handle});
    if (rooms->second.empty()) tenant.rooms.erase(rooms);
    slab_index_.erase(at);
    GivePlace(&slabs_, &free_slabs_, handle);
  }
  return OkStatus();
}

Status Catalog::ApplyOne(const PutsStarted& event, int64_t) {
  const auto tenant = TenantHandle(event.tenant_id);
  if (!tenant || event.objects.empty()) {
    return Corrupt("a put of tenant " + event.tenant_id + ", which has no slabs, or of nothing");
  }
  for (const NewObject& added : event.objects) {
    if (SlotOf(being_put_, event.tenant_id, added.key)) {
      return Corrupt(Text(added.object_id) + ": its key is being put already");
    }
    MC_ASSIGN_OR_RETURN(const uint32_t slot, AddObject(*tenant, added));
    Object& object = slots_[slot];
    object.data_type = event.data_type;
    object.hard_pin = event.hard_pin;
    being_put_.Insert(HashOf(object), slot);
    tenants_[*tenant].unfinished_count += 1;
    unfinished_[added.object_id] =
        Unfinished{event.client_id, event.put_id, event.soft_pin, event.soft_pin_ttl_ms};
  }
  return OkStatus();
}

Result<uint32_t> Catalog::AddObject(uint32_t tenant, NewObject added) {
  if (added.object_id.value < next_object_id_ || added.object_id.value == UINT64_MAX) {
    return Corrupt(Text(added.object_id) + " was given already: the next one is " +
                   std::to_string(next_object_id_));
  }
  if (added.key.empty() || added.key.size() > kKeyBytesMax || added.bytes == 0 ||
      added.bytes > kPayloadBytesMax || added.replicas.empty() ||
      added.replicas.size() > kReplicasMax || added.group_id.size() > kGroupIdBytesMax) {
    return Corrupt(Text(added.object_id) + " has " + std::to_string(added.bytes) + " bytes, " +
                   std::to_string(added.replicas.size()) + " replicas and a key of " +
                   std::to_string(added.key.size()) + " bytes");
  }
  next_object_id_ = added.object_id.value + 1;
  const uint32_t slot = TakePlace(&slots_, &free_slots_);
  Object& object = slots_[slot];
  object.object_id = added.object_id;
  object.bytes = added.bytes;
  object.key = std::move(added.key);
  object.tenant = tenant;
  MC_RETURN_IF_ERROR(AddReplicas(slot, added.replicas));
  by_id_.Insert(Mix(added.object_id.value), slot);
  if (!added.group_id.empty()) JoinGroup(slot, added.group_id);
  return slot;
}

Status Catalog::AddReplicas(uint32_t slot, const std::vector<ReplicaPlace>& places) {
  Object& object = slots_[slot];
  if (places.size() > 1) object.more.resize(places.size());
  const std::span<Replica> replicas = object.replicas();
  for (size_t i = 0; i < places.size(); ++i) {
    const auto at = slab_index_.find(places[i].slab_id);
    if (at == slab_index_.end() || slabs_[at->second].tenant != object.tenant) {
      return Corrupt(Text(object.object_id) + " lies in " + Text(places[i].slab_id) +
                     ", which is no slab of its tenant");
    }
    replicas[i].slab = at->second;
    replicas[i].offset = places[i].offset;
    const auto same = [&](size_t j) { return replicas[j].slab == replicas[i].slab; };
    for (size_t j = 0; j < i; ++j) {
      if (same(j)) return Corrupt(Text(object.object_id) + " lies in one slab twice");
    }
    MC_RETURN_IF_ERROR(TakeExtent(slot, &replicas[i]));
  }
  return OkStatus();
}

Status Catalog::TakeExtent(uint32_t slot, Replica* replica) {
  const Object& object = slots_[slot];
  Slab& slab = slabs_[replica->slab];
  const uint64_t before = slab.space.largest_free();
  if (replica->offset % kExtentUnit != 0 ||
      !slab.space.Take(replica->offset, ExtentBytes(object.bytes))) {
    return Corrupt(Text(object.object_id) + " does not fit at " + std::to_string(replica->offset) +
                   " of " + Text(slab.slab_id));
  }
  NoteRoom(slab, replica->slab, before);
  replica->place = static_cast<uint32_t>(slab.members.size());
  slab.members.push_back(slot);
  tenants_[object.tenant].used_bytes += ExtentBytes(object.bytes);
  used_bytes_ += ExtentBytes(object.bytes);
  return OkStatus();
}

void Catalog::FreeExtent(const Object& object, const Replica& replica) {
  Slab& slab = slabs_[replica.slab];
  const uint64_t before = slab.space.largest_free();
  MC_CHECK(slab.space.Free(replica.offset, ExtentBytes(object.bytes)));
  NoteRoom(slab, replica.slab, before);
  // The last member takes the place.
  const uint32_t moved = slab.members.back();
  slab.members[replica.place] = moved;
  slab.members.pop_back();
  for (Replica& other : slots_[moved].replicas()) {
    if (other.slab == replica.slab) other.place = replica.place;
  }
  tenants_[object.tenant].used_bytes -= ExtentBytes(object.bytes);
  used_bytes_ -= ExtentBytes(object.bytes);
}

void Catalog::NoteRoom(const Slab& slab, uint32_t handle, uint64_t largest_before) {
  const uint64_t now = slab.space.largest_free();
  if (now == largest_before) return;
  SlabRooms& rooms = tenants_[slab.tenant].rooms.at(slab.node_id);
  rooms.erase({largest_before, handle});
  rooms.emplace(now, handle);
}

void Catalog::JoinGroup(uint32_t slot, const std::string& group_id) {
  Object& object = slots_[slot];
  const auto [at, added] = group_index_.try_emplace({object.tenant, group_id}, kNone);
  if (added) {
    at->second = TakePlace(&groups_, &free_groups_);
    groups_[at->second].tenant = object.tenant;
    groups_[at->second].group_id = group_id;
    tenants_[object.tenant].group_count += 1;
  }
  object.group = at->second;
  std::vector<uint32_t>& members = groups_[object.group].members;
  object.group_place = static_cast<uint32_t>(members.size());
  members.push_back(slot);
}

void Catalog::LeaveGroup(uint32_t slot) {
  Object& object = slots_[slot];
  if (object.group == kNone) return;
  Group& group = groups_[object.group];
  const uint32_t moved = group.members.back();
  group.members[object.group_place] = moved;
  slots_[moved].group_place = object.group_place;
  group.members.pop_back();
  if (group.members.empty()) {
    tenants_[group.tenant].group_count -= 1;
    group_index_.erase({group.tenant, group.group_id});
    GivePlace(&groups_, &free_groups_, object.group);
  }
  object.group = kNone;
}

// With the last one the object goes.
void Catalog::DropReplica(uint32_t slot, size_t number) {
  Object& object = slots_[slot];
  if (object.replicas().size() == 1) return DropObject(slot);
  FreeExtent(object, object.replicas()[number]);
  object.more.erase(object.more.begin() + static_cast<std::ptrdiff_t>(number));
  if (object.more.size() > 1) return;
  object.first = object.more.front();
  object.more = {};
}

void Catalog::DropObject(uint32_t slot) {
  Object& object = slots_[slot];
  Tenant& tenant = tenants_[object.tenant];
  for (const Replica& replica : std::as_const(object).replicas()) FreeExtent(object, replica);
  LeaveGroup(slot);
  by_id_.Erase(Mix(object.object_id.value), slot);
  if (object.readable) {
    readable_.Erase(HashOf(object), slot);
    tenant.object_count -= 1;
  } else {
    being_put_.Erase(HashOf(object), slot);
    tenant.unfinished_count -= 1;
    unfinished_.erase(object.object_id);
  }
  GivePlace(&slots_, &free_slots_, slot);
}

Status Catalog::ApplyOne(const PutsEnded& event, int64_t logged_ms) {
  for (const ObjectId id : event.object_ids) {
    const auto slot = SlotOf(id);
    if (!slot || slots_[*slot].readable) return Corrupt(Text(id) + " ends but is not being put");
    const Unfinished unfinished = unfinished_.at(id);
    BecomeReadable(*slot, unfinished, logged_ms);
  }
  return OkStatus();
}

void Catalog::BecomeReadable(uint32_t slot, const Unfinished& unfinished, int64_t logged_ms) {
  Object& object = slots_[slot];
  Tenant& tenant = tenants_[object.tenant];
  int64_t kept_until_ms = 0;
  if (const auto old = SlotOf(readable_, tenant.tenant_id, object.key)) {
    kept_until_ms = slots_[*old].soft_pin_until_ms;
    object.hard_pin = object.hard_pin || slots_[*old].hard_pin;
    DropObject(*old);
  }
  being_put_.Erase(HashOf(object), slot);
  readable_.Insert(HashOf(object), slot);
  object.readable = true;
  object.ready_ms = logged_ms;
  switch (unfinished.soft_pin) {
    case SoftPin::kPreserve:
      object.soft_pin_until_ms = kept_until_ms;
      break;
    case SoftPin::kEnable:
      object.soft_pin_until_ms = logged_ms + static_cast<int64_t>(unfinished.soft_pin_ttl_ms);
      break;
    case SoftPin::kDisable:
      object.soft_pin_until_ms = 0;
      break;
  }
  unfinished_.erase(object.object_id);
  tenant.unfinished_count -= 1;
  tenant.object_count += 1;
}

Status Catalog::ApplyOne(const ObjectsDropped& event, int64_t) {
  for (const ObjectId id : event.object_ids) {
    const auto slot = SlotOf(id);
    if (!slot) return Corrupt(Text(id) + " is dropped but does not exist");
    DropObject(*slot);
  }
  return OkStatus();
}

Status Catalog::ApplyOne(const ReplicaDropped& event, int64_t) {
  const auto slot = SlotOf(event.object_id);
  const auto slab = slab_index_.find(event.slab_id);
  if (!slot || slab == slab_index_.end()) {
    return Corrupt("a replica of " + Text(event.object_id) + " in " + Text(event.slab_id) +
                   " is dropped: one of them does not exist");
  }
  const std::span<const Replica> replicas = std::as_const(slots_[*slot]).replicas();
  const auto at = std::find_if(replicas.begin(), replicas.end(),
                               [&](const Replica& one) { return one.slab == slab->second; });
  if (at == replicas.end()) {
    return Corrupt(Text(event.object_id) + " has no replica in " + Text(event.slab_id));
  }
  DropReplica(*slot, static_cast<size_t>(at - replicas.begin()));
  return OkStatus();
}

Status Catalog::ApplyOne(const TenantSet& event, int64_t) {
  if (event.tenant_id.empty()) return Corrupt("a quota of nobody");
  Tenant& tenant = tenants_[MakeTenant(event.tenant_id)];
  tenant.known = true;
  tenant.bytes_max = event.bytes_max;
  tenant.objects_max = event.objects_max;
  return OkStatus();
}

Status Catalog::ApplyOne(const TenantRemoved& event, int64_t) {
  const auto handle = TenantHandle(event.tenant_id);
  if (!handle || !tenants_[*handle].rooms.empty()) {
    return Corrupt("tenant " + event.tenant_id + " is removed, and does not exist or has slabs");
  }
  tenant_index_.erase(event.tenant_id);
  GivePlace(&tenants_, &free_tenants_, *handle);
  return OkStatus();
}

}  // namespace mooncake::pool
