// Binding a logical plan to addresses.
//
// Binding is cheap and never plans again: it checks the runtime binding against the target
// placement (manifest::ValidateRuntimeBinding) and looks up one address a fragment. A BoundPlan is
// immutable; any thread may read it. It keeps the plan alive, not the memory behind the addresses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "geometry/strided_region.h"
#include "manifest/types.h"
#include "reshard/plan.h"

namespace mooncake::reshard {

// A payload object that a stored plan reads.
struct SourceObject {
  std::string_view key;       // into the plan's manifest
  std::string_view name;      // the key below <group>/payload/
  uint64_t bytes_needed = 0;  // sum over operations
  uint64_t first_byte = 0;    // smallest and one past the largest byte of the object that is read
  uint64_t end_byte = 0;
};

struct BoundOperation {
  uint32_t operation = 0;       // index into the plan's operations
  uint32_t object = 0;          // index into BoundPlan::objects()
  uint64_t object_offset = 0;   // where the source fragment begins in its object
  uint64_t target_address = 0;  // where the target fragment begins in memory
  uint64_t target_buffer = 0;   // where the allocation that it lies in begins
  // Relative to those two; canonical unless the target is bound to a strided view.
  geometry::StridedRegion region;
};

class BoundPlan {
 public:
  const LogicalPlan& plan() const { return *plan_; }
  // By key.
  std::span<const SourceObject> objects() const { return objects_; }
  size_t size() const { return plan_->operations().size(); }
  BoundOperation operation(size_t index) const;
  uint32_t object_of(size_t index) const { return object_of_[index]; }
  uint64_t target_address(size_t index) const {
    return addresses_[plan_->operations()[index].target];
  }
  // Where the operation's first source byte lies in its object.
  uint64_t object_begin(size_t index) const;

 private:
  friend Result<std::shared_ptr<const BoundPlan>> BindStoredToLocalTarget(
      LogicalPlanPtr plan, const manifest::RuntimeBinding& binding);

  LogicalPlanPtr plan_;
  std::vector<SourceObject> objects_;
  std::vector<uint32_t> object_of_;  // per operation
  std::vector<uint64_t> addresses_;  // per target fragment of the plan; 0: an empty one
  std::vector<uint64_t> buffers_;    // of each, where its allocation begins
  std::unordered_map<uint32_t, manifest::Extents> strides_;  // of target fragments in strided views
};
using BoundPlanPtr = std::shared_ptr<const BoundPlan>;

// `plan` comes from PlanStoredToLocalTarget for the binding's participant. INVALID_ARGUMENT when it
// has another source or target, or the binding does not fit the target placement.
Result<BoundPlanPtr> BindStoredToLocalTarget(LogicalPlanPtr plan,
                                             const manifest::RuntimeBinding& binding);

}  // namespace mooncake::reshard
