// The table of metrics: complete, well-formed, told in docs/metrics.md, and exposed as Prometheus
// reads it.
#include "admin/metrics.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "admin/status_page.h"
#include "env/file.h"

namespace mooncake::admin {
namespace {

using testing::HasSubstr;
using testing::Not;

Observation Sample() {
  Observation seen;
  seen.cluster.set_cluster_id("c1");
  seen.cluster.set_version("0.1.0");
  seen.cluster.set_last_log_sequence(uint64_t{1} << 40);
  seen.cluster.set_active_leases(3);
  (*seen.cluster.mutable_revisions_by_availability())["READY"] = 2;
  (*seen.cluster.mutable_revisions_by_availability())["DEGRADED"] = 0;
  for (int i = 0; i < 2; ++i) {
    v1::NodeStatus* node = seen.cluster.add_nodes();
    node->mutable_address()->set_node_id(fmt::format("n{}", i));
    node->set_alive(i == 0);
    node->set_capacity_bytes(uint64_t{1} << 30);
    node->set_last_report_age_ms(1'500);
  }
  v1::TenantStatus* tenant = seen.tenants.add_tenants();
  tenant->mutable_quota()->set_tenant_id("a\"b\\c\nd");
  tenant->mutable_quota()->set_bytes_max(77);
  tenant->set_puts(12);
  return seen;
}

TEST(Metrics, EveryRowIsWellFormedAndToldInTheDocument) {
  const std::string page = env::ReadFile(MOONCAKE_SOURCE_DIR "/docs/metrics.md").value();
  std::set<std::string_view> names;
  for (const MetricRow& row : MetricTable()) {
    SCOPED_TRACE(row.name);
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_TRUE(row.name.starts_with("mooncake_"));
    EXPECT_EQ(row.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string_view::npos);
    std::string_view stem = row.name;
    EXPECT_EQ(stem.ends_with("_total"), row.kind == MetricKind::kCounter);
    if (stem.ends_with("_total")) stem.remove_suffix(6);
    if (row.unit.empty()) {
      EXPECT_FALSE(stem.ends_with("_seconds"));
    } else {
      EXPECT_THAT(std::string(stem), HasSubstr(std::string(row.unit)));
    }
    EXPECT_FALSE(row.help.empty());
    EXPECT_THAT(page, HasSubstr(fmt::format("| `{}` | {} | {} | {} |\n", row.name, Name(row.kind),
                                            row.unit, row.help)));
  }
}

TEST(Metrics, TheTextHasEveryValueWithItsLabels) {
  const std::string text = MetricsText(Sample());
  for (const char* line : {
           "# TYPE mooncake_log_sequence gauge\n",
           "# TYPE mooncake_tenant_puts_total counter\n",
           "mooncake_build_info{version=\"0.1.0\",cluster=\"c1\"} 1\n",
           "mooncake_log_sequence 1099511627776\n",
           "mooncake_revisions{availability=\"READY\"} 2\n",
           "mooncake_revisions{availability=\"DEGRADED\"} 0\n",
           "mooncake_active_leases 3\n",
           "mooncake_node_alive{node=\"n0\"} 1\n",
           "mooncake_node_alive{node=\"n1\"} 0\n",
           "mooncake_node_capacity_bytes{node=\"n1\"} 1073741824\n",
           "mooncake_node_report_age_seconds{node=\"n0\"} 1.5\n",
           "mooncake_tenant_puts_total{tenant=\"a\\\"b\\\\c\\nd\"} 12\n",
           "mooncake_tenant_quota_bytes{tenant=\"a\\\"b\\\\c\\nd\"} 77\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // Nobody there: nothing is said of anybody, rather than a zero of nobody.
  EXPECT_THAT(MetricsText({}), Not(HasSubstr("mooncake_node_alive{")));
}

TEST(StatusPage, IsOneJsonOfBothReplies) {
  const std::string json = StatusJson(Sample()).value();
  EXPECT_TRUE(json.starts_with("{\"cluster\":{")) << json;
  EXPECT_THAT(json, HasSubstr("\"last_log_sequence\":\"1099511627776\""));
  EXPECT_THAT(json, HasSubstr("\"tenants\":[{"));
  EXPECT_THAT(json, HasSubstr("\"puts\":\"12\""));
  EXPECT_THAT(StatusJson({}).value(), HasSubstr("\"tenants\":[]}"));
}

}  // namespace
}  // namespace mooncake::admin
