#include "apps/master_config.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "rpc/host_port.h"

namespace mooncake::apps {
namespace {

using Setter = std::function<Status(const std::string& value, MasterConfig* config)>;

Status Expected(std::string_view what, const std::string& value) {
  return InvalidArgument(fmt::format("expected {}, got \"{}\"", what, value));
}

template <class Number>
Status ParseWhole(const std::string& text, Number* target) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, *target);
  if (error == std::errc() && at == end) return OkStatus();
  return Expected("a whole number", text);
}

// A setter for the number that `field` picks out of a config.
template <class Field>
Setter Whole(Field field) {
  return [field](const std::string& value, MasterConfig* config) {
    return ParseWhole(value, &field(config));
  };
}

Setter Flag(bool MasterConfig::*field) {
  return [field](const std::string& value, MasterConfig* config) {
    if (value != "true" && value != "false") return Expected("true or false", value);
    config->*field = value == "true";
    return OkStatus();
  };
}

Setter Text(std::string MasterConfig::*field) {
  return [field](const std::string& value, MasterConfig* config) {
    config->*field = value;
    return OkStatus();
  };
}

Status SetHttpPort(const std::string& value, MasterConfig* config) {
  uint16_t port = 0;
  if (!ParseWhole(value, &port).ok()) return Expected("a port from 0 to 65535", value);
  config->http_port = port;
  return OkStatus();
}

Status SetResidency(const std::string& value, MasterConfig* config) {
  model::Residency& target = config->options.default_policy.preferred_residency;
  if (value == "hot") return target = model::Residency::kHot, OkStatus();
  if (value == "cold") return target = model::Residency::kCold, OkStatus();
  if (value == "mixed") return target = model::Residency::kMixed, OkStatus();
  return Expected("hot, cold or mixed", value);
}

Status SetMigrationMode(const std::string& value, MasterConfig* config) {
  model::MigrationMode& target = config->options.default_policy.migration_mode;
  if (value == "pinned") return target = model::MigrationMode::kPinned, OkStatus();
  if (value == "manual") return target = model::MigrationMode::kManual, OkStatus();
  if (value == "auto") return target = model::MigrationMode::kAuto, OkStatus();
  return Expected("pinned, manual or auto", value);
}

Status SetRatio(const std::string& value, MasterConfig* config) {
  double ratio = 0;
  const char* end = value.data() + value.size();
  const auto [at, error] = std::from_chars(value.data(), end, ratio);
  if (error != std::errc() || at != end || !(ratio > 0 && ratio < 1)) {
    return Expected("a number above 0 and below 1", value);
  }
  config->options.default_policy.mixed_hot_ratio = ratio;
  return OkStatus();
}

const std::map<std::string, Setter, std::less<>>& Setters() {
  using C = MasterConfig;
  static const auto* const kSetters = new std::map<std::string, Setter, std::less<>>{
      {"listen", Text(&C::listen)},
      {"folder", Text(&C::folder)},
      {"log_level", Text(&C::log_level)},
      {"http_port", SetHttpPort},
      {"http_host", Text(&C::http_host)},
      {"token_file", Text(&C::token_file)},
      {"tls_cert", Text(&C::tls_cert)},
      {"tls_key", Text(&C::tls_key)},
      {"tls_client_ca", Text(&C::tls_client_ca)},
      {"insecure", Flag(&C::insecure)},
      {"default_weight_preferred_residency", SetResidency},
      {"default_weight_mixed_hot_ratio", SetRatio},
      {"default_weight_migration_mode", SetMigrationMode},
      {"report_interval_ms", Whole([](C * c) -> auto& { return c->options.report_interval_ms; })},
      {"node_dead_after_ms", Whole([](C * c) -> auto& { return c->options.node_dead_after_ms; })},
      {"lease_ttl_min_ms", Whole([](C * c) -> auto& { return c->options.lease_ttl_min_ms; })},
      {"lease_ttl_max_ms", Whole([](C * c) -> auto& { return c->options.lease_ttl_max_ms; })},
      {"import_ttl_min_ms", Whole([](C * c) -> auto& { return c->options.import_ttl_min_ms; })},
      {"import_ttl_max_ms", Whole([](C * c) -> auto& { return c->options.import_ttl_max_ms; })},
      {"removal_batch_members",
       Whole([](C * c) -> auto& { return c->options.removal_batch_members; })},
      {"snapshot_every_records",
       Whole([](C * c) -> auto& { return c->options.snapshot_every_records; })},
      {"snapshot_every_bytes",
       Whole([](C * c) -> auto& { return c->options.snapshot_every_bytes; })},
      {"pause_tolerance_ms", Whole([](C * c) -> auto& { return c->options.pause_tolerance_ms; })},
      {"weight_management_oplog_capability_confirmed",
       Flag(&C::weight_management_oplog_capability_confirmed)},
      {"weight_lineage_oplog_capability_confirmed",
       Flag(&C::weight_lineage_oplog_capability_confirmed)},
      {"weight_migration_cooldown_ms",
       Whole([](C * c) -> auto& { return c->weight_migration_cooldown_ms; })},
      {"weight_migration_max_members_per_round",
       Whole([](C * c) -> auto& { return c->weight_migration_max_members_per_round; })},
      {"weight_migration_max_bytes_per_round",
       Whole([](C * c) -> auto& { return c->weight_migration_max_bytes_per_round; })},
  };
  return *kSetters;
}

