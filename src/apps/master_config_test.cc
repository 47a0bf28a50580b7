#include "apps/master_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mooncake::apps {
namespace {

using testing::HasSubstr;

// The management RFC's example, word for word.
constexpr const char* kRfcConfig = R"(
default_weight_preferred_residency: "mixed"
default_weight_mixed_hot_ratio: 0.5
default_weight_migration_mode: "auto"
weight_management_oplog_capability_confirmed: false
weight_lineage_oplog_capability_confirmed: false
weight_migration_cooldown_ms: 30000
weight_migration_max_members_per_round: 64
weight_migration_max_bytes_per_round: 1073741824
)";

MasterConfig WithFolder() {
  MasterConfig config;
  config.folder = "/f";
  return config;
}

TEST(MasterConfig, TheRfcsExampleIsTheDefault) {
  MasterConfig config = WithFolder();
  const Status status = ApplyYaml(kRfcConfig, &config);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(Validate(config).ok());
  EXPECT_EQ(config.options.default_policy, model::StoragePolicy());
  EXPECT_EQ(config.weight_migration_cooldown_ms, 30'000u);
  EXPECT_EQ(config.weight_migration_max_bytes_per_round, uint64_t{1} << 30);
}

TEST(MasterConfig, EveryKeyReachesItsField) {
  MasterConfig config;
  const Status status = ApplyYaml(
      "listen: 0.0.0.0:7\nfolder: /x y\nlog_level: debug\ninsecure: true\n"
      "token_file: /t\ntls_cert: /c\ntls_key: /k\ntls_client_ca: /a\n"
      "default_weight_preferred_residency: cold\ndefault_weight_mixed_hot_ratio: 0.25\n"
      "default_weight_migration_mode: pinned\nreport_interval_ms: 100\nnode_dead_after_ms: 900\n"
      "lease_ttl_min_ms: 20\nlease_ttl_max_ms: 30\nimport_ttl_min_ms: 40\nimport_ttl_max_ms: 50\n"
      "removal_batch_members: 7\npause_tolerance_ms: 0\n"
      "snapshot_every_records: 8\nsnapshot_every_bytes: 9\n"
      "weight_management_oplog_capability_confirmed: true\n"
      "weight_lineage_oplog_capability_confirmed: true\n",
      &config);
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(Validate(config).ok());
  EXPECT_EQ(config.listen, "0.0.0.0:7");
  EXPECT_EQ(config.folder, "/x y");
  EXPECT_EQ(config.log_level, "debug");
  EXPECT_TRUE(config.insecure);
  EXPECT_EQ(config.token_file, "/t");
  EXPECT_EQ(config.tls_cert, "/c");
  EXPECT_EQ(config.tls_key, "/k");
  EXPECT_EQ(config.tls_client_ca, "/a");
  const model::StoragePolicy policy{model::Residency::kCold, 0.25, model::MigrationMode::kPinned};
  EXPECT_EQ(config.options.default_policy, policy);
  EXPECT_EQ(config.options.report_interval_ms, 100);
  EXPECT_EQ(config.options.node_dead_after_ms, 900);
  EXPECT_EQ(config.options.lease_ttl_min_ms, 20u);
  EXPECT_EQ(config.options.lease_ttl_max_ms, 30u);
  EXPECT_EQ(config.options.import_ttl_min_ms, 40u);
  EXPECT_EQ(config.options.import_ttl_max_ms, 50u);
  EXPECT_EQ(config.options.removal_batch_members, 7u);
  EXPECT_EQ(config.options.pause_tolerance_ms, 0);
  EXPECT_EQ(config.options.snapshot_every_records, 8u);
  EXPECT_EQ(config.options.snapshot_every_bytes, 9u);
  EXPECT_TRUE(config.weight_management_oplog_capability_confirmed);
  EXPECT_TRUE(config.weight_lineage_oplog_capability_confirmed);
}

TEST(MasterConfig, OtherHostsAreServedWithTokensAndTlsOrByAWord) {
  const std::string tokens = "token_file: /t\n";
  const std::string tls = "tls_cert: /c\ntls_key: /k\n";
  const auto why_not = [](const std::string& listen, const std::string& yaml) {
    MasterConfig config = WithFolder();
    EXPECT_TRUE(ApplyYaml("listen: '" + listen + "'\n" + yaml, &config).ok());
    return Validate(config).ToString();
  };
  for (const char* listen : {"0.0.0.0:0", "10.0.0.1:7", "[::]:7", "master.example:7"}) {
    EXPECT_THAT(why_not(listen, ""), HasSubstr("without asking who calls"));
    EXPECT_THAT(why_not(listen, ""), HasSubstr(listen));
    EXPECT_THAT(why_not(listen, tls), HasSubstr("give token_file (--token-file), or say insecure"));
    EXPECT_THAT(why_not(listen, tokens), HasSubstr("in the clear"));
    EXPECT_EQ(why_not(listen, tokens + tls), "OK");
    EXPECT_EQ(why_not(listen, "insecure: true"), "OK");
  }
  for (const char* listen : {"127.0.0.1:0", "localhost:7", "[::1]:7"}) {
    EXPECT_EQ(why_not(listen, ""), "OK");
    EXPECT_EQ(why_not(listen, tokens), "OK");
  }
}

TEST(MasterConfig, TheHttpPortIsAsCarefulAsTheOther) {
  const auto why_not = [](const std::string& yaml) {
    MasterConfig config = WithFolder();
    EXPECT_TRUE(ApplyYaml(yaml, &config).ok());
    return Validate(config).ToString();
  };
  EXPECT_EQ(why_not("http_port: 0"), "OK");
  EXPECT_EQ(why_not("http_host: 0.0.0.0"), "OK") << "without a port nothing is served";
  const std::string open = "http_host: 0.0.0.0\nhttp_port: 9\n";
  EXPECT_THAT(why_not(open),
              HasSubstr("http_host: 0.0.0.0 would serve other hosts without asking"));
  EXPECT_THAT(why_not(open + "token_file: /t\n"), HasSubstr("in the clear"));
  EXPECT_EQ(why_not(open + "token_file: /t\ntls_cert: /c\ntls_key: /k\n"), "OK");
  EXPECT_EQ(why_not(open + "insecure: true"), "OK");
}

TEST(MasterConfig, AnEmptyFileChangesNothing) {
  MasterConfig config = WithFolder();
  EXPECT_TRUE(ApplyYaml("", &config).ok());
  EXPECT_TRUE(ApplyYaml("# only words\n", &config).ok());
  EXPECT_TRUE(Validate(config).ok());
}

TEST(MasterConfig, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& yaml, const char* message) {
    MasterConfig config = WithFolder();
    Status status = ApplyYaml(yaml, &config);
    if (status.ok()) status = Validate(config);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << yaml;
    EXPECT_THAT(status.message(), HasSubstr(message)) << yaml;
  };
  refused("\nreport_intervall_ms: 5", "line 2: unknown key report_intervall_ms");
  refused("report_interval_ms: 5s", "report_interval_ms: expected a whole number, got \"5s\"");
  refused("report_interval_ms: 99999999999999999999", "expected a whole number");
  refused("report_interval_ms: [1]", "line 1: expected a key and one plain value");
  refused("http_port: 65536", "http_port: expected a port from 0 to 65535, got \"65536\"");
  refused("listen: a\nlisten: b", "line 2: listen stands twice");
  refused("- a\n- b", "expected a mapping");
  refused("a: b: c", "line 1: ");
  refused("default_weight_preferred_residency: warm", "expected hot, cold or mixed, got \"warm\"");
  refused("default_weight_migration_mode: never", "expected pinned, manual or auto, got \"never\"");
  refused("default_weight_mixed_hot_ratio: 0", "above 0 and below 1, got \"0\"");
  refused("default_weight_mixed_hot_ratio: 1", "above 0 and below 1, got \"1\"");
  refused("default_weight_mixed_hot_ratio: nan", "above 0 and below 1, got \"nan\"");
  refused("weight_lineage_oplog_capability_confirmed: yes", "expected true or false, got \"yes\"");
  refused("weight_migration_max_members_per_round: 0", "max_members_per_round: expected 1 or more");
  refused("weight_migration_max_bytes_per_round: 0", "max_bytes_per_round: expected 1 or more");
  refused("weight_migration_max_bytes_per_round: -1", "expected a whole number, got \"-1\"");
  refused("folder: ''", "folder: expected a path");
  refused("tls_cert: /c", "tls_cert and tls_key go together, got \"/c\" and \"\"");
  refused("tls_key: /k", "tls_cert and tls_key go together");
  refused("tls_client_ca: /a", "tls_client_ca: /a needs tls_cert and tls_key");
  refused("node_dead_after_ms: 10", "node_dead_after_ms");
}

}  // namespace
}  // namespace mooncake::apps
