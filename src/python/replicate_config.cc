#include "python/replicate_config.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

namespace mooncake::python {

namespace nb = nanobind;

namespace {

constexpr uint64_t kReplicasMax = 64;

std::string Text(const ReplicateConfig& config) {
  std::string text =
      "ReplicateConfig: { replica_num: " + std::to_string(config.replica_num) +
      ", nof_replica_num: " + std::to_string(config.nof_replica_num) +
      ", dfs_replica_num: " + std::to_string(config.dfs_replica_num) +
      ", soft_pin_action: " + v1::SoftPin_Name(config.soft_pin_action) + ", soft_pin_ttl_ms: " +
      (config.soft_pin_ttl_ms ? std::to_string(*config.soft_pin_ttl_ms) : "default") +
      ", with_hard_pin: " + (config.with_hard_pin ? "true" : "false") + ", preferred_segments: [";
  for (const std::string& name : config.preferred_segments) text += " " + name;
  text += " ], preferred_segment: " + config.preferred_segment +
          ", prefer_alloc_in_same_node: " + (config.prefer_alloc_in_same_node ? "true" : "false") +
          ", data_type: " + v1::ObjectDataType_Name(config.data_type) + ", group_ids: ";
  if (!config.group_ids) return text + "none }";
  for (const std::string& group : *config.group_ids) text += "\"" + group + "\" ";
  return text + "}";
}

}  // namespace

client::PutOptions OptionsOf(const ReplicateConfig& config, bool upsert) {
  client::PutOptions options;
  options.upsert = upsert;
  options.no_eviction = true;  // full is said at once; the Master makes room meanwhile
  options.relaxed = true;
  v1::ObjectConfig& to = options.config;
  // As many as there are nodes, and the Master takes no larger number.
  to.set_replica_num(static_cast<uint32_t>(std::min<uint64_t>(config.replica_num, kReplicasMax)));
  if (!config.preferred_segment.empty()) {
    to.add_preferred_node_ids(config.preferred_segment);
  } else {
    for (const std::string& name : config.preferred_segments) to.add_preferred_node_ids(name);
  }
  to.set_hard_pin(config.with_hard_pin);
  to.set_soft_pin(config.soft_pin_action);
  if (config.soft_pin_ttl_ms) to.set_soft_pin_ttl_ms(*config.soft_pin_ttl_ms);
  to.set_data_type(config.data_type);
  to.set_same_node(config.prefer_alloc_in_same_node);
  return options;
}

void BindReplicateConfig(nb::module_& m) {
  nb::enum_<v1::SoftPin>(m, "SoftPinAction", nb::is_arithmetic())
      .value("PRESERVE", v1::SOFT_PIN_PRESERVE)
      .value("ENABLE", v1::SOFT_PIN_ENABLE)
      .value("DISABLE", v1::SOFT_PIN_DISABLE);
  nb::enum_<v1::ObjectDataType>(m, "ObjectDataType", nb::is_arithmetic())
      .value("UNKNOWN", v1::OBJECT_DATA_TYPE_UNKNOWN)
      .value("KVCACHE", v1::OBJECT_DATA_TYPE_KVCACHE)
      .value("TENSOR", v1::OBJECT_DATA_TYPE_TENSOR)
      .value("WEIGHT", v1::OBJECT_DATA_TYPE_WEIGHT)
      .value("SAMPLE", v1::OBJECT_DATA_TYPE_SAMPLE)
      .value("ACTIVATION", v1::OBJECT_DATA_TYPE_ACTIVATION)
      .value("GRADIENT", v1::OBJECT_DATA_TYPE_GRADIENT)
      .value("OPTIMIZER_STATE", v1::OBJECT_DATA_TYPE_OPTIMIZER_STATE)
      .value("METADATA", v1::OBJECT_DATA_TYPE_METADATA)
      .value("GENERAL", v1::OBJECT_DATA_TYPE_GENERAL);
  nb::class_<ReplicateConfig>(m, "ReplicateConfig",
                              "How the copies of an object are placed and kept.")
      .def(nb::init<>())
      .def_rw("replica_num", &ReplicateConfig::replica_num)
      .def_rw("nof_replica_num", &ReplicateConfig::nof_replica_num)
      .def_rw("dfs_replica_num", &ReplicateConfig::dfs_replica_num)
      .def_rw("soft_pin_action", &ReplicateConfig::soft_pin_action)
      .def_rw("soft_pin_ttl_ms", &ReplicateConfig::soft_pin_ttl_ms, nb::arg().none())
      .def_rw("with_hard_pin", &ReplicateConfig::with_hard_pin)
      .def_rw("preferred_segments", &ReplicateConfig::preferred_segments)
      .def_rw("preferred_segment", &ReplicateConfig::preferred_segment)
      .def_rw("preferred_nof_segments", &ReplicateConfig::preferred_nof_segments)
      .def_rw("prefer_alloc_in_same_node", &ReplicateConfig::prefer_alloc_in_same_node)
      .def_rw("data_type", &ReplicateConfig::data_type)
      .def_rw("group_ids", &ReplicateConfig::group_ids, nb::arg().none())
      .def("__str__", &Text)
      .def("__repr__", &Text)
      .def("__copy__", [](const ReplicateConfig& config) { return config; });
}

}  // namespace mooncake::python
