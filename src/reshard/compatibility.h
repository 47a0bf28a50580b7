// What source and target of a plan must agree on. Internal to the folder; messages are the
// contract's.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::reshard {

// Resource, revision and generation.
Status CheckSameRevision(const std::string& resource_id, const std::string& revision,
                         uint64_t weight_generation, const manifest::Placement& target);

// What must agree for bytes to be interchangeable; how the two sides are cut may differ.
Status CheckCompatible(const manifest::TensorDescriptor& source,
                       const manifest::TensorDescriptor& target);

}  // namespace mooncake::reshard
