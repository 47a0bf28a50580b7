// Which views and allocations of one address space may share bytes: declared aliases, and nothing
// else.
//
// Internal to the folder. An address space is (instance_id, worker_id, device).
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// A runtime fragment with what it stands for. Pointers outlive the check.
struct BoundView {
  std::string_view instance_id;
  const RuntimeBindingFragment* runtime = nullptr;
  const PlacementFragment* fragment = nullptr;
  const TensorDescriptor* tensor = nullptr;
};

Status CheckAddressSpaces(std::vector<BoundView> views);

}  // namespace mooncake::manifest
