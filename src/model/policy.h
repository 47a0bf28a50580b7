// Residency policy of a revision: what it is, what makes it valid, how one is resolved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/states.h"

namespace mooncake::model {

// What may move a revision after its first convergence. v1::MigrationMode's numbers: on disk, never
// renumber.
enum class MigrationMode : uint8_t {
  kPinned = 1,  // nothing
  kManual = 2,  // explicit migration
  kAuto = 3,    // explicit migration, access and memory pressure
};
inline constexpr uint8_t kMigrationModeMin = 1;
inline constexpr uint8_t kMigrationModeMax = 3;
std::string_view Name(MigrationMode mode);

struct StoragePolicy {
  Residency preferred_residency = Residency::kMixed;  // kHot, kCold or kMixed
  double mixed_hot_ratio = 0.5;                       // 0 < ratio < 1, whatever is preferred
  MigrationMode migration_mode = MigrationMode::kAuto;

  friend bool operator==(const StoragePolicy&, const StoragePolicy&) = default;
};

// INVALID_ARGUMENT naming the field and its value.
Status ValidatePolicy(const StoragePolicy& policy);

struct ResolvedPolicy {
  StoragePolicy policy;
  std::string note;  // what resolution changed, for people; empty when nothing
};

// `requested` absent means the cluster's default. Without a cold tier a defaulted policy becomes
// HOT and says so; an explicit COLD or MIXED is POLICY_UNSATISFIABLE.
Result<ResolvedPolicy> ResolvePolicy(const std::optional<StoragePolicy>& requested,
                                     const StoragePolicy& cluster_default, bool has_cold_tier);

}  // namespace mooncake::model
