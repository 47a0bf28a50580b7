#include "model/policy.h"

#include <cstdio>

namespace mooncake::model {
namespace {

std::string Decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

}  // namespace

std::string_view Name(MigrationMode mode) {
  switch (mode) {
    case MigrationMode::kPinned:
      return "PINNED";
    case MigrationMode::kManual:
      return "MANUAL";
    case MigrationMode::kAuto:
      return "AUTO";
  }
  return "?";
}

Status ValidatePolicy(const StoragePolicy& policy) {
  switch (policy.preferred_residency) {
    case Residency::kHot:
    case Residency::kCold:
    case Residency::kMixed:
      break;
    default:
      return InvalidArgument("preferred_residency must be HOT, COLD or MIXED, got " +
                             std::string(Name(policy.preferred_residency)));
  }
  // Written so that a NaN fails.
  if (!(policy.mixed_hot_ratio > 0 && policy.mixed_hot_ratio < 1)) {
    return InvalidArgument("mixed_hot_ratio must lie between 0 and 1, both excluded, got " +
                           Decimal(policy.mixed_hot_ratio));
  }
  switch (policy.migration_mode) {
    case MigrationMode::kPinned:
    case MigrationMode::kManual:
    case MigrationMode::kAuto:
      return OkStatus();
  }
  return InvalidArgument("migration_mode must be PINNED, MANUAL or AUTO, got number " +
                         std::to_string(static_cast<int>(policy.migration_mode)));
}

Result<ResolvedPolicy> ResolvePolicy(const std::optional<StoragePolicy>& requested,
                                     const StoragePolicy& cluster_default, bool has_cold_tier) {
  const StoragePolicy& policy = requested ? *requested : cluster_default;
  MC_RETURN_IF_ERROR(ValidatePolicy(policy));
  if (has_cold_tier || policy.preferred_residency == Residency::kHot) {
    return ResolvedPolicy{policy, ""};
  }
  const std::string preferred(Name(policy.preferred_residency));
  if (requested) {
    return PolicyUnsatisfiable("preferred_residency " + preferred +
                               " needs a cold tier, and the cluster has none");
  }
  ResolvedPolicy resolved{
      policy, "the default policy " + preferred + " resolved to HOT: the cluster has no cold tier"};
  resolved.policy.preferred_residency = Residency::kHot;
  return resolved;
}

}  // namespace mooncake::model
