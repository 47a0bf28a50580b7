// Catalog::CheckInvariants and Catalog::Digest: both walk the whole state.

#include <algorithm>

#include "model/state_digest.h"
#include "pool/catalog.h"

namespace mooncake::pool {
namespace {

Status Differs(const std::string& what, uint64_t recorded, uint64_t recomputed) {
  return Internal(what + ": recorded " + std::to_string(recorded) + ", recomputed " +
                  std::to_string(recomputed));
}

struct Sums {
  uint64_t object_count = 0;
  uint64_t unfinished_count = 0;
  uint64_t used_bytes = 0;
  uint64_t group_count = 0;
};

Status CheckTenant(const Tenant& tenant, const Sums& sums, uint64_t slab_bytes) {
  const std::string name = "tenant " + tenant.tenant_id + " ";
  if (tenant.object_count != sums.object_count) {
    return Differs(name + "objects", tenant.object_count, sums.object_count);
  }
  if (tenant.unfinished_count != sums.unfinished_count) {
    return Differs(name + "unfinished objects", tenant.unfinished_count, sums.unfinished_count);
  }
  if (tenant.used_bytes != sums.used_bytes) {
    return Differs(name + "used bytes", tenant.used_bytes, sums.used_bytes);
  }
  if (tenant.group_count != sums.group_count) {
    return Differs(name + "groups", tenant.group_count, sums.group_count);
  }
  if (tenant.slab_bytes != slab_bytes) {
    return Differs(name + "slab bytes", tenant.slab_bytes, slab_bytes);
  }
  return OkStatus();
}

}  // namespace

// Every slab's free space is what its extents leave, which none of them shares.
Status Catalog::CheckSlabs(std::vector<uint64_t>* tenant_slab_bytes) const {
  for (const auto& [id, handle] : slab_index_) {
    const Slab& slab = slabs_[handle];
    const std::string name = "slab " + std::to_string(id.value);
    if (slab.slab_id != id || slab.tenant >= tenants_.size())
      return Internal(name + " is misfiled");
    SlabSpace space(slab.bytes);
    for (size_t place = 0; place < slab.members.size(); ++place) {
      const Object* object = AtSlot(slab.members[place]);
      if (object == nullptr) return Internal(name + " has a member that does not exist");
      const auto replicas = object->replicas();
      const auto at =
          std::find_if(replicas.begin(), replicas.end(),
                       [handle = handle](const Replica& r) { return r.slab == handle; });
      if (at == replicas.end() || at->place != place) return Internal(name + " has a wrong member");
      if (!space.Take(at->offset, ExtentBytes(object->bytes))) {
        return Internal("extents overlap in " + name + " at " + std::to_string(at->offset));
      }
    }
    if (space.free_bytes() != slab.space.free_bytes()) {
      return Differs(name + " free bytes", slab.space.free_bytes(), space.free_bytes());
    }
    if (space.largest_free() != slab.space.largest_free()) {
      return Differs(name + " largest free range", slab.space.largest_free(), space.largest_free());
    }
    const Tenant& tenant = tenants_[slab.tenant];
    if (slab.place >= tenant.slabs.size() || tenant.slabs[slab.place] != handle) {
      return Internal(name + " is misfiled in its tenant");
    }
    const auto rooms = tenant.rooms.find(slab.node_id);
    if (rooms == tenant.rooms.end() ||
        !rooms->second.contains({slab.space.largest_free(), handle})) {
      return Internal(name + " is not found by its room");
    }
    (*tenant_slab_bytes)[slab.tenant] += slab.bytes;
  }
  return OkStatus();
}

Status Catalog::CheckInvariants() const {
  std::vector<Sums> sums(tenants_.size());
  uint64_t used = 0;
  size_t count = 0;
  size_t readable = 0;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const Object* object = AtSlot(slot);
    if (object == nullptr) continue;
    const std::string name = "object " + std::to_string(object->object_id.value);
    if (object->object_id.value >= next_object_id_ || object->tenant >= tenants_.size() ||
        Find(object->object_id) != object) {
      return Internal(name + " is recorded under a wrong id or tenant");
    }
    const std::string& tenant_id = tenants_[object->tenant].tenant_id;
    const Object* by_key = object->readable ? FindReadable(tenant_id, object->key)
                                            : FindUnfinished(tenant_id, object->key);
    if (by_key != object) return Internal(name + " is not found by its key");
    if (object->readable == unfinished_.contains(object->object_id)) {
      return Internal(name + " is readable and unfinished, or neither");
    }
    if (object->group != kNone) {
      const Group& group = groups_[object->group];
      if (group.tenant != object->tenant || object->group_place >= group.members.size() ||
          group.members[object->group_place] != slot) {
        return Internal(name + " is misfiled in its group");
      }
    }
    Sums& own = sums[object->tenant];
    (object->readable ? own.object_count : own.unfinished_count) += 1;
    own.used_bytes += ExtentBytes(object->bytes) * object->replicas().size();
    used += ExtentBytes(object->bytes) * object->replicas().size();
    ++count;
    readable += object->readable ? 1 : 0;
  }
  if (count != by_id_.size()) return Differs("objects", by_id_.size(), count);
  if (readable != readable_.size()) return Differs("readable objects", readable_.size(), readable);
  if (used != used_bytes_) return Differs("used bytes", used_bytes_, used);
  size_t members = 0;
  for (const auto& [key, handle] : group_index_) {
    sums[key.first].group_count += 1;
    members += groups_[handle].members.size();
    if (groups_[handle].members.empty()) return Internal("group " + key.second + " is empty");
  }
  const auto grouped =
      static_cast<size_t>(std::count_if(slots_.begin(), slots_.end(), [](const Object& one) {
        return one.object_id != ObjectId() && one.group != kNone;
      }));
  if (members != grouped) return Differs("members of groups", members, grouped);
  std::vector<uint64_t> slab_bytes(tenants_.size());
  MC_RETURN_IF_ERROR(CheckSlabs(&slab_bytes));
  for (const auto& [tenant_id, handle] : tenant_index_) {
    MC_RETURN_IF_ERROR(CheckTenant(tenants_[handle], sums[handle], slab_bytes[handle]));
  }
  return OkStatus();
}

