// The coverage rules of a complete placement: every declared owner and every replica holds each
// tensor exactly once, split axes cut the dimension they declare, and no active axis is undeclared.
//
// Internal to the folder. Cost is about N log N in the fragments, whatever the number of
// participants: what the topology expects is worked out once per combination of axis semantics.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "manifest/types.h"

namespace mooncake::manifest {

// `tensors` are sorted by tensor_id; `tensor_of[i]` is the position of fragment i's tensor. Every
// fragment's rank belongs to a participant.
Status CheckCompleteCoverage(const ParallelTopology& topology,
                             std::span<const TensorDescriptor> tensors, FragmentSpan fragments,
                             std::span<const uint32_t> tensor_of);

}  // namespace mooncake::manifest
