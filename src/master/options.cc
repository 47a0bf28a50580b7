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

}  // namespace

Status Validate(const MasterOptions& options) {
  constexpr int64_t kDayMs = 24ll * 3600 * 1000;
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
