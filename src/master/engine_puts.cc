// The two phases of a put.
//
// How a put goes is written once in proto/mooncake/v1/master.proto. What the log must have before
// an answer goes out: new slabs, and the end of a put that did not ask for less. Everything else of
// a put is relaxed: a Master that crashes may forget it, and the put with it.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/probe.h"
#include "codec/values.h"
#include "master/engine.h"
#include "master/object_requests.h"
#include "rpc/status_proto.h"

namespace mooncake::master {
namespace {

// Ids of one term are above those of every term before it: an id whose record was lost with a crash
// is never given again.
constexpr int kTermShift = 40;

Status CheckKey(std::string_view key) {
  if (key.empty()) return InvalidArgument("a key must not be empty");
  if (key.size() <= pool::kKeyBytesMax) return OkStatus();
  return InvalidArgument(
      fmt::format("expected a key of at most {} bytes, got {}", pool::kKeyBytesMax, key.size()));
}

void Refuse(const Status& status, v1::PutRefusal why, v1::PutEntry* entry) {
  entry->Clear();
  rpc::SetStatus(entry->mutable_status(), status);
  entry->set_refusal(why);
}

}  // namespace

// What all objects of one PutStart share.
struct Engine::PutTerms {
  const v1::PutStartRequest& request;
  pool::PutsStarted started;  // without objects
  uint32_t replica_num = 1;
  std::string same_node_id;  // once the first was placed, with ObjectConfig.same_node
};

Result<Engine::PutTerms> Engine::CheckPutStart(const v1::PutStartRequest& request) const {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), request.keys_size()));
  MC_RETURN_IF_ERROR(CheckClientId(request.client_id()));
  if (request.put_id() == 0) return InvalidArgument("put_id must be 1 or more, got 0");
  if (request.sizes_size() != request.keys_size()) {
    return InvalidArgument(
        fmt::format("{} keys have {} sizes", request.keys_size(), request.sizes_size()));
  }
  if (request.group_ids_size() != 0 && request.group_ids_size() != request.keys_size()) {
    return InvalidArgument(
        fmt::format("{} keys have {} group ids", request.keys_size(), request.group_ids_size()));
  }
  for (const std::string& group_id : request.group_ids()) {
    MC_RETURN_IF_ERROR(model::ValidateText("group_id", group_id, pool::kGroupIdBytesMax));
  }
  const v1::ObjectConfig& config = request.config();
  if (config.replica_num() > pool::kReplicasMax) {
    return InvalidArgument(fmt::format("expected replica_num of at most {}, got {}",
                                       pool::kReplicasMax, config.replica_num()));
  }
  if (!v1::SoftPin_IsValid(config.soft_pin()) || !v1::ObjectDataType_IsValid(config.data_type())) {
    return InvalidArgument(fmt::format("unknown soft_pin {} or data_type {}",
                                       static_cast<int>(config.soft_pin()),
                                       static_cast<int>(config.data_type())));
  }
  const bool enable = config.soft_pin() == v1::SOFT_PIN_ENABLE;
  if (config.has_soft_pin_ttl_ms() && !enable) {
    return InvalidArgument("soft_pin_ttl_ms is given without SOFT_PIN_ENABLE");
  }
  if (config.soft_pin_ttl_ms() > options_.soft_pin_max_ms) {
    return InvalidArgument(fmt::format("expected soft_pin_ttl_ms of at most {}, got {}",
                                       options_.soft_pin_max_ms, config.soft_pin_ttl_ms()));
  }
  PutTerms terms{request, {}, std::max(config.replica_num(), 1u), {}};
  terms.started.client_id = request.client_id();
  terms.started.put_id = request.put_id();
  terms.started.tenant_id = request.tenant_id();
  terms.started.data_type = static_cast<uint8_t>(config.data_type());
  terms.started.hard_pin = config.hard_pin();
  terms.started.soft_pin = static_cast<pool::SoftPin>(config.soft_pin());
  if (enable) {
    terms.started.soft_pin_ttl_ms =
        config.has_soft_pin_ttl_ms() ? config.soft_pin_ttl_ms() : options_.soft_pin_default_ms;
  }
  return terms;
}

bool Engine::IsManaged(std::string_view tenant_id, std::string_view key) {
  const auto identity = model::IdentityOfKey(tenant_id, key);
  if (!identity) return false;
  const weights::Revision* revision = state_.weights.Find(*identity);
  if (revision == nullptr || revision->availability == model::Availability::kDeleted) return false;
  MC_PROBE("master.managed_key");
  activity_.counters(tenant_id).managed_skipped += 1;
  return true;
}

