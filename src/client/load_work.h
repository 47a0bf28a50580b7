// What a load has to copy: the regions of every payload object, over all targets of the call
// together, so that an object is mapped once and each of its digest blocks is verified once.
//
// Made from plans and bindings before a byte moves; every mistake of the caller is found here.
// Immutable afterwards.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "client/plan_cache.h"
#include "client/store_client.h"
#include "reshard/bind.h"

namespace mooncake::client {

// One operation of one of the bound plans.
struct LoadOperation {
  uint32_t plan = 0;
  uint32_t operation = 0;
};

struct ObjectWork {
  std::string_view name;  // below <group>/payload/; lives as long as the plans
  uint64_t bytes_needed = 0;
  std::vector<LoadOperation> copies;
  // Into target memory that another tensor's copies fill (declared aliases): the bytes must be
  // equal, and are compared after all copies.
  std::vector<LoadOperation> compares;
};

struct LoadWork {
  std::vector<reshard::BoundPlanPtr> plans;
  std::vector<ObjectWork> objects;  // by name
  uint64_t tensors = 0;
  uint64_t regions = 0;
  uint64_t bytes_needed = 0;  // of copies
  bool plan_reused = false;
};

// INVALID_ARGUMENT, naming the field and both values, when a target does not fit the manifest, a
// binding not its placement, or two targets share memory; UNSUPPORTED for memory that is not the
// host's.
Result<LoadWork> PlanLoad(PlanCache& plans, const manifest::StoredManifestPtr& manifest,
                          const std::vector<LoadTarget>& targets);

}  // namespace mooncake::client
