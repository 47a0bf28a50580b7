#include "pool/eviction.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace mooncake::pool {
namespace {

// Objects looked at for one victim: with 16 the victim is, on average, of the oldest sixteenth.
constexpr int kSamples = 16;
// Draws until that many evictable ones are found.
constexpr int kDrawsMax = 96;
// Slabs looked at for a row, and members of one that are looked at.
constexpr size_t kRowSlabsMax = 4;
constexpr size_t kRowMembersMax = 16'384;
constexpr size_t kProgressMax = 2'048;

bool SoftPinned(const Object& object, const EvictionRules& rules) {
  return object.soft_pin_until_ms > rules.now_ms;
}

// On its own, its group aside.
bool MayGoAlone(const Catalog& catalog, const Object& object, const EvictionRules& rules,
                bool soft_too) {
  return object.readable && !object.hard_pin && (soft_too || !SoftPinned(object, rules)) &&
         ProtectedUntil(catalog, object, rules) <= rules.now_ms;
}

// With whoever must go along; empty: it stays.
std::vector<ObjectId> WithGroup(const Catalog& catalog, const Object& object,
                                const EvictionRules& rules, bool soft_too) {
  if (!MayGoAlone(catalog, object, rules, soft_too)) return {};
  if (object.group == kNone) return {object.object_id};
  std::vector<ObjectId> ids;
  for (const uint32_t slot : catalog.group(object.group).members) {
    const Object& member = *catalog.AtSlot(slot);
    if (!member.readable || ProtectedUntil(catalog, member, rules) > rules.now_ms) return {};
    if (member.hard_pin) continue;
    if (!soft_too && SoftPinned(member, rules)) return {};
    ids.push_back(member.object_id);
  }
  return ids;
}

std::vector<const Slab*> SlabsOf(const Catalog& catalog, const Tenant& tenant,
                                 const SlabFilter& filter) {
  std::vector<const Slab*> slabs;
  for (const uint32_t handle : tenant.slabs) {
    const Slab& slab = catalog.slab(handle);
    if (!slab.members.empty() && (filter == nullptr || filter(slab))) slabs.push_back(&slab);
  }
  return slabs;
}

// One extent of a slab, or what bars the way.
struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
  const Object* object = nullptr;
  bool barred = false;
  int64_t used_ms = 0;
};