Status Engine::Run(const v1::PutStartRequest& request, v1::PutStartReply* reply, Batch& batch) {
  MC_ASSIGN_OR_RETURN(PutTerms terms, CheckPutStart(request));
  activity_.Heard(request.client_id(), batch.now_ms());
  const pool::Tenant* tenant = state_.pool.FindTenant(request.tenant_id());
  const bool unknown = options_.require_known_tenants && (tenant == nullptr || !tenant->known);
  std::vector<model::ObjectId> begun;
  int refused = -1;
  for (int i = 0; i < request.keys_size(); ++i) {
    v1::PutEntry* entry = reply->add_entries();
    if (unknown) {
      Refuse(NotFound("nobody set a quota for tenant " + request.tenant_id()),
             v1::PUT_REFUSAL_UNKNOWN_TENANT, entry);
    } else if (refused < 0 || !request.all_or_nothing()) {
      const model::ObjectId before = NextObjectId();
      PutOne(terms, i, entry, batch);
      if (NextObjectId() != before) begun.emplace_back(entry->object_id());
    }
    if (entry->status().code() != 0 && refused < 0) refused = i;
  }
  TenantCounters& counters = activity_.counters(request.tenant_id());
  for (const v1::PutEntry& entry : reply->entries()) {
    (entry.status().code() == 0 ? counters.puts : counters.refused_puts) += 1;
  }
  if (request.all_or_nothing() && refused >= 0) {
    if (!begun.empty()) {
      batch.EmitRelaxed(pool::ObjectsDropped{begun, pool::DropCause::kRevoked});
    }
    for (int i = 0; i < request.keys_size(); ++i) {
      if (i == refused || reply->entries(i).status().code() != 0) continue;
      Refuse(Cancelled(fmt::format("key {} of the batch was refused, and with it all: {}", refused,
                                   reply->entries(refused).status().message())),
             reply->entries(refused).refusal(), reply->mutable_entries(i));
    }
    return OkStatus();
  }
  FillPermits(request.tenant_id(), reply);
  return OkStatus();
}

model::ObjectId Engine::NextObjectId() const {
  const uint64_t of_term = (state_.term << kTermShift) | 1;
  return model::ObjectId(std::max(state_.pool.next_object_id().value, of_term));
}

void Engine::PutOne(PutTerms& terms, int index, v1::PutEntry* entry, Batch& batch) {
  const v1::PutStartRequest& request = terms.request;
  const std::string& key = request.keys(index);
  const uint64_t bytes = request.sizes(index);
  const std::string group_id = request.group_ids_size() > 0 ? request.group_ids(index) : "";
  if (const Status bad = CheckKey(key); !bad.ok()) {
    return Refuse(bad, v1::PUT_REFUSAL_UNSPECIFIED, entry);
  }
  if (bytes == 0 || bytes > pool::kPayloadBytesMax) {
    return Refuse(InvalidArgument(fmt::format("expected key {} to have 1 to {} bytes, got {}",
                                              Quoted(key), pool::kPayloadBytesMax, bytes)),
                  v1::PUT_REFUSAL_UNSPECIFIED, entry);
  }
  if (IsManaged(request.tenant_id(), key)) {
    return Refuse(Busy("key " + Quoted(key) + " is part of a weight revision"),
                  v1::PUT_REFUSAL_UNSPECIFIED, entry);
  }
  const pool::Object* readable = state_.pool.FindReadable(request.tenant_id(), key);
  if (readable != nullptr && !request.upsert()) {
    entry->set_state(v1::PUT_STATE_EXISTS);
    entry->set_object_id(readable->object_id.value);
    return;
  }
  if (readable != nullptr) {
    const std::string& old_group =
        readable->group == pool::kNone ? "" : state_.pool.group(readable->group).group_id;
    if (old_group != group_id) {
      return Refuse(InvalidArgument(fmt::format("key {} is in group \"{}\", got group \"{}\"",
                                                Quoted(key), old_group, group_id)),
                    v1::PUT_REFUSAL_GROUP, entry);
    }
  }
  if (const pool::Object* other = state_.pool.FindUnfinished(request.tenant_id(), key)) {
    const pool::Unfinished& writer = state_.pool.UnfinishedOf(*other);
    const bool same = writer.client_id == request.client_id() &&
                      writer.put_id == request.put_id() && other->bytes == bytes;
    if (same || !request.upsert()) {
      entry->set_state(same ? v1::PUT_STATE_WRITE : v1::PUT_STATE_EXISTS);
      entry->set_object_id(other->object_id.value);
      return;
    }
    MC_PROBE("master.put_overtaken");
    batch.EmitRelaxed(pool::ObjectsDropped{{other->object_id}, pool::DropCause::kOvertaken});
  }
  Place(terms, index, group_id, entry, batch);
}

