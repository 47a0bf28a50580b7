// mooncake-master's configuration file: YAML, one flat mapping, the management RFC's keys and the
// Master's own (`mooncake-master --help` lists them).
//
// Never decides what a value means (master/options.h does); refuses keys it does not know and
// values that are of another kind, so that a typing error never becomes a default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "master/options.h"

namespace mooncake::apps {

struct MasterConfig {
  std::string listen = "127.0.0.1:0";
  std::string folder;
  std::string log_level = "info";
  // Where /metrics and /status are served (docs/metrics.md); without a port nowhere. 0: the system
  // chooses one.
  std::optional<uint16_t> http_port;
  std::string http_host = "127.0.0.1";

  // Who may call, and over what (docs/security.md). Paths; empty: not asked for.
  std::string token_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  // Serve other hosts without tokens or without TLS.
  bool insecure = false;

  master::MasterOptions options;

  // The RFC's keys for what this build does not do yet: checked, and otherwise without effect. (The
  // two capability flags gate the etcd log only.)
  bool weight_management_oplog_capability_confirmed = false;
  bool weight_lineage_oplog_capability_confirmed = false;
  uint64_t weight_migration_cooldown_ms = 30'000;
  uint64_t weight_migration_max_members_per_round = 64;
  uint64_t weight_migration_max_bytes_per_round = uint64_t{1} << 30;
};

// Puts what `yaml` says over what `config` has. INVALID_ARGUMENT names the key and the line;
// `config` is then of no use.
Status ApplyYaml(std::string_view yaml, MasterConfig* config);

// One key as a flag gives it: the same names, checks and messages.
Status ApplyKey(std::string_view key, const std::string& value, MasterConfig* config);

// What goes beyond single values. INVALID_ARGUMENT with the field and its value.
Status Validate(const MasterConfig& config);

}  // namespace mooncake::apps