std::vector<Extent> ExtentsOf(const Catalog& catalog, const Slab& slab, const EvictionRules& rules,
                              bool soft_too) {
  std::vector<Extent> extents;
  extents.reserve(slab.members.size());
  for (const uint32_t slot : slab.members) {
    const Object& object = *catalog.AtSlot(slot);
    for (const Replica& replica : object.replicas()) {
      if (&catalog.slab(replica.slab) != &slab) continue;
      extents.push_back({replica.offset, replica.offset + ExtentBytes(object.bytes), &object,
                         WithGroup(catalog, object, rules, soft_too).empty(),
                         LastUsedMs(catalog, object, rules)});
    }
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  return extents;
}

struct Row {
  size_t first = 0;
  size_t last = 0;  // inclusive
  int64_t used_ms = std::numeric_limits<int64_t>::max();
};

// Of the rows of extents that may go and leave `bytes` free, the one whose youngest is the oldest.
std::optional<Row> BestRow(const std::vector<Extent>& extents, uint64_t slab_bytes,
                           uint64_t bytes) {
  std::optional<Row> best;
  std::deque<size_t> youngest;  // of the window, in falling order of used_ms
  size_t first = 0;
  for (size_t last = 0; last < extents.size(); ++last) {
    if (extents[last].barred) {
      first = last + 1;
      youngest.clear();
      continue;
    }
    while (!youngest.empty() && extents[youngest.back()].used_ms <= extents[last].used_ms) {
      youngest.pop_back();
    }
    youngest.push_back(last);
    const uint64_t end = last + 1 < extents.size() ? extents[last + 1].begin : slab_bytes;
    const auto begin_of = [&](size_t i) { return i == 0 ? 0 : extents[i - 1].end; };
    // The shortest row that ends here.
    while (first < last && end - begin_of(first + 1) >= bytes) {
      if (youngest.front() == first) youngest.pop_front();
      ++first;
    }
    if (end - begin_of(first) < bytes) continue;
    const int64_t used_ms = extents[youngest.front()].used_ms;
    if (!best || used_ms < best->used_ms) best = Row{first, last, used_ms};
  }
  return best;
}

std::vector<ObjectId> Unique(std::vector<ObjectId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace

int64_t ProtectedUntil(const Catalog& catalog, const Object& object, const EvictionRules& rules) {
  const bool unknown = object.object_id < rules.grace_below;
  return std::max(catalog.LeaseOf(object), unknown ? rules.grace_until_ms : 0);
}

int64_t LastUsedMs(const Catalog& catalog, const Object& object, const EvictionRules& rules) {
  const int64_t lease_until_ms = catalog.LeaseOf(object);
  return std::max(object.ready_ms, lease_until_ms == 0 ? 0 : lease_until_ms - rules.lease_ms);
}

std::vector<ObjectId> ChooseVictims(const Catalog& catalog, const Tenant& tenant,
                                    const EvictionRules& rules, const SlabFilter& filter,
                                    const Dice& dice) {
  if (tenant.slabs.empty()) return {};
  for (const bool soft_too : {false, true}) {
    if (soft_too && !rules.evict_soft_pinned) break;
    std::vector<ObjectId> chosen;
    int64_t oldest = std::numeric_limits<int64_t>::max();
    int found = 0;
    for (int draw = 0; draw < kDrawsMax && found < kSamples; ++draw) {
      const Slab& slab = catalog.slab(tenant.slabs[dice(tenant.slabs.size())]);
      if (slab.members.empty() || (filter != nullptr && !filter(slab))) continue;
      const Object& object = *catalog.AtSlot(slab.members[dice(slab.members.size())]);
      const int64_t used_ms = LastUsedMs(catalog, object, rules);
      if (used_ms >= oldest && found > 0) {
        ++found;
        continue;
      }
      std::vector<ObjectId> ids = WithGroup(catalog, object, rules, soft_too);
      if (ids.empty()) continue;
      ++found;
      oldest = used_ms;
      chosen = std::move(ids);
    }
    if (!chosen.empty()) return chosen;
  }
  return {};
}

std::vector<ObjectId> ChooseRow(const Catalog& catalog, const Tenant& tenant, uint64_t bytes,
                                const EvictionRules& rules, const SlabFilter& filter,
                                const Dice& dice, std::vector<ObjectId>* progress) {
  std::vector<const Slab*> slabs = SlabsOf(catalog, tenant, filter);
  std::erase_if(slabs, [bytes](const Slab* slab) { return slab->bytes < bytes; });
  for (const bool soft_too : {false, true}) {
    if (soft_too && !rules.evict_soft_pinned) break;
    std::vector<ObjectId> chosen;
    int64_t oldest = std::numeric_limits<int64_t>::max();
    const size_t begin = slabs.empty() ? 0 : dice(slabs.size());
    size_t looked_at = 0;
    for (size_t i = 0; i < slabs.size() && (looked_at < kRowSlabsMax || chosen.empty()); ++i) {
      const Slab& slab = *slabs[(begin + i) % slabs.size()];
      if (slab.members.size() > kRowMembersMax) continue;
      // Beyond the first few only as long as there is a budget of time.
      if (++looked_at > 4 * kRowSlabsMax) break;
      const std::vector<Extent> extents = ExtentsOf(catalog, slab, rules, soft_too);
      const std::optional<Row> row = BestRow(extents, slab.bytes, bytes);
      if (!row || row->used_ms >= oldest) continue;
      oldest = row->used_ms;
      chosen.clear();
      for (size_t at = row->first; at <= row->last; ++at) {
        const auto ids = WithGroup(catalog, *extents[at].object, rules, soft_too);
        chosen.insert(chosen.end(), ids.begin(), ids.end());
      }
    }
    if (!chosen.empty()) return Unique(std::move(chosen));
  }
  // Always the same one first, so that it is empty some day.
  for (const Slab* slab : slabs) {
    if (slab->members.size() <= kRowMembersMax) continue;
    const size_t from = slab->members.size() - kProgressMax;
    for (size_t place = from; place < slab->members.size(); ++place) {
      const Object& object = *catalog.AtSlot(slab->members[place]);
      const auto ids = WithGroup(catalog, object, rules, rules.evict_soft_pinned);
      progress->insert(progress->end(), ids.begin(), ids.end());
    }
    *progress = Unique(std::move(*progress));
    if (!progress->empty()) break;
  }
  return {};
}

}  // namespace mooncake::pool
