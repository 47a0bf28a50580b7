#include "client/plan_cache.h"

#include "reshard/plan_reuse.h"

namespace mooncake::client {

manifest::StoredManifestPtr PlanCache::FindManifest(const std::string& sha256) {
  std::lock_guard lock(mutex_);
  const manifest::StoredManifestPtr* found = manifests_.Find(sha256);
  return found == nullptr ? nullptr : *found;
}

void PlanCache::AddManifest(const std::string& sha256, manifest::StoredManifestPtr manifest) {
  std::lock_guard lock(mutex_);
  manifests_.Add(sha256, std::move(manifest));
}

Result<PlanCache::Planned> PlanCache::Plan(const manifest::StoredManifestPtr& source,
                                           const manifest::PlacementPtr& target,
                                           const std::string& participant_id) {
  const std::string key = source->manifest_digest + " " + target->digest + " " + participant_id;
  reshard::SourceIndexPtr index;
  {
    std::lock_guard lock(mutex_);
    if (const reshard::LogicalPlanPtr* found = plans_.Find(key)) return Planned{*found, true};
    if (const reshard::SourceIndexPtr* found = indexes_.Find(source->manifest_digest)) {
      index = *found;
    }
  }
  // Planning holds no lock: two loads that plan the same at once make two equal plans.
  const std::string geometry =
      reshard::GeometryDigestOf({nullptr, source}, *target, participant_id);
  reshard::LogicalPlanPtr alike;
  {
    std::lock_guard lock(mutex_);
    if (const reshard::LogicalPlanPtr* found = by_geometry_.Find(geometry)) alike = *found;
  }
  if (alike != nullptr) {
    // Another generation cut the same way; ReusePlan compares the geometries again.
    Result<reshard::LogicalPlanPtr> plan = reshard::ReusePlan(*alike, {nullptr, source}, target);
    if (plan.ok()) {
      std::lock_guard lock(mutex_);
      plans_.Add(key, *plan);
      return Planned{*std::move(plan), true};
    }
  }
  if (index == nullptr) index = reshard::IndexStored(source);
  MC_ASSIGN_OR_RETURN(reshard::LogicalPlanPtr plan,
                      reshard::PlanFromIndexToLocalTarget(index, target, participant_id,
                                                          reshard::PlanningLimits::Unexpanded()));
  std::lock_guard lock(mutex_);
  indexes_.Add(source->manifest_digest, std::move(index));
  plans_.Add(key, plan);
  by_geometry_.Add(geometry, plan);
  return Planned{std::move(plan), false};
}

}  // namespace mooncake::client
