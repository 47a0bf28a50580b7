// Which objects go when a tenant's room runs short. Pure, but for the dice that are handed in.
//
// Approximate LRU: of a few objects taken at random the one that was used longest ago. Never: one
// that a lease protects, a hard-pinned one, an unfinished one, another tenant's. Groups go as a
// whole, and stay as a whole while any member is leased (a hard-pinned member stays in any case).
// Soft-pinned ones come after all others, if at all. Weight revisions are not in this catalogue.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pool/catalog.h"

namespace mooncake::pool {

struct EvictionRules {
  int64_t now_ms = 0;
  int64_t lease_ms = 0;  // how long a lease lasts: when it was given follows from its end
  // Objects older than this one are protected until then: leases from before a restart are not
  // known any more.
  ObjectId grace_below;
  int64_t grace_until_ms = 0;
  bool evict_soft_pinned = true;
};

// Until when the object is protected; may be past.
int64_t ProtectedUntil(const Catalog& catalog, const Object& object, const EvictionRules& rules);
int64_t LastUsedMs(const Catalog& catalog, const Object& object, const EvictionRules& rules);

// A source of randomness: a number below its argument, which is not 0.
using Dice = std::function<uint64_t(uint64_t)>;

// Which of the tenant's slabs may be emptied: by node, null for all.
using SlabFilter = std::function<bool(const Slab&)>;

// The next to go, as one step: an object, or the evictable members of its group. Empty: nothing was
// found that may go. Looks at a bounded number of objects.
std::vector<ObjectId> ChooseVictims(const Catalog& catalog, const Tenant& tenant,
                                    const EvictionRules& rules, const SlabFilter& filter,
                                    const Dice& dice);

// What must go so that `bytes` in a row become free in one slab, of what was used longest ago.
// Empty: there is no such row, or only in slabs with too many objects to be looked at; of one of
// those some objects are named in `progress` then.
std::vector<ObjectId> ChooseRow(const Catalog& catalog, const Tenant& tenant, uint64_t bytes,
                                const EvictionRules& rules, const SlabFilter& filter,
                                const Dice& dice, std::vector<ObjectId>* progress);

}  // namespace mooncake::pool
