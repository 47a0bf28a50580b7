#include "admin/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <sstream>

namespace mooncake::admin {
namespace {

using Kind = MetricKind;

// One sample a node, of what `Field` picks from its v1::NodeStatus.
template <auto Field>
void OfNodes(const Observation& seen, Samples& samples) {
  for (const v1::NodeStatus& node : seen.cluster.nodes()) {
    samples.Add({{"node", node.address().node_id()}}, static_cast<double>((node.*Field)()));
  }
}

template <auto Field>
void OfTenants(const Observation& seen, Samples& samples) {
  for (const v1::TenantStatus& tenant : seen.tenants.tenants()) {
    samples.Add({{"tenant", tenant.quota().tenant_id()}}, static_cast<double>((tenant.*Field)()));
  }
}

template <auto Field>
void OfQuotas(const Observation& seen, Samples& samples) {
  for (const v1::TenantStatus& tenant : seen.tenants.tenants()) {
    samples.Add({{"tenant", tenant.quota().tenant_id()}},
                static_cast<double>((tenant.quota().*Field)()));
  }
}

template <auto Field>
void OfCluster(const Observation& seen, Samples& samples) {
  samples.Add({}, static_cast<double>((seen.cluster.*Field)()));
}

void BuildInfo(const Observation& seen, Samples& samples) {
  samples.Add({{"version", seen.cluster.version()}, {"cluster", seen.cluster.cluster_id()}}, 1);
}

void Revisions(const Observation& seen, Samples& samples) {
  for (const auto& [availability, count] : seen.cluster.revisions_by_availability()) {
    samples.Add({{"availability", availability}}, static_cast<double>(count));
  }
}

void ReportAge(const Observation& seen, Samples& samples) {
  for (const v1::NodeStatus& node : seen.cluster.nodes()) {
    samples.Add({{"node", node.address().node_id()}},
                static_cast<double>(node.last_report_age_ms()) / 1000);
  }
}

using Cluster = v1::GetClusterReply;
using Node = v1::NodeStatus;
using Quota = v1::TenantQuota;
using Tenant = v1::TenantStatus;

// clang-format off
constexpr MetricRow kTable[] = {
    {"mooncake_build_info", Kind::kGauge, "",
     "Always 1; its labels say which version serves which cluster", BuildInfo},
    {"mooncake_log_sequence", Kind::kGauge, "",
     "Number of the last record of the Master's log", OfCluster<&Cluster::last_log_sequence>},
    {"mooncake_revisions", Kind::kGauge, "",
     "Weight revisions by availability", Revisions},
    {"mooncake_active_leases", Kind::kGauge, "",
     "Leases of readers on weight revisions", OfCluster<&Cluster::active_leases>},
    {"mooncake_open_imports", Kind::kGauge, "",
     "Publishes that have begun and neither committed nor aborted",
     OfCluster<&Cluster::open_imports>},
    {"mooncake_stored_objects", Kind::kGauge, "",
     "Objects of every kind: payloads and METADATA of weights, and ordinary ones",
     OfCluster<&Cluster::object_count>},

    {"mooncake_node_alive", Kind::kGauge, "",
     "1 while the node's reports come in time, 0 otherwise", OfNodes<&Node::alive>},
    {"mooncake_node_report_age_seconds", Kind::kGauge, "seconds",
     "Since the node's last report", ReportAge},
    {"mooncake_node_capacity_bytes", Kind::kGauge, "bytes",
     "Memory that the node lends", OfNodes<&Node::capacity_bytes>},
    {"mooncake_node_used_bytes", Kind::kGauge, "bytes",
     "Memory in use: arenas of weights, slabs of ordinary objects, METADATA objects",
     OfNodes<&Node::used_bytes>},
    {"mooncake_node_slab_bytes", Kind::kGauge, "bytes",
     "Of the memory in use: slabs of ordinary objects", OfNodes<&Node::slab_bytes>},
    {"mooncake_node_releasing_bytes", Kind::kGauge, "bytes",
     "Memory given up that the node has not yet confirmed as released",
     OfNodes<&Node::releasing_bytes>},
    {"mooncake_node_prepared_bytes", Kind::kGauge, "bytes",
     "Free memory that the node keeps ready for new arenas", OfNodes<&Node::prepared_bytes>},
    {"mooncake_node_arenas", Kind::kGauge, "",
     "Memory files of the node, slabs among them", OfNodes<&Node::arena_count>},

    {"mooncake_tenant_objects", Kind::kGauge, "",
     "Ordinary objects that can be read", OfTenants<&Tenant::object_count>},
    {"mooncake_tenant_object_bytes", Kind::kGauge, "bytes",
     "Charged for ordinary objects: all replicas, headers and rounding included",
     OfTenants<&Tenant::object_bytes>},
    {"mooncake_tenant_unfinished_puts", Kind::kGauge, "",
     "Ordinary objects that are being written", OfTenants<&Tenant::unfinished_count>},
    {"mooncake_tenant_slab_bytes", Kind::kGauge, "bytes",
     "Memory in slabs of the tenant, free space in them included",
     OfTenants<&Tenant::slab_bytes>},
    {"mooncake_tenant_groups", Kind::kGauge, "",
     "Groups of ordinary objects", OfTenants<&Tenant::group_count>},
    {"mooncake_tenant_quota_bytes", Kind::kGauge, "bytes",
     "Most that may be charged; 0: no limit", OfQuotas<&Quota::bytes_max>},
    {"mooncake_tenant_quota_objects", Kind::kGauge, "",
     "Most ordinary objects; 0: no limit", OfQuotas<&Quota::objects_max>},
    {"mooncake_tenant_puts_total", Kind::kCounter, "",
     "Puts of ordinary objects that were begun, one per key", OfTenants<&Tenant::puts>},
    {"mooncake_tenant_refused_puts_total", Kind::kCounter, "",
     "Puts refused for want of room or by the quota", OfTenants<&Tenant::refused_puts>},
    {"mooncake_tenant_lookups_total", Kind::kCounter, "",
     "Keys of ordinary objects that were asked for", OfTenants<&Tenant::lookups>},
    {"mooncake_tenant_lookups_found_total", Kind::kCounter, "",
     "Keys asked for that had a readable object", OfTenants<&Tenant::lookups_found>},
    {"mooncake_tenant_evicted_objects_total", Kind::kCounter, "",
     "Ordinary objects that were evicted", OfTenants<&Tenant::evicted_objects>},
    {"mooncake_tenant_evicted_bytes_total", Kind::kCounter, "bytes",
     "Charged bytes of evicted ordinary objects", OfTenants<&Tenant::evicted_bytes>},
    {"mooncake_tenant_managed_skipped_total", Kind::kCounter, "",
     "Requests of the ordinary store that named an object of a weight revision and were refused",
     OfTenants<&Tenant::managed_skipped>},
};
// clang-format on

prometheus::ClientMetric MetricOf(const MetricRow& row, const Samples::Sample& sample) {
  prometheus::ClientMetric metric;
  for (const Label& label : sample.labels) {
    metric.label.push_back({std::string(label.name), std::string(label.value)});
  }
  (row.kind == Kind::kGauge ? metric.gauge.value : metric.counter.value) = sample.value;
  return metric;
}

prometheus::MetricFamily FamilyOf(const MetricRow& row, const Observation& seen) {
  prometheus::MetricFamily family;
  family.name = row.name;
  family.help = row.help;
  family.type =
      row.kind == Kind::kGauge ? prometheus::MetricType::Gauge : prometheus::MetricType::Counter;
  Samples samples;
  row.sample(seen, samples);
  for (const Samples::Sample& sample : samples.all()) {
    family.metric.push_back(MetricOf(row, sample));
  }
  return family;
}

}  // namespace

std::span<const MetricRow> MetricTable() { return kTable; }

std::string MetricsText(const Observation& seen) {
  std::vector<prometheus::MetricFamily> families;
  for (const MetricRow& row : kTable) families.push_back(FamilyOf(row, seen));
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace mooncake::admin
