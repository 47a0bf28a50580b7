// ReplicateConfig of the ordinary Store's face, and its enums: a class of the module, whose
// attributes are typed and all that there are.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/object_client.h"

namespace mooncake::python {

// The attributes are the face's own.
struct ReplicateConfig {
  uint64_t replica_num = 1;
  uint64_t nof_replica_num = 0;
  uint64_t dfs_replica_num = 0;
  v1::SoftPin soft_pin_action = v1::SOFT_PIN_PRESERVE;
  std::optional<uint64_t> soft_pin_ttl_ms;
  bool with_hard_pin = false;
  std::vector<std::string> preferred_segments;
  std::string preferred_segment;
  std::vector<std::string> preferred_nof_segments;
  bool prefer_alloc_in_same_node = false;
  v1::ObjectDataType data_type = v1::OBJECT_DATA_TYPE_UNKNOWN;
  std::optional<std::vector<std::string>> group_ids;
};

// How a put of the face goes: at once or not at all, acknowledged before it is on disk.
client::PutOptions OptionsOf(const ReplicateConfig& config, bool upsert);

void BindReplicateConfig(nanobind::module_& m);

}  // namespace mooncake::python
