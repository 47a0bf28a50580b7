#include "client/load_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "manifest/lookup.h"
#include "manifest/validate.h"

namespace mooncake::client {
namespace {

Status CheckDevice(const manifest::RuntimeBinding& binding) {
  for (const manifest::RuntimeBindingFragment& fragment : binding.fragments) {
    if (fragment.device == "cpu" || fragment.device.starts_with("cpu:")) continue;
    return Unsupported("fragment " + fragment.fragment_id + " of participant " +
                       binding.participant_id + " is on device " + fragment.device +
                       "; only cpu memory can be filled");
  }
  return OkStatus();
}

struct Range {
  uint64_t address = 0;
  uint64_t nbytes = 0;
  uint32_t target = 0;
  const manifest::RuntimeBindingFragment* fragment = nullptr;
};

// Within one binding validate.h has proved that only declared aliases share memory; nothing may be
// shared between bindings.
Status CheckDisjoint(const std::vector<LoadTarget>& targets) {
  std::vector<Range> ranges;
  for (uint32_t target = 0; target < targets.size(); ++target) {
    for (const manifest::RuntimeBindingFragment& fragment : targets[target].binding->fragments) {
      ranges.push_back({fragment.address, manifest::SpanBytes(fragment), target, &fragment});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.address < b.address; });
  // The range that reaches furthest so far is the only one that can overlap the next.
  const Range* furthest = nullptr;
  for (const Range& range : ranges) {
    if (furthest != nullptr && furthest->target != range.target &&
        range.address < furthest->address + furthest->nbytes) {
      return InvalidArgument("targets overlap in memory: fragment " +
                             furthest->fragment->fragment_id + " of participant " +
                             targets[furthest->target].binding->participant_id + " and fragment " +
                             range.fragment->fragment_id + " of participant " +
                             targets[range.target].binding->participant_id);
    }
    if (furthest == nullptr ||
        range.address + range.nbytes > furthest->address + furthest->nbytes) {
      furthest = &range;
    }
  }
  return OkStatus();
}

Status CheckTarget(const LoadTarget& target, uint32_t index) {
  const std::string name = "targets[" + std::to_string(index) + "]";
  if (target.placement == nullptr) return InvalidArgument(name + " has no placement");
  if (target.binding == nullptr) return InvalidArgument(name + " has no binding");
  MC_RETURN_IF_ERROR(manifest::ValidateRuntimeBinding(*target.placement, *target.binding));
  return CheckDevice(*target.binding);
}

// Target fragments (indices into the plan's) whose memory an earlier one has too.
std::vector<bool> AliasedTargets(const reshard::BoundPlan& bound) {
  const auto fragments = bound.plan().target_fragments();
  std::vector<bool> aliased(fragments.size(), false);
  std::set<uint64_t> addresses;
  std::vector<bool> seen(fragments.size(), false);
  for (size_t op = 0; op < bound.size(); ++op) {
    const uint32_t target = bound.plan().operations()[op].target;
    if (seen[target]) continue;
    seen[target] = true;
    aliased[target] = !addresses.insert(bound.target_address(op)).second;
  }
  return aliased;
}

class WorkBuilder {
 public:
  explicit WorkBuilder(LoadWork* work) : work_(work) {}

  void Add(reshard::BoundPlanPtr bound) {
    const auto plan_index = static_cast<uint32_t>(work_->plans.size());
    const std::vector<bool> aliased = AliasedTargets(*bound);
    std::vector<ObjectWork*> objects;
    for (const reshard::SourceObject& object : bound->objects()) {
      objects.push_back(&by_name_.try_emplace(object.name).first->second);
    }
    const reshard::LogicalPlan& plan = bound->plan();
    for (uint32_t op = 0; op < bound->size(); ++op) {
      ObjectWork* object = objects[bound->object_of(op)];
      const uint64_t bytes = static_cast<uint64_t>(plan.overlap(op).volume()) * plan.itemsize(op);
      if (aliased[plan.operations()[op].target]) {
        object->compares.push_back({plan_index, op});
        continue;
      }
      object->copies.push_back({plan_index, op});
      object->bytes_needed += bytes;
      work_->bytes_needed += bytes;
    }
    work_->regions += bound->size();
    for (const manifest::TensorDescriptor* tensor : plan.target_tensors()) {
      tensors_.insert(tensor->tensor_id);
    }
    work_->plans.push_back(std::move(bound));
  }

  void Finish() {
    for (auto& [name, object] : by_name_) {
      object.name = name;
      work_->objects.push_back(std::move(object));
    }
    work_->tensors = tensors_.size();
  }

 private:
  LoadWork* const work_;
  std::map<std::string_view, ObjectWork> by_name_;
  std::set<std::string_view> tensors_;
};

}  // namespace

Result<LoadWork> PlanLoad(PlanCache& plans, const manifest::StoredManifestPtr& manifest,
                          const std::vector<LoadTarget>& targets) {
  if (targets.empty()) return InvalidArgument("targets: nothing to load into");
  for (uint32_t i = 0; i < targets.size(); ++i) MC_RETURN_IF_ERROR(CheckTarget(targets[i], i));
  MC_RETURN_IF_ERROR(CheckDisjoint(targets));
  LoadWork work;
  work.plan_reused = true;
  WorkBuilder builder(&work);
  for (const LoadTarget& target : targets) {
    const manifest::PlacementPart* part =
        manifest::FindPart(*target.placement, target.binding->participant_id);
    if (!manifest::HoldsElements(*part)) continue;  // this rank holds nothing
    MC_ASSIGN_OR_RETURN(const PlanCache::Planned planned,
                        plans.Plan(manifest, target.placement, target.binding->participant_id));
    work.plan_reused = work.plan_reused && planned.reused;
    MC_ASSIGN_OR_RETURN(reshard::BoundPlanPtr bound,
                        reshard::BindStoredToLocalTarget(planned.plan, *target.binding));
    builder.Add(std::move(bound));
  }
  builder.Finish();
  return work;
}

}  // namespace mooncake::client
