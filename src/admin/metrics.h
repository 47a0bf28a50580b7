// The metrics of a Master: one table, and its exposition for Prometheus.
//
// A metric is a row: name, kind, unit, help, and how its values are read from an Observation.
// Nothing is counted here and nothing kept; a new metric is a new row (and one in docs/metrics.md,
// which a test holds against the table). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "admin/observation.h"

namespace mooncake::admin {

enum class MetricKind : uint8_t {
  kGauge,    // goes up and down
  kCounter,  // only grows; begins anew with the Master's process
};
constexpr std::string_view Name(MetricKind kind) {
  return kind == MetricKind::kGauge ? "gauge" : "counter";
}

struct Label {
  std::string_view name;
  std::string_view value;
};

// The values of one metric, one per set of labels.
class Samples {
 public:
  struct Sample {
    std::vector<Label> labels;
    double value = 0;
  };
  void Add(std::vector<Label> labels, double value) {
    samples_.push_back({std::move(labels), value});
  }
  const std::vector<Sample>& all() const { return samples_; }

 private:
  std::vector<Sample> samples_;
};

struct MetricRow {
  std::string_view name;  // ends with the unit, and a counter's with _total
  MetricKind kind;
  std::string_view unit;  // "" (a number of things), "bytes" or "seconds"
  std::string_view help;
  // The labels' texts are the observation's.
  void (*sample)(const Observation& seen, Samples& samples);
};

std::span<const MetricRow> MetricTable();

// Prometheus's text format, version 0.0.4.
std::string MetricsText(const Observation& seen);

}  // namespace mooncake::admin