void Engine::Place(PutTerms& terms, int index, const std::string& group_id, v1::PutEntry* entry,
                   Batch& batch) {
  const v1::PutStartRequest& request = terms.request;
  const uint64_t bytes = request.sizes(index);
  const uint64_t extent_bytes = pool::ExtentBytes(bytes);
  if (const pool::Tenant* tenant = state_.pool.FindTenant(request.tenant_id())) {
    // Of every replica that is asked for.
    const uint64_t charged = extent_bytes * terms.replica_num;
    // In vain where it would not even fit alone.
    if (tenant->bytes_max == 0 || charged <= tenant->bytes_max) {
      EvictToQuota(*tenant, charged, batch);
    }
    const bool bytes_over =
        tenant->bytes_max > 0 && tenant->used_bytes + charged > tenant->bytes_max;
    const uint64_t objects = tenant->object_count + tenant->unfinished_count;
    const bool objects_over = tenant->objects_max > 0 && objects + 1 > tenant->objects_max;
    if (bytes_over || objects_over) {
      return Refuse(
          Exhausted(fmt::format("quota of tenant {}: {} of {} bytes and {} of {} objects are used, "
                                "{} bytes more were asked for",
                                request.tenant_id(), tenant->used_bytes, tenant->bytes_max, objects,
                                tenant->objects_max, charged)),
          v1::PUT_REFUSAL_QUOTA, entry);
    }
  }
  pool::PlaceRequest place;
  place.tenant_id = request.tenant_id();
  place.bytes = bytes;
  place.replica_num = terms.replica_num;
  place.preferred_node_ids.assign(request.config().preferred_node_ids().begin(),
                                  request.config().preferred_node_ids().end());
  if (!terms.same_node_id.empty()) place.preferred_node_ids = {terms.same_node_id};
  place.preferred_only = !terms.same_node_id.empty();
  place.preferred_host_id = request.preferred_host_id();
  place.slab_bytes = options_.slab_bytes;
  std::string group_node;
  const pool::Group* group =
      group_id.empty() ? nullptr : state_.pool.FindGroup(request.tenant_id(), group_id);
  if (group != nullptr) {
    const pool::Object& member = *state_.pool.AtSlot(group->members.front());
    group_node = state_.pool.slab(member.replicas().front().slab).node_id;
  }
  place.group_node_id = group_node;
  const auto planned = PlaceOrEvict(place, !request.no_eviction(), batch);
  if (planned.empty()) return RefuseForRoom(request.tenant_id(), extent_bytes, entry);

  pool::NewObject object;
  object.object_id = NextObjectId();
  object.key = request.keys(index);
  object.bytes = bytes;
  object.group_id = group_id;
  for (const pool::PlannedReplica& replica : planned) {
    const model::ArenaId slab_id =
        replica.slab_id != model::ArenaId()
            ? replica.slab_id
            : AddSlab(request.tenant_id(), replica.node_id, replica.slab_bytes, batch);
    object.replicas.push_back({slab_id, replica.offset});
  }
  if (request.config().same_node()) terms.same_node_id = planned.front().node_id;
  entry->set_state(v1::PUT_STATE_WRITE);
  entry->set_object_id(object.object_id.value);
  terms.started.objects.assign(1, std::move(object));
  batch.EmitRelaxed(terms.started);
}

void Engine::RefuseForRoom(std::string_view tenant_id, uint64_t extent_bytes, v1::PutEntry* entry) {
  const std::vector<pool::NodeRoom> rooms = RoomsOfNodes();
  if (rooms.empty()) {
    return Refuse(Unavailable("no node lends memory to objects now"), v1::PUT_REFUSAL_NO_NODE,
                  entry);
  }
  uint64_t node_free = 0;
  for (const pool::NodeRoom& room : rooms) node_free += room.free_bytes;
  const pool::Tenant* tenant = state_.pool.FindTenant(tenant_id);
  const uint64_t slab_bytes = tenant == nullptr ? 0 : tenant->slab_bytes;
  const uint64_t used = tenant == nullptr ? 0 : tenant->used_bytes;
  Refuse(Exhausted(fmt::format("no room for {} bytes in a row: tenant {} uses {} of the {} bytes "
                               "of its slabs, and the {} nodes have {} bytes free",
                               extent_bytes, tenant_id, used, slab_bytes, rooms.size(), node_free)),
         v1::PUT_REFUSAL_NO_ROOM, entry);
}

