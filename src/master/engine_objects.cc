// Requests about ordinary objects and their tenants, puts aside (engine_puts.cc).

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "base/probe.h"
#include "codec/values.h"
#include "master/engine.h"
#include "master/object_requests.h"
#include "rpc/status_proto.h"

namespace mooncake::master {
namespace {

constexpr uint32_t kListedMax = 10'000;
constexpr uint32_t kListedDefault = 1'000;
constexpr uint32_t kRemovedPerPage = 10'000;
constexpr size_t kReasonBytesMax = 1024;

}  // namespace

// ---- looking ----

bool Engine::IsReadableOn(const pool::Slab& slab) const {
  const objects::Node* node = state_.objects.FindNode(slab.node_id);
  if (node == nullptr) return false;
  const NodeRegistry::Node* present = nodes_.Find(slab.node_id, node->address.instance_id);
  return present != nullptr && present->alive;
}

Status Engine::Run(const v1::LookupObjectsRequest& request, v1::LookupObjectsReply* reply,
                   Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), request.keys_size()));
  TenantCounters& counters = activity_.counters(request.tenant_id());
  std::set<uint32_t> granted;
  std::set<std::string_view> addressed;
  for (const std::string& key : request.keys()) {
    v1::ObjectEntry* entry = reply->add_entries();
    counters.lookups += 1;
    const pool::Object* object = state_.pool.FindReadable(request.tenant_id(), key);
    if (object == nullptr) {
      const bool being_put = state_.pool.FindUnfinished(request.tenant_id(), key) != nullptr;
      rpc::SetStatus(entry->mutable_status(),
                     being_put ? NotReady("key " + Quoted(key) + " is being written")
                               : NotFound("no object has key " + Quoted(key)));
      continue;
    }
    std::string silent;
    bool readable = false;
    for (const pool::Replica& replica : object->replicas()) {
      const pool::Slab& slab = state_.pool.slab(replica.slab);
      if (!IsReadableOn(slab)) {
        silent = slab.node_id;
        continue;
      }
      readable = true;
      if (!request.locate()) continue;
      v1::SlabExtent* extent = entry->add_replicas();
      extent->set_node_id(slab.node_id);
      extent->set_slab_id(slab.slab_id.value);
      extent->set_offset(replica.offset);
      extent->set_bytes(object->bytes);
      if (granted.insert(replica.slab).second) GrantSlab(slab, request.tenant_id(), reply);
      if (addressed.insert(slab.node_id).second) {
        codec::ToProto(state_.objects.FindNode(slab.node_id)->address, reply->add_nodes());
      }
    }
    if (!readable) {
      rpc::SetStatus(
          entry->mutable_status(),
          Unavailable(fmt::format("key {}: node {} is not reporting", Quoted(key), silent)));
      continue;
    }
    counters.lookups_found += 1;
    entry->set_object_id(object->object_id.value);
    entry->set_bytes(object->bytes);
    if (request.describe()) FillObjectInfo(*object, batch.now_ms(), entry->mutable_info());
    if (request.renew_lease()) {
      state_.pool.ExtendLease(*object, batch.now_ms() + options_.object_lease_ms);
    }
  }
  if (request.renew_lease()) reply->set_lease_ms(static_cast<uint64_t>(options_.object_lease_ms));
  return OkStatus();
}

void Engine::GrantSlab(const pool::Slab& slab, const std::string& tenant_id,
                       v1::LookupObjectsReply* reply) const {
  const objects::Node* node = state_.objects.FindNode(slab.node_id);
  const NodeRegistry::Node* present = nodes_.Find(slab.node_id, node->address.instance_id);
  const model::Grant grant{node->address.instance_id, tenant_id, {}, slab.slab_id, slab.bytes,
                           model::Access::kSlabRead};
  codec::ToProto(grant, model::GrantMac(present->grant_key, grant), reply->add_grants());
}

