#include "master/options.h"

#include <fmt/format.h>

#include <string_view>

#include "weights/decide.h"

namespace mooncake::master {
namespace {

Status CheckRange(std::string_view field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return OkStatus();
  return InvalidArgument(
      fmt::format("expected {} from {} to {}, got {}", field, least, most, value));
}

Status CheckTtls(std::string_view kind, uint64_t least, uint64_t most) {
  if (least >= 1 && least <= most && most <= weights::kTtlMsMax) return OkStatus();
  return InvalidArgument(
      fmt::format("expected 1 <= {0}_ttl_min_ms <= {0}_ttl_max_ms <= {1}, got {2} and {3}", kind,
                  weights::kTtlMsMax, least, most));
}

constexpr int64_t kDayMs = 24ll * 3600 * 1000;

Status ValidateObjects(const MasterOptions& options) {
  MC_RETURN_IF_ERROR(CheckRange("object_lease_ms", options.object_lease_ms, 1, kDayMs));
  MC_RETURN_IF_ERROR(CheckRange("put_ttl_ms", options.put_ttl_ms, 10, kDayMs));
  MC_RETURN_IF_ERROR(CheckRange("soft_pin_max_ms", static_cast<int64_t>(options.soft_pin_max_ms), 0,
                                365 * kDayMs));
  MC_RETURN_IF_ERROR(CheckRange("soft_pin_default_ms",
                                static_cast<int64_t>(options.soft_pin_default_ms), 0,
                                static_cast<int64_t>(options.soft_pin_max_ms)));
  const double high = options.eviction_high_watermark_ratio;
  if (!(high > 0 && high <= 1)) {
    return InvalidArgument(
        fmt::format("expected eviction_high_watermark_ratio above 0 and up to 1, got {}", high));
  }
  if (!(options.eviction_ratio >= 0 && options.eviction_ratio < high)) {
    return InvalidArgument(
        fmt::format("expected eviction_ratio from 0 to below the high watermark {}, got {}", high,
                    options.eviction_ratio));
  }
  MC_RETURN_IF_ERROR(
      CheckRange("slab_bytes", static_cast<int64_t>(options.slab_bytes), 65'536, int64_t{1} << 40));
  MC_RETURN_IF_ERROR(CheckRange("lender_gone_after_ms", options.lender_gone_after_ms, 1, kDayMs));
  MC_RETURN_IF_ERROR(CheckRange("relaxed_flush_ms", options.relaxed_flush_ms, 0, 60'000));
  return CheckRange("relaxed_bytes_max", static_cast<int64_t>(options.relaxed_bytes_max), 0,
                    256 << 20);
}

}  // namespace

Status Validate(const MasterOptions& options) {
  MC_RETURN_IF_ERROR(ValidatePolicy(options.default_policy).WithContext("default policy"));
  MC_RETURN_IF_ERROR(CheckRange("report_interval_ms", options.report_interval_ms, 1, kDayMs));
  if (options.node_dead_after_ms < 2 * options.report_interval_ms ||
      options.node_dead_after_ms > kDayMs) {
    return InvalidArgument(
        fmt::format("expected node_dead_after_ms of at least two report intervals ({} ms), got {}",
                    2 * options.report_interval_ms, options.node_dead_after_ms));
  }
  MC_RETURN_IF_ERROR(CheckTtls("lease", options.lease_ttl_min_ms, options.lease_ttl_max_ms));
  MC_RETURN_IF_ERROR(CheckTtls("import", options.import_ttl_min_ms, options.import_ttl_max_ms));
  MC_RETURN_IF_ERROR(ValidateObjects(options));
  MC_RETURN_IF_ERROR(
      CheckRange("removal_batch_members", options.removal_batch_members, 1, 1 << 20));
  MC_RETURN_IF_ERROR(CheckRange("batch_commands_max",
                                static_cast<int64_t>(options.batch_commands_max), 1, 1 << 20));
  MC_RETURN_IF_ERROR(
      CheckRange("batch_bytes_max", static_cast<int64_t>(options.batch_bytes_max), 1, 256 << 20));
  MC_RETURN_IF_ERROR(CheckRange("queue_max", static_cast<int64_t>(options.queue_max), 1, 1 << 24));
  MC_RETURN_IF_ERROR(CheckRange("upkeep_interval_ms", options.upkeep_interval_ms, 1, 60'000));
  MC_RETURN_IF_ERROR(CheckRange("rebuild_retry_ms", options.rebuild_retry_ms, 1, 60'000));
  return CheckRange("pause_tolerance_ms", options.pause_tolerance_ms, 0, kDayMs);
}

}  // namespace mooncake::master
