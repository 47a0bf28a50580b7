// What an operator may set of a Master. Checked once, before anything is served.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "model/policy.h"

namespace mooncake::master {

struct MasterOptions {
  // Of revisions published without a policy. Without a cold tier it resolves to HOT.
  model::StoragePolicy default_policy;

  // How often nodes are told to report, and how long one may be silent before its revisions become
  // DEGRADED. After a start nodes get the same time to register again.
  int64_t report_interval_ms = 500;
  int64_t node_dead_after_ms = 3'000;

  // What clients may ask for. A TTL out of its range is INVALID_ARGUMENT.
  uint64_t lease_ttl_min_ms = 10;
  uint64_t lease_ttl_max_ms = 3'600'000;
  uint64_t import_ttl_min_ms = 10;
  uint64_t import_ttl_max_ms = 3'600'000;

  // Payload objects taken out of a DELETING revision per batch of the log.
  uint32_t removal_batch_members = 1024;

  // ---- ordinary objects ----
  // How long one is protected after it was looked up.
  int64_t object_lease_ms = 10'000;
  // How long an unfinished put survives the silence of its writer.
  int64_t put_ttl_ms = 30'000;
  uint64_t soft_pin_default_ms = 1'800'000;
  uint64_t soft_pin_max_ms = 86'400'000;
  // Soft-pinned objects go after all others; false: not at all.
  bool evict_soft_pinned = true;
  // Above this share of a tenant's room its oldest objects go, until so much less is used.
  double eviction_high_watermark_ratio = 0.90;
  double eviction_ratio = 0.05;
  // Of a slab, where the node has so much.
  uint64_t slab_bytes = uint64_t{64} << 20;
  // Puts of tenants that nobody set a quota for are refused.
  bool require_known_tenants = false;
  // A node that lends memory to objects alone is taken to be gone for good after such a silence,
  // and not before it counts as dead.
  int64_t lender_gone_after_ms = 10'000;
  // How long relaxed events may wait for the log.
  int64_t relaxed_flush_ms = 20;
  size_t relaxed_bytes_max = 4u << 20;

  // Bounds of one batch of the log: no further command is added beyond them.
  size_t batch_commands_max = 1024;
  size_t batch_bytes_max = 8u << 20;
  // Requests that may wait for the sequencer; more are UNAVAILABLE.
  size_t queue_max = 65'536;

  // Clients live in the Master's process and cannot outlive it: leases and open imports that the
  // log has at the start are ended at once.
  bool clients_end_with_master = false;

  // How often time-outs are looked at when nothing else happens.
  int64_t upkeep_interval_ms = 20;
  // After a failed append: pause between attempts to read the log again.
  int64_t rebuild_retry_ms = 1'000;
  // A snapshot is taken once the log has grown by so many records or bytes since the last one; 0:
  // not for that reason.
  uint64_t snapshot_every_records = 100'000;
  uint64_t snapshot_every_bytes = 64u << 20;
  // Of what a snapshot made superfluous, records dropped from the log between two batches.
  uint64_t log_drop_records_max = 500;

  // The process may be stopped or starved (SIGSTOP, a suspended laptop). Between two looks at the
  // clock at most this much counts, so that clients who could not reach the Master lose nothing. 0:
  // all of it counts.
  int64_t pause_tolerance_ms = 0;

  // Every so many batches the log is replayed beside the live state and both are compared; a
  // difference ends the process. 0: never. Costs a second copy of the state.
#ifdef NDEBUG
  uint32_t verify_replay_every = 0;
#else
  uint32_t verify_replay_every = 64;
#endif
};

// INVALID_ARGUMENT with the field and its value.
Status Validate(const MasterOptions& options);

}  // namespace mooncake::master