void Engine::FillObjectInfo(const pool::Object& object, int64_t now_ms,
                            v1::ObjectInfo* info) const {
  const auto left = [now_ms](int64_t until_ms) {
    return static_cast<uint64_t>(std::max<int64_t>(until_ms - now_ms, 0));
  };
  info->set_key(object.key);
  info->set_object_id(object.object_id.value);
  info->set_bytes(object.bytes);
  info->set_data_type(static_cast<v1::ObjectDataType>(object.data_type));
  if (object.group != pool::kNone) info->set_group_id(state_.pool.group(object.group).group_id);
  info->set_hard_pin(object.hard_pin);
  info->set_soft_pin_left_ms(left(object.soft_pin_until_ms));
  info->set_lease_left_ms(left(pool::ProtectedUntil(state_.pool, object, EvictionRulesAt(now_ms))));
  for (const pool::Replica& replica : object.replicas()) {
    info->add_node_ids(state_.pool.slab(replica.slab).node_id);
  }
  info->set_age_ms(static_cast<uint64_t>(std::max<int64_t>(now_ms - object.ready_ms, 0)));
}

Status Engine::Run(const v1::ListObjectsRequest& request, v1::ListObjectsReply* reply,
                   Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), 0));
  const uint32_t limit =
      request.limit() == 0 ? kListedDefault : std::min(request.limit(), kListedMax);
  const uint64_t count = state_.pool.slot_count();
  uint64_t slot = request.cursor();
  uint64_t looked_at = 0;
  for (; slot < count && looked_at < kListedMax; ++slot, ++looked_at) {
    if (static_cast<uint32_t>(reply->objects_size()) == limit) break;
    const pool::Object* object = state_.pool.AtSlot(static_cast<uint32_t>(slot));
    if (object == nullptr || !object->readable || !object->key.starts_with(request.prefix()) ||
        state_.pool.tenant(object->tenant).tenant_id != request.tenant_id()) {
      continue;
    }
    FillObjectInfo(*object, batch.now_ms(), reply->add_objects());
  }
  if (slot < count) reply->set_next_cursor(slot);
  return OkStatus();
}

// ---- removal ----

Status Engine::Run(const v1::RemoveObjectsRequest& request, v1::RemoveObjectsReply* reply,
                   Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), request.keys_size()));
  const pool::EvictionRules rules = EvictionRulesAt(batch.now_ms());
  pool::ObjectsDropped dropped;
  std::set<model::ObjectId> seen;
  for (const std::string& key : request.keys()) {
    const auto decide = [&]() -> Status {
      if (IsManaged(request.tenant_id(), key)) {
        return Busy("key " + Quoted(key) +
                    " is part of a weight revision, which is removed as a whole");
      }
      const pool::Object* object = state_.pool.FindReadable(request.tenant_id(), key);
      if (object == nullptr || seen.contains(object->object_id)) {
        const bool being_put = state_.pool.FindUnfinished(request.tenant_id(), key) != nullptr;
        return being_put ? NotReady("key " + Quoted(key) + " is being written")
                         : NotFound("no object has key " + Quoted(key));
      }
      const int64_t left_ms = pool::ProtectedUntil(state_.pool, *object, rules) - rules.now_ms;
      if (left_ms > 0 && !request.force()) {
        return Busy(fmt::format("key {} is leased for another {} ms", Quoted(key), left_ms));
      }
      seen.insert(object->object_id);
      dropped.object_ids.push_back(object->object_id);
      return OkStatus();
    };
    rpc::SetStatus(reply->add_results(), decide());
  }
  if (!dropped.object_ids.empty()) batch.Emit(pool::Event(dropped));
  return OkStatus();
}

Status Engine::Run(const v1::RemoveAllObjectsRequest& request, v1::RemoveAllObjectsReply* reply,
                   Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), 0));
  const pool::EvictionRules rules = EvictionRulesAt(batch.now_ms());
  pool::ObjectsDropped dropped;
  uint64_t skipped = 0;
  const uint64_t count = state_.pool.slot_count();
  uint64_t slot = request.cursor();
  for (uint64_t looked_at = 0; slot < count && looked_at < kRemovedPerPage; ++slot, ++looked_at) {
    const pool::Object* object = state_.pool.AtSlot(static_cast<uint32_t>(slot));
    if (object == nullptr || state_.pool.tenant(object->tenant).tenant_id != request.tenant_id()) {
      continue;
    }
    const bool leased =
        !request.force() && pool::ProtectedUntil(state_.pool, *object, rules) > rules.now_ms;
    if (!object->readable || leased) {
      ++skipped;
    } else {
      dropped.object_ids.push_back(object->object_id);
    }
  }
  reply->set_removed(dropped.object_ids.size());
  reply->set_skipped(skipped);
  if (slot < count) reply->set_next_cursor(slot);
  if (!dropped.object_ids.empty()) batch.Emit(pool::Event(dropped));
  return OkStatus();
}

