#include "reshard/bind.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>

#include "base/check.h"
#include "manifest/validate.h"

namespace mooncake::reshard {

using manifest::RuntimeBindingFragment;
using manifest::StoredFragment;

namespace {

// The plan's stored fragments that are read, numbered by object.
struct ObjectTable {
  std::vector<SourceObject> objects;
  std::vector<uint32_t> object_of;  // per operation
};

ObjectTable TabulateObjects(const LogicalPlan& plan) {
  const std::span<const StoredFragment> fragments = plan.source_stored_fragments();
  const size_t prefix =
      plan.source_manifest()->group_id.size() + std::string_view("/payload/").size();
  ObjectTable table;
  std::unordered_map<std::string_view, uint32_t> known;
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    const std::string_view key = fragments[plan.operations()[i].source].object_key;
    const auto [it, is_new] = known.try_emplace(key, static_cast<uint32_t>(table.objects.size()));
    if (is_new) table.objects.push_back({key, key.substr(prefix), 0, UINT64_MAX, 0});
    table.object_of.push_back(it->second);
  }
  // By key, whatever the operations' order.
  std::sort(table.objects.begin(), table.objects.end(),
            [](const SourceObject& a, const SourceObject& b) { return a.key < b.key; });
  std::vector<uint32_t> position(table.objects.size());
  for (uint32_t o = 0; o < table.objects.size(); ++o) position[known[table.objects[o].key]] = o;
  for (uint32_t& object : table.object_of) object = position[object];
  return table;
}

Status CheckSidesMatch(const LogicalPlan& plan, const manifest::RuntimeBinding& binding) {
  if (!plan.has_stored_source()) {
    return InvalidArgument("the plan reads placement " + plan.source_placement()->placement_id +
                           ", not a stored manifest");
  }
  if (!plan.local_target_part()) {
    return InvalidArgument("the plan fills the whole placement " +
                           plan.target_placement()->placement_id + ", not participant " +
                           binding.participant_id);
  }
  const std::string& participant =
      plan.target_placement()->parts[*plan.local_target_part()].participant_id;
  if (participant != binding.participant_id) {
    return InvalidArgument("the plan fills participant " + participant +
                           ", the binding is of participant " + binding.participant_id);
  }
  return OkStatus();
}

}  // namespace

uint64_t BoundPlan::object_begin(size_t index) const {
  const PlannedOperation& operation = plan_->operations()[index];
  return plan_->source_stored_fragments()[operation.source].object_offset +
         plan_->region(index).source_base_offset;
}

BoundOperation BoundPlan::operation(size_t index) const {
  const PlannedOperation& operation = plan_->operations()[index];
  BoundOperation bound;
  bound.operation = static_cast<uint32_t>(index);
  bound.object = object_of_[index];
  bound.object_offset = plan_->source_stored_fragments()[operation.source].object_offset;
  bound.target_address = addresses_[operation.target];
  bound.target_buffer = buffers_[operation.target];
  const auto strides = strides_.find(operation.target);
  bound.region =
      strides == strides_.end()
          ? plan_->region(index)
          : geometry::RegionToView(plan_->source_box(index), plan_->target_box(index),
                                   plan_->overlap(index), plan_->itemsize(index), strides->second);
  return bound;
}

Result<BoundPlanPtr> BindStoredToLocalTarget(LogicalPlanPtr plan,
                                             const manifest::RuntimeBinding& binding) {
  MC_RETURN_IF_ERROR(CheckSidesMatch(*plan, binding));
  MC_RETURN_IF_ERROR(manifest::ValidateRuntimeBinding(*plan->target_placement(), binding));
  const std::shared_ptr<BoundPlan> bound(new BoundPlan);
  // The validated binding has exactly the part's fragments that hold elements, both sorted by id.
  size_t next = 0;
  for (const manifest::PlacementFragment& target : plan->target_fragments()) {
    const auto position = static_cast<uint32_t>(bound->addresses_.size());
    if (target.is_empty()) {
      bound->addresses_.push_back(0);
      bound->buffers_.push_back(0);
      continue;
    }
    MC_CHECK(next < binding.fragments.size());
    const RuntimeBindingFragment& runtime = binding.fragments[next++];
    MC_CHECK(target.placement_fragment_id == runtime.placement_fragment_id);
    bound->addresses_.push_back(runtime.address);
    bound->buffers_.push_back(runtime.storage_address);
    if (runtime.strided) bound->strides_.emplace(position, runtime.strides_bytes);
  }
  MC_CHECK(next == binding.fragments.size());
  ObjectTable table = TabulateObjects(*plan);
  for (size_t i = 0; i < plan->operations().size(); ++i) {
    SourceObject& object = table.objects[table.object_of[i]];
    const geometry::StridedRegion region = plan->region(i);
    const uint64_t offset =
        plan->source_stored_fragments()[plan->operations()[i].source].object_offset;
    object.bytes_needed += region.total_bytes();
    object.first_byte = std::min(object.first_byte, offset + region.source_base_offset);
    object.end_byte = std::max(object.end_byte, offset + region.source_end());
  }
  bound->plan_ = std::move(plan);
  bound->objects_ = std::move(table.objects);
  bound->object_of_ = std::move(table.object_of);
  return BoundPlanPtr(bound);
}

}  // namespace mooncake::reshard
