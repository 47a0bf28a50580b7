// Order and hash of parallel ranks: (dp, pp, ep, tp), the order the contract sorts coordinates in.
//
// Internal to the folder.
#pragma once

#include <tuple>

#include "manifest/types.h"

namespace mooncake::manifest {

inline constexpr AxisKind kAxisKinds[] = {AxisKind::kDp, AxisKind::kPp, AxisKind::kEp,
                                          AxisKind::kTp};

inline bool RankLess(const ParallelRank& a, const ParallelRank& b) {
  return std::tie(a.dp, a.pp, a.ep, a.tp) < std::tie(b.dp, b.pp, b.ep, b.tp);
}

}  // namespace mooncake::manifest