Status Engine::Run(const v1::ReportUnreadableRequest& request, v1::ReportUnreadableReply*,
                   Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), 1));
  MC_RETURN_IF_ERROR(model::ValidateText("reason", request.reason(), kReasonBytesMax));
  const pool::Object* object = state_.pool.FindReadable(request.tenant_id(), request.key());
  if (object == nullptr || object->object_id.value != request.object_id()) return OkStatus();
  for (const pool::Replica& replica : object->replicas()) {
    const pool::Slab& slab = state_.pool.slab(replica.slab);
    if (slab.slab_id.value != request.replica().slab_id() ||
        replica.offset != request.replica().offset()) {
      continue;
    }
    MC_PROBE("master.replica_unreadable");
    Log().warn("master: the replica of key {} in slab {} at {} of node {} is forgotten: {}",
               Quoted(request.key()), slab.slab_id.value, replica.offset, slab.node_id,
               request.reason());
    batch.EmitRelaxed(pool::ReplicaDropped{object->object_id, slab.slab_id});
    return OkStatus();
  }
  return OkStatus();
}

// ---- tenants ----

Status Engine::Run(const v1::SetTenantRequest& request, v1::SetTenantReply*, Batch& batch) {
  const v1::TenantQuota& quota = request.quota();
  MC_RETURN_IF_ERROR(model::ValidateIdentityPart("tenant_id", quota.tenant_id()));
  const pool::Tenant* tenant = state_.pool.FindTenant(quota.tenant_id());
  if (!request.remove()) {
    batch.Emit(
        pool::Event(pool::TenantSet{quota.tenant_id(), quota.bytes_max(), quota.objects_max()}));
    return OkStatus();
  }
  if (tenant == nullptr) return NotFound("no tenant " + quota.tenant_id());
  const uint64_t objects = tenant->object_count + tenant->unfinished_count;
  if (objects > 0) {
    return Busy(fmt::format("tenant {} still has {} objects", quota.tenant_id(), objects));
  }
  std::vector<model::ArenaId> slabs;
  for (const uint32_t handle : tenant->slabs) slabs.push_back(state_.pool.slab(handle).slab_id);
  std::sort(slabs.begin(), slabs.end());
  RemoveSlabs(slabs, batch);
  batch.Emit(pool::Event(pool::TenantRemoved{quota.tenant_id()}));
  return OkStatus();
}

Status Engine::Run(const v1::ListTenantsRequest&, v1::ListTenantsReply* reply, Batch&) {
  for (const auto& [tenant_id, handle] : state_.pool.tenants()) {
    const pool::Tenant& tenant = state_.pool.tenant(handle);
    const TenantCounters& counters = activity_.counters(tenant_id);
    v1::TenantStatus* status = reply->add_tenants();
    status->mutable_quota()->set_tenant_id(tenant_id);
    status->mutable_quota()->set_bytes_max(tenant.bytes_max);
    status->mutable_quota()->set_objects_max(tenant.objects_max);
    status->set_known(tenant.known);
    status->set_object_count(tenant.object_count);
    status->set_object_bytes(tenant.used_bytes);
    status->set_unfinished_count(tenant.unfinished_count);
    status->set_slab_bytes(tenant.slab_bytes);
    status->set_group_count(tenant.group_count);
    status->set_puts(counters.puts);
    status->set_lookups(counters.lookups);
    status->set_lookups_found(counters.lookups_found);
    status->set_evicted_objects(counters.evicted_objects);
    status->set_evicted_bytes(counters.evicted_bytes);
    status->set_refused_puts(counters.refused_puts);
    status->set_managed_skipped(counters.managed_skipped);
  }
  return OkStatus();
}

}  // namespace mooncake::master