// What is only safe where nobody else's packets come, unless the operator says so. `key` is the one
// that gives `address`, of this `host`.
Status CheckExposure(const MasterConfig& config, std::string_view key, std::string_view address,
                     std::string_view host) {
  if (config.insecure || rpc::IsLoopback(host)) return OkStatus();
  const auto refused = [key, address](std::string_view what, std::string_view keys) {
    return InvalidArgument(fmt::format(
        "{}: {} would serve other hosts {}: give {}, or say insecure (--insecure) if the network "
        "is trusted",
        key, address, what, keys));
  };
  if (config.token_file.empty()) {
    return refused("without asking who calls, and every caller may do everything",
                   "token_file (--token-file)");
  }
  if (config.tls_cert.empty()) {
    return refused("in the clear, and tokens could be read on the way",
                   "tls_cert and tls_key (--tls-cert, --tls-key)");
  }
  return OkStatus();
}

std::string Where(const YAML::Mark& mark) { return fmt::format("line {}", mark.line + 1); }

Status ApplyNode(const YAML::Node& root, MasterConfig* config) {
  if (root.IsNull()) return OkStatus();
  if (!root.IsMap()) return InvalidArgument("expected a mapping of keys to values");
  std::map<std::string, bool> seen;
  for (const auto& entry : root) {
    const std::string where = Where(entry.first.Mark());
    if (!entry.first.IsScalar() || !entry.second.IsScalar()) {
      return InvalidArgument(fmt::format("{}: expected a key and one plain value", where));
    }
    const std::string key = entry.first.Scalar();
    if (!seen.emplace(key, true).second) {
      return InvalidArgument(fmt::format("{}: {} stands twice", where, key));
    }
    MC_RETURN_IF_ERROR(ApplyKey(key, entry.second.Scalar(), config).WithContext(where));
  }
  return OkStatus();
}

}  // namespace

Status ApplyYaml(std::string_view yaml, MasterConfig* config) {
  // The one library here that throws.
  try {
    return ApplyNode(YAML::Load(std::string(yaml)), config);
  } catch (const YAML::Exception& error) {
    return InvalidArgument(fmt::format("{}: {}", Where(error.mark), error.msg));
  }
}

Status ApplyKey(std::string_view key, const std::string& value, MasterConfig* config) {
  const auto setter = Setters().find(key);
  if (setter == Setters().end()) return InvalidArgument(fmt::format("unknown key {}", key));
  return setter->second(value, config).WithContext(key);
}

Status Validate(const MasterConfig& config) {
  if (config.folder.empty()) return InvalidArgument("folder: expected a path, got nothing");
  if (config.weight_migration_max_members_per_round == 0) {
    return InvalidArgument("weight_migration_max_members_per_round: expected 1 or more, got 0");
  }
  if (config.weight_migration_max_bytes_per_round == 0) {
    return InvalidArgument("weight_migration_max_bytes_per_round: expected 1 or more, got 0");
  }
  if (config.tls_cert.empty() != config.tls_key.empty()) {
    return InvalidArgument(fmt::format("tls_cert and tls_key go together, got \"{}\" and \"{}\"",
                                       config.tls_cert, config.tls_key));
  }
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) {
    return InvalidArgument("tls_client_ca: " + config.tls_client_ca +
                           " needs tls_cert and tls_key, too");
  }
  // What is wrong with the address is said by who binds it.
  if (const Result<rpc::HostPort> listen = rpc::SplitHostPort(config.listen); listen.ok()) {
    MC_RETURN_IF_ERROR(CheckExposure(config, "listen", config.listen, listen->host));
  }
  if (config.http_port) {
    MC_RETURN_IF_ERROR(CheckExposure(config, "http_host", config.http_host, config.http_host));
  }
  return master::Validate(config.options);
}

}  // namespace mooncake::apps