Sha256Digest Catalog::Digest() const {
  model::StateDigest digest;
  digest.Text("pool 1");
  digest.Number(next_object_id_);
  digest.Number(tenant_index_.size());
  for (const auto& [tenant_id, handle] : tenant_index_) {
    const Tenant& tenant = tenants_[handle];
    digest.Text(tenant_id);
    digest.Number(tenant.known ? 1 : 0);
    digest.Number(tenant.bytes_max);
    digest.Number(tenant.objects_max);
    digest.Number(tenant.used_bytes);
  }
  digest.Number(slab_index_.size());
  for (const auto& [id, handle] : slab_index_) {
    digest.Number(id.value);
    digest.Text(tenants_[slabs_[handle].tenant].tenant_id);
    digest.Text(slabs_[handle].node_id);
    digest.Number(slabs_[handle].bytes);
    digest.Number(slabs_[handle].space.free_bytes());
  }
  std::vector<const Object*> objects;
  objects.reserve(by_id_.size());
  for (const Object& object : slots_) {
    if (object.object_id != ObjectId()) objects.push_back(&object);
  }
  std::sort(objects.begin(), objects.end(),
            [](const Object* a, const Object* b) { return a->object_id < b->object_id; });
  digest.Number(objects.size());
  for (const Object* object : objects) {
    digest.Number(object->object_id.value);
    digest.Text(tenants_[object->tenant].tenant_id);
    digest.Text(object->key);
    digest.Number(object->bytes);
    digest.Text(object->group == kNone ? "" : groups_[object->group].group_id);
    digest.Number((object->readable ? 1u : 0u) | (object->hard_pin ? 2u : 0u));
    digest.Number(object->data_type);
    digest.Number(static_cast<uint64_t>(object->ready_ms));
    digest.Number(static_cast<uint64_t>(object->soft_pin_until_ms));
    digest.Number(object->replicas().size());
    for (const Replica& replica : object->replicas()) {
      digest.Number(slabs_[replica.slab].slab_id.value);
      digest.Number(replica.offset);
    }
    if (object->readable) continue;
    const Unfinished& unfinished = unfinished_.at(object->object_id);
    digest.Text(unfinished.client_id);
    digest.Number(unfinished.put_id);
    digest.Number(static_cast<uint64_t>(unfinished.soft_pin));
    digest.Number(unfinished.soft_pin_ttl_ms);
  }
  return digest.Finish();
}

}  // namespace mooncake::pool
