// Room for ordinary objects: which nodes have some, slabs that come and go, eviction, and what
// happens without being asked. Every round is bounded; what is left waits for the next batch.

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/probe.h"
#include "master/engine.h"

namespace mooncake::master {
namespace {

// Steps of eviction for one put, and in one round of the background.
constexpr int kEvictionsPerPut = 64;
constexpr int kEvictionsPerRound = 256;
// From this share of a slab on room is made in a row; below, any object that goes may do.
constexpr uint64_t kRowShare = 64;
constexpr size_t kPutsExpiredPerRound = 1024;
constexpr int64_t kRoundMs = 100;
// How long a slab is kept for the objects to come.
constexpr int64_t kEmptySlabMs = 10'000;

}  // namespace

pool::EvictionRules Engine::EvictionRulesAt(int64_t now_ms) const {
  return {.now_ms = now_ms,
          .lease_ms = options_.object_lease_ms,
          .grace_below = activity_.first_id(),
          .grace_until_ms = activity_.grace_until_ms(),
          .evict_soft_pinned = options_.evict_soft_pinned};
}

std::vector<pool::NodeRoom> Engine::RoomsOfNodes() const {
  std::vector<pool::NodeRoom> rooms;
  for (const objects::Node& node : state_.objects.nodes()) {
    const NodeRegistry::Node* present = nodes_.Find(node.address.node_id, node.address.instance_id);
    if (present == nullptr || !present->alive) continue;
    rooms.push_back(
        {node.address.node_id, node.address.host_id, node.free_bytes(), node.capacity_bytes});
  }
  return rooms;
}

// A new slab is never relaxed: its number must not be given to anything else after a crash.
model::ArenaId Engine::AddSlab(std::string_view tenant_id, const std::string& node_id,
                               uint64_t bytes, Batch& batch) {
  const model::ArenaId id = state_.objects.next_arena_id();
  const objects::Node* node = state_.objects.FindNode(node_id);
  batch.Emit(
      objects::Event(objects::ArenaReserved{id, {}, node_id, node->address.instance_id, bytes}));
  batch.Emit(pool::Event(pool::SlabAdded{id, std::string(tenant_id), node_id, bytes}));
  return id;
}

void Engine::RemoveSlabs(const std::vector<model::ArenaId>& ids, Batch& batch) {
  if (ids.empty()) return;
  batch.Emit(pool::Event(pool::SlabsGone{ids}));
  batch.Emit(objects::Event(objects::ArenasReleasing{ids}));
  for (const model::ArenaId id : ids) activity_.NotEmpty(id);
}

std::vector<model::ArenaId> Engine::SlabsOn(std::string_view node_id) const {
  std::vector<model::ArenaId> ids;
  for (const auto& [id, handle] : state_.pool.slabs()) {
    if (state_.pool.slab(handle).node_id == node_id) ids.push_back(id);
  }
  return ids;
}

void Engine::Evict(const std::vector<model::ObjectId>& ids, Batch& batch) {
  for (const model::ObjectId id : ids) {
    const pool::Object& object = *state_.pool.Find(id);
    TenantCounters& counters = activity_.counters(state_.pool.tenant(object.tenant).tenant_id);
    counters.evicted_objects += 1;
    counters.evicted_bytes += object.bytes;
  }
  MC_PROBE("master.objects_evicted");
  batch.EmitRelaxed(pool::ObjectsDropped{ids, pool::DropCause::kEvicted});
}

// Makes room for an object of the tenant on nodes that the filter lets through. False: there is
// none to be made now.
bool Engine::EvictOneStep(const pool::Tenant& tenant, uint64_t extent_bytes,
                          const pool::SlabFilter& filter, Batch& batch) {
  const pool::EvictionRules rules = EvictionRulesAt(batch.now_ms());
  const pool::Dice dice = [this](uint64_t bound) { return activity_.Roll(bound); };
  const bool in_a_row = extent_bytes * kRowShare >= options_.slab_bytes;
  std::vector<model::ObjectId> victims;
  if (!in_a_row) victims = pool::ChooseVictims(state_.pool, tenant, rules, filter, dice);
  std::vector<model::ObjectId> progress;
  if (victims.empty()) {
    victims = pool::ChooseRow(state_.pool, tenant, extent_bytes, rules, filter, dice, &progress);
  }
  if (!victims.empty()) Evict(victims, batch);
  if (!progress.empty()) Evict(progress, batch);
  return !victims.empty();
}

std::vector<pool::PlannedReplica> Engine::PlaceOrEvict(const pool::PlaceRequest& request,
                                                       bool may_evict, Batch& batch) {
  for (int step = 0;; ++step) {
    std::vector<pool::PlannedReplica> planned =
        pool::PlanReplicas(state_.pool, RoomsOfNodes(), request);
    if (!planned.empty() || !may_evict || step == kEvictionsPerPut) return planned;
    const pool::Tenant* tenant = state_.pool.FindTenant(request.tenant_id);
    const auto reports = [this](const pool::Slab& slab) {
      const objects::Node* node = state_.objects.FindNode(slab.node_id);
      const NodeRegistry::Node* present =
          node == nullptr ? nullptr : nodes_.Find(slab.node_id, node->address.instance_id);
      return present != nullptr && present->alive;
    };
    if (tenant == nullptr ||
        !EvictOneStep(*tenant, pool::ExtentBytes(request.bytes), reports, batch)) {
      return {};
    }
  }
}

// Down to the tenant's quota less `bytes`, as far as it can be done in bounded steps.
void Engine::EvictToQuota(const pool::Tenant& tenant, uint64_t bytes, Batch& batch) {
  const auto over = [&] {
    return (tenant.bytes_max > 0 && tenant.used_bytes + bytes > tenant.bytes_max) ||
           (tenant.objects_max > 0 &&
            tenant.object_count + tenant.unfinished_count + 1 > tenant.objects_max);
  };
  const pool::Dice dice = [this](uint64_t bound) { return activity_.Roll(bound); };
  for (int step = 0; step < kEvictionsPerPut && over(); ++step) {
    const auto victims =
        pool::ChooseVictims(state_.pool, tenant, EvictionRulesAt(batch.now_ms()), nullptr, dice);
    if (victims.empty()) return;
    MC_PROBE("master.quota_eviction");
    Evict(victims, batch);
  }
}

// A tenant's room is what its slabs hold and what nodes could still give it.
bool Engine::EvictAboveWatermark(Batch& batch) {
  uint64_t free_bytes = 0;
  for (const pool::NodeRoom& room : RoomsOfNodes()) free_bytes += room.free_bytes;
  bool more = false;
  const pool::Dice dice = [this](uint64_t bound) { return activity_.Roll(bound); };
  for (const auto& [tenant_id, handle] : state_.pool.tenants()) {
    const pool::Tenant& tenant = state_.pool.tenant(handle);
    const double room = static_cast<double>(tenant.slab_bytes + free_bytes);
    const double high = room * options_.eviction_high_watermark_ratio;
    if (static_cast<double>(tenant.used_bytes) <= high) continue;
    const double low = room * (options_.eviction_high_watermark_ratio - options_.eviction_ratio);
    int steps = 0;
    for (; steps<kEvictionsPerRound&& static_cast<double>(tenant.used_bytes)> low; ++steps) {
      const auto victims =
          pool::ChooseVictims(state_.pool, tenant, EvictionRulesAt(batch.now_ms()), nullptr, dice);
      if (victims.empty()) break;
      Evict(victims, batch);
    }
    more = more || steps == kEvictionsPerRound;
  }
  return more;
}

void Engine::ExpirePuts(Batch& batch) {
  pool::ObjectsDropped expired;
  expired.cause = pool::DropCause::kExpired;
  for (const auto& [id, unfinished] : state_.pool.unfinished()) {
    if (activity_.SilentMs(unfinished.client_id, batch.now_ms()) <= options_.put_ttl_ms) continue;
    expired.object_ids.push_back(id);
    if (expired.object_ids.size() == kPutsExpiredPerRound) break;
  }
  if (expired.object_ids.empty()) return;
  MC_PROBE("master.puts_expired");
  Log().info("master: {} unfinished puts are dropped: their writers have been silent for {} ms",
             expired.object_ids.size(), options_.put_ttl_ms);
  batch.EmitRelaxed(expired);
}

void Engine::ReleaseEmptySlabs(Batch& batch) {
  std::vector<model::ArenaId> released;
  for (const auto& [id, handle] : state_.pool.slabs()) {
    if (!state_.pool.slab(handle).members.empty()) {
      activity_.NotEmpty(id);
    } else if (batch.now_ms() - activity_.EmptySince(id, batch.now_ms()) >= kEmptySlabMs) {
      released.push_back(id);
    }
  }
  if (!released.empty()) MC_PROBE("master.slab_released");
  RemoveSlabs(released, batch);
}

// A node that lent its memory and is silent took its memory along.
void Engine::DropSilentLenders(Batch& batch) {
  for (const objects::Node& node : state_.objects.nodes()) {
    if (!node.objects_only || node.left || InGrace(batch.now_ms())) continue;
    const NodeRegistry::Node* present = nodes_.Find(node.address.node_id, node.address.instance_id);
    const int64_t heard_ms = present != nullptr ? present->last_heard_ms : activity_.began_ms();
    const int64_t silent_ms = batch.now_ms() - heard_ms;
    if (silent_ms <= std::max(options_.lender_gone_after_ms, options_.node_dead_after_ms)) continue;
    if (!state_.objects.HoldsNoWeights(node.address.node_id)) continue;
    MC_PROBE("master.lender_gone");
    Log().info("master: node {} lent memory and has been silent for {} ms: it is gone",
               node.address.node_id, silent_ms);
    Leave(node.address.node_id, batch);
    return;  // the nodes have changed; the next round looks again
  }
}

void Engine::Leave(std::string node_id, Batch& batch) {
  if (const auto slabs = SlabsOn(node_id); !slabs.empty()) {
    batch.Emit(pool::Event(pool::SlabsGone{slabs}));
    for (const model::ArenaId id : slabs) activity_.NotEmpty(id);
  }
  batch.Emit(objects::Event(objects::NodeLeft{node_id}));
  nodes_.DropStrangers(state_.objects);
}

bool Engine::ObjectUpkeep(Batch& batch) {
  if (state_.pool.empty() && state_.objects.nodes().empty()) return false;
  const bool more = EvictAboveWatermark(batch);
  if (!activity_.Due(batch.now_ms(), kRoundMs)) return more;
  ExpirePuts(batch);
  ReleaseEmptySlabs(batch);
  DropSilentLenders(batch);
  activity_.ForgetSilent(batch.now_ms() - 10 * options_.put_ttl_ms);
  return more;
}

// An import that found no room gets what ordinary objects have, slab by slab, the emptiest first.
// The nodes give the memory back with their next report. False: not so much can be given up, and
// nothing was.
bool Engine::ReclaimForImport(uint64_t needed_bytes, Batch& batch) {
  uint64_t coming = 0;
  for (const objects::Node& node : state_.objects.nodes()) {
    const NodeRegistry::Node* present = nodes_.Find(node.address.node_id, node.address.instance_id);
    if (!node.objects_only && present != nullptr && present->alive) coming += node.releasing_bytes;
  }
  const pool::EvictionRules rules = EvictionRulesAt(batch.now_ms());
  const auto stays = [&](uint32_t slot) {
    const pool::Object& object = *state_.pool.AtSlot(slot);
    return !object.readable || object.hard_pin ||
           pool::ProtectedUntil(state_.pool, object, rules) > rules.now_ms ||
           (!rules.evict_soft_pinned && object.soft_pin_until_ms > rules.now_ms);
  };
  std::vector<const pool::Slab*> slabs;
  for (const auto& [id, handle] : state_.pool.slabs()) {
    const pool::Slab& slab = state_.pool.slab(handle);
    const objects::Node* node = state_.objects.FindNode(slab.node_id);
    if (node->objects_only || !IsReadableOn(slab)) continue;
    if (std::none_of(slab.members.begin(), slab.members.end(), stays)) slabs.push_back(&slab);
  }
  std::sort(slabs.begin(), slabs.end(), [](const pool::Slab* a, const pool::Slab* b) {
    const uint64_t a_used = a->bytes - a->space.free_bytes();
    const uint64_t b_used = b->bytes - b->space.free_bytes();
    return a_used != b_used ? a_used < b_used : a->slab_id < b->slab_id;
  });
  std::vector<model::ArenaId> released;
  std::vector<model::ObjectId> evicted;
  for (const pool::Slab* slab : slabs) {
    if (coming >= needed_bytes) break;
    for (const uint32_t slot : slab->members) {
      evicted.push_back(state_.pool.AtSlot(slot)->object_id);
    }
    released.push_back(slab->slab_id);
    coming += slab->bytes;
  }
  if (coming < needed_bytes) return false;
  if (released.empty()) return true;
  MC_PROBE("master.slabs_reclaimed");
  Log().info("master: {} slabs of ordinary objects make room for an import", released.size());
  std::sort(evicted.begin(), evicted.end());
  evicted.erase(std::unique(evicted.begin(), evicted.end()), evicted.end());
  if (!evicted.empty()) Evict(evicted, batch);
  RemoveSlabs(released, batch);
  return true;
}

}  // namespace mooncake::master