// One permit per replica of every object that is to be written.
void Engine::FillPermits(const std::string& tenant_id, v1::PutStartReply* reply) const {
  std::set<std::string> addressed;
  for (v1::PutEntry& entry : *reply->mutable_entries()) {
    if (entry.status().code() != 0 || entry.state() != v1::PUT_STATE_WRITE) continue;
    const pool::Object* object = state_.pool.Find(model::ObjectId(entry.object_id()));
    if (object == nullptr) {
      // Evicted, or overtaken, by what came later in the same request.
      Refuse(Exhausted("the rest of the batch took its room"), v1::PUT_REFUSAL_NO_ROOM, &entry);
      continue;
    }
    for (const pool::Replica& replica : object->replicas()) {
      const pool::Slab& slab = state_.pool.slab(replica.slab);
      const objects::Node* node = state_.objects.FindNode(slab.node_id);
      const NodeRegistry::Node* present =
          node == nullptr ? nullptr : nodes_.Find(slab.node_id, node->address.instance_id);
      if (present == nullptr || !present->alive) {
        Refuse(Unavailable(fmt::format("node {} is not reporting", slab.node_id)),
               v1::PUT_REFUSAL_NO_NODE, &entry);
        break;
      }
      const model::ExtentPermit permit{node->address.instance_id,
                                       tenant_id,
                                       slab.slab_id,
                                       slab.bytes,
                                       replica.offset,
                                       object->bytes,
                                       object->object_id};
      codec::ToProto(permit, model::PermitMac(present->grant_key, permit), entry.add_permits());
      if (addressed.insert(slab.node_id).second) {
        codec::ToProto(node->address, reply->add_nodes());
      }
    }
  }
}

Status Engine::Run(const v1::PutEndRequest& request, v1::PutEndReply* reply, Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), request.object_ids_size()));
  MC_RETURN_IF_ERROR(CheckClientId(request.client_id()));
  activity_.Heard(request.client_id(), batch.now_ms());
  pool::PutsEnded ended;
  std::set<uint64_t> seen;
  Status first_refusal;
  for (const uint64_t number : request.object_ids()) {
    const Status refusal = CheckPutEnd(request, model::ObjectId(number));
    rpc::SetStatus(reply->add_results(), refusal);
    if (!refusal.ok() && first_refusal.ok()) first_refusal = refusal;
    const pool::Object* object = state_.pool.Find(model::ObjectId(number));
    // A repetition finds it readable.
    if (refusal.ok() && !object->readable && seen.insert(number).second) {
      ended.object_ids.emplace_back(number);
    }
  }
  if (request.all_or_nothing() && !first_refusal.ok()) {
    for (v1::StatusProto& result : *reply->mutable_results()) {
      if (result.code() == 0) {
        rpc::SetStatus(&result,
                       Cancelled("another of the batch failed: " + first_refusal.message()));
      }
    }
    return OkStatus();
  }
  if (ended.object_ids.empty()) return OkStatus();
  if (request.relaxed()) {
    batch.EmitRelaxed(ended);
  } else {
    batch.Emit(pool::Event(ended));
  }
  return OkStatus();
}

Status Engine::CheckPutEnd(const v1::PutEndRequest& request, model::ObjectId id) const {
  const pool::Object* object = state_.pool.Find(id);
  const bool own =
      object != nullptr && state_.pool.tenant(object->tenant).tenant_id == request.tenant_id() &&
      (object->readable || state_.pool.UnfinishedOf(*object).client_id == request.client_id());
  if (own) return OkStatus();
  return NotFound(
      fmt::format("no put of object {} is open: it was given up, overtaken, removed, or "
                  "forgotten by a Master that restarted",
                  id.value));
}

Status Engine::Run(const v1::PutRevokeRequest& request, v1::PutRevokeReply*, Batch& batch) {
  MC_RETURN_IF_ERROR(CheckTenantAndKeys(request.tenant_id(), request.object_ids_size()));
  MC_RETURN_IF_ERROR(CheckClientId(request.client_id()));
  pool::ObjectsDropped dropped;
  dropped.cause = pool::DropCause::kRevoked;
  std::set<uint64_t> seen;
  for (const uint64_t number : request.object_ids()) {
    const pool::Object* object = state_.pool.Find(model::ObjectId(number));
    if (object == nullptr || object->readable || !seen.insert(number).second ||
        state_.pool.tenant(object->tenant).tenant_id != request.tenant_id() ||
        state_.pool.UnfinishedOf(*object).client_id != request.client_id()) {
      continue;
    }
    dropped.object_ids.emplace_back(number);
  }
  if (!dropped.object_ids.empty()) batch.EmitRelaxed(dropped);
  return OkStatus();
}

Status Engine::Run(const v1::KeepPutsRequest& request, v1::KeepPutsReply*, Batch& batch) {
  MC_RETURN_IF_ERROR(CheckClientId(request.client_id()));
  activity_.Heard(request.client_id(), batch.now_ms());
  return OkStatus();
}

}  // namespace mooncake::master
