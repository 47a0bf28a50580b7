// The checks of the extended forms (docs/extended_forms.md): what a tensor says beyond the base
// contract, alone, against its fragments, and against the other tensors of a placement.
//
// Internal to the folder. Pure; every violation is INVALID_ARGUMENT with the page's text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "manifest/fragment_rules.h"
#include "manifest/types.h"

namespace mooncake::manifest {

inline constexpr int64_t kExtendedForm = 1;  // the version written into documents

// Checks `tensor.extension`, which is set, and brings it to canonical order. The tensor's other
// fields have been checked.
Status NormalizeExtension(TensorDescriptor& tensor);

// Sections are not mixed, and blocks that cannot be shared are not cut, by a fragment that lies in
// its tensor.
Status CheckFragmentCuts(const TensorDescriptor& tensor, std::string_view fragment_id,
                         std::span<const int64_t> offset, std::span<const int64_t> shape);

// Participants by their ranks, made once for all tensors. Keeps views of the topology.
class ParticipantTable {
 public:
  explicit ParticipantTable(const ParallelTopology& topology);

  // Every fragment's rank belongs to a participant.
  std::string_view IdOf(const ParallelRank& rank) const;
  bool Contains(std::string_view participant_id) const;

 private:
  const ParallelTopology& topology_;
  std::vector<std::pair<std::array<int64_t, 4>, std::string_view>> by_rank_;  // sorted
};

// The fragments of an owned tensor are exactly what it declares.
Status CheckOwnership(const ParticipantTable& participants, const TensorDescriptor& tensor,
                      std::span<const PlacementFragment* const> fragments);

// Every rank that holds elements of a tensor with block scales holds their scales. `tensors` as
// `positions` was made from them.
Status CheckBlockScales(const TensorPositions& positions, std::span<const TensorDescriptor> tensors,
                        FragmentSpan fragments, std::span<const uint32_t> tensor_of);

// The shape of the scale tensor that the tensor's block scales call for.
Extents ScaleShape(const TensorDescriptor& tensor);

// Sorted and distinct; none of them in `tensors` (sorted by id).
Status NormalizeOmitted(std::span<const TensorDescriptor> tensors,
                        std::vector<std::string>& omitted);

}  // namespace mooncake::manifest
