#include "manifest/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "geometry/box.h"
#include "manifest/extension.h"
#include "manifest/rank_order.h"
#include "manifest/tiling.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

namespace {

using geometry::Interval;

// Coordinates of some axis kinds in (dp, pp, ep, tp) order, 0 for the kinds left out, so that they
// compare like the tuple of the kinds kept.
using Coordinates = std::array<int64_t, 4>;

// A set of axis kinds.
class KindSet {
 public:
  void Add(AxisKind kind) { mask_ |= Bit(kind); }
  bool Contains(AxisKind kind) const { return (mask_ & Bit(kind)) != 0; }
  bool empty() const { return mask_ == 0; }
  friend bool operator<(KindSet a, KindSet b) { return a.mask_ < b.mask_; }

  Coordinates Project(const ParallelRank& rank) const {
    Coordinates result{};
    for (const AxisKind kind : kAxisKinds) {
      if (Contains(kind)) result[static_cast<size_t>(kind)] = rank.Coordinate(kind);
    }
    return result;
  }

 private:
  static uint8_t Bit(AxisKind kind) { return uint8_t{1} << static_cast<uint8_t>(kind); }
  uint8_t mask_ = 0;
};

// Which kinds a tensor declares, by semantics.
struct AxisSignature {
  KindSet owned;
  KindSet replicated;
  KindSet split;
  friend bool operator<(const AxisSignature& a, const AxisSignature& b) {
    return std::tie(a.owned, a.replicated, a.split) < std::tie(b.owned, b.replicated, b.split);
  }

  static AxisSignature Of(const TensorDescriptor& tensor) {
    AxisSignature result;
    for (const ParallelAxis& axis : tensor.parallel_axes) {
      switch (axis.semantics) {
        case AxisSemantics::kOwnership:
          result.owned.Add(axis.kind);
          break;
        case AxisSemantics::kReplicated:
          result.replicated.Add(axis.kind);
          break;
        case AxisSemantics::kSplit:
          result.split.Add(axis.kind);
          break;
      }
    }
    return result;
  }
  bool Declares(AxisKind kind) const {
    return owned.Contains(kind) || replicated.Contains(kind) || split.Contains(kind);
  }
};

int64_t AxisSize(const ParallelTopology& topology, AxisKind kind) {
  switch (kind) {
    case AxisKind::kDp:
      return topology.dp_size;
    case AxisKind::kPp:
      return topology.pp_size;
    case AxisKind::kEp:
      return topology.ep_size;
    case AxisKind::kTp:
      return topology.tp_size;
  }
  return 1;
}

// The participants of a topology as one signature sees them: owner -> replica -> split coordinates.
struct ExpectedReplica {
  std::set<Coordinates> splits;
  bool every_split_rank = true;  // each split kind's coordinates are 0..size-1
};
using ExpectedReplicas = std::map<Coordinates, ExpectedReplica>;
using ExpectedOwners = std::map<Coordinates, ExpectedReplicas>;

bool HasEverySplitRank(const ParallelTopology& topology, KindSet split,
                       const std::set<Coordinates>& splits) {
  for (const AxisKind kind : kAxisKinds) {
    if (!split.Contains(kind)) continue;
    std::set<int64_t> seen;
    for (const Coordinates& coordinates : splits) {
      seen.insert(coordinates[static_cast<size_t>(kind)]);
    }
    // Coordinates are below the size and distinct, so their number decides.
    if (static_cast<int64_t>(seen.size()) != AxisSize(topology, kind)) return false;
  }
  return true;
}

ExpectedOwners ExpectedOf(const ParallelTopology& topology, const AxisSignature& signature) {
  ExpectedOwners owners;
  for (const TopologyParticipant& participant : topology.participants) {
    const ParallelRank& rank = participant.rank;
    owners[signature.owned.Project(rank)][signature.replicated.Project(rank)].splits.insert(
        signature.split.Project(rank));
  }
  for (auto& [owner, replicas] : owners) {
    for (auto& [replica, expected] : replicas) {
      expected.every_split_rank = HasEverySplitRank(topology, signature.split, expected.splits);
    }
  }
  return owners;
}

// The fragments of one tensor, or of one owner or replica of it.
using FragmentList = std::span<const PlacementFragment* const>;

size_t DistinctCoordinates(FragmentList fragments, AxisKind kind) {
  std::vector<int64_t> values;
  values.reserve(fragments.size());
  for (const PlacementFragment* f : fragments) values.push_back(f->rank.Coordinate(kind));
  std::sort(values.begin(), values.end());
  return static_cast<size_t>(std::unique(values.begin(), values.end()) - values.begin());
}

Status CheckUndeclaredAxis(const TensorDescriptor& tensor, const AxisSignature& signature,
                           FragmentList fragments, AxisKind kind) {
  if (kind == AxisKind::kDp || kind == AxisKind::kPp || DistinctCoordinates(fragments, kind) <= 1) {
    return InvalidArgument(
        fmt::format("global placement tensor requires explicit parallel semantics for active "
                    "undeclared {} axis: {}",
                    AxisKindName(kind), tensor.tensor_id));
  }
  KindSet varying;
  for (const AxisKind declared : kAxisKinds) {
    if (signature.Declares(declared) && DistinctCoordinates(fragments, declared) > 1) {
      varying.Add(declared);
    }
  }
  if (varying.empty()) {
    return InvalidArgument(
        fmt::format("global placement tensor varies across undeclared {} axis: {}",
                    AxisKindName(kind), tensor.tensor_id));
  }
  std::map<Coordinates, int64_t> derived;
  for (const PlacementFragment* f : fragments) {
    const int64_t coordinate = f->rank.Coordinate(kind);
    const auto [it, added] = derived.try_emplace(varying.Project(f->rank), coordinate);
    if (added || it->second == coordinate) continue;
    return InvalidArgument(
        fmt::format("global placement tensor varies independently across undeclared {} axis: {}",
                    AxisKindName(kind), tensor.tensor_id));
  }
  return OkStatus();
}

// The observed split coordinates are the full product of what is observed per axis.
Status CheckCartesian(const TensorDescriptor& tensor, KindSet split,
                      const std::set<Coordinates>& observed) {
  size_t product = 1;
  for (const AxisKind kind : kAxisKinds) {
    if (!split.Contains(kind)) continue;
    std::set<int64_t> values;
    for (const Coordinates& coordinates : observed) {
      values.insert(coordinates[static_cast<size_t>(kind)]);
    }
    product *= values.size();  // at most observed.size() squared: two kinds can split
  }
  if (product == observed.size()) return OkStatus();
  return InvalidArgument(
      fmt::format("non-Cartesian split-axis participant mapping cannot prove rank-to-dimension "
                  "ownership: {}",
                  tensor.tensor_id));
}

// Merges touching and overlapping intervals; `intervals` are sorted by begin.
void AppendMerged(std::span<const Interval> intervals, std::vector<Interval>& merged) {
  const size_t first = merged.size();
  for (const Interval& interval : intervals) {
    if (merged.size() > first && interval.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, interval.end);
    } else {
      merged.push_back(interval);
    }
  }
}

// The ranks along a split axis own disjoint parts of its dimension that fill it.
bool RanksTileDimension(const TensorDescriptor& tensor, const ParallelAxis& axis,
                        FragmentList fragments) {
  const auto dim = static_cast<size_t>(axis.dim);
  std::vector<std::pair<int64_t, Interval>> projected;  // (rank, interval)
  projected.reserve(fragments.size());
  for (const PlacementFragment* f : fragments) {
    const int64_t begin = f->global_offset[dim];
    projected.emplace_back(f->rank.Coordinate(axis.kind),
                           Interval{begin, begin + f->local_shape[dim]});
  }
  std::sort(projected.begin(), projected.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.begin) < std::tie(b.first, b.second.begin);
  });
  std::vector<Interval> merged;
  std::vector<Interval> of_rank;
  for (size_t begin = 0, end = 0; begin < projected.size(); begin = end) {
    of_rank.clear();
    for (end = begin; end < projected.size() && projected[end].first == projected[begin].first;
         ++end) {
      of_rank.push_back(projected[end].second);
    }
    AppendMerged(of_rank, merged);
  }
  std::sort(merged.begin(), merged.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t reached = 0;
  for (const Interval& interval : merged) {
    if (interval.begin != reached) return false;
    reached = interval.end;
  }
  return reached == tensor.global_shape[dim];
}

Status CheckSplitAxes(const TensorDescriptor& tensor, const AxisSignature& signature,
                      const ExpectedReplica& expected, FragmentList fragments) {
  if (signature.split.empty()) return OkStatus();
  std::set<Coordinates> observed;
  for (const PlacementFragment* f : fragments) observed.insert(signature.split.Project(f->rank));
  if (!expected.every_split_rank || observed != expected.splits) {
    return InvalidArgument(
        fmt::format("global placement tensor is not fully covered: missing or unexpected "
                    "split-axis participant for {}",
                    tensor.tensor_id));
  }
  MC_RETURN_IF_ERROR(CheckCartesian(tensor, signature.split, observed));
  for (const ParallelAxis& axis : tensor.parallel_axes) {
    if (axis.semantics != AxisSemantics::kSplit) continue;
    if (RanksTileDimension(tensor, axis, fragments)) continue;
    return InvalidArgument(
        fmt::format("split-axis rank geometry conflicts with declared dimension: {}: {} -> dim {}",
                    tensor.tensor_id, AxisKindName(axis.kind), axis.dim));
  }
  return OkStatus();
}

// One owner's one replica holds the tensor exactly once.
Status CheckReplica(const TensorDescriptor& tensor, const AxisSignature& signature,
                    const ExpectedReplica& expected, FragmentList fragments) {
  std::vector<BoxView> boxes;
  boxes.reserve(fragments.size());
  for (const PlacementFragment* f : fragments) boxes.push_back({f->global_offset, f->local_shape});
  MC_ASSIGN_OR_RETURN(const bool tiles, ExactlyTile(tensor.global_shape, boxes));
  if (!tiles) {
    return InvalidArgument("global placement tensor is not fully covered: " + tensor.tensor_id);
  }
  return CheckSplitAxes(tensor, signature, expected, fragments);
}

// End of the run of fragments that agree with the first one on `kinds`.
size_t RunLength(FragmentList fragments, KindSet kinds) {
  const Coordinates first = kinds.Project(fragments[0]->rank);
  size_t length = 1;
  while (length < fragments.size() && kinds.Project(fragments[length]->rank) == first) ++length;
  return length;
}

Status CheckOwner(const TensorDescriptor& tensor, const AxisSignature& signature,
                  const ExpectedReplicas& expected, FragmentList fragments) {
  std::vector<FragmentList> replicas;
  for (FragmentList rest = fragments; !rest.empty(); rest = rest.subspan(replicas.back().size())) {
    replicas.push_back(rest.first(RunLength(rest, signature.replicated)));
  }
  // Every observed replica is some participant's, so equal numbers mean equal sets.
  if (replicas.size() != expected.size()) {
    return InvalidArgument(
        fmt::format("global placement tensor is not fully covered: missing or unexpected "
                    "replicated-axis participant for {}",
                    tensor.tensor_id));
  }
  auto next = expected.begin();
  for (const FragmentList replica : replicas) {
    MC_RETURN_IF_ERROR(CheckReplica(tensor, signature, next->second, replica));
    ++next;
  }
  return OkStatus();
}

class CoverageCheck {
 public:
  explicit CoverageCheck(const ParallelTopology& topology)
      : topology_(topology), participants_(topology) {}

  // Reorders `fragments`.
  Status Run(const TensorDescriptor& tensor, std::span<const PlacementFragment*> fragments) {
    if (tensor.is_owned()) return CheckOwnership(participants_, tensor, fragments);
    if (tensor.extension != nullptr) {
      if (geometry::VolumeOf(tensor.global_shape) == 0) return OkStatus();  // nothing to cover
      const auto empty = std::stable_partition(fragments.begin(), fragments.end(),
                                               [](const auto* f) { return !f->is_empty(); });
      fragments = fragments.first(static_cast<size_t>(empty - fragments.begin()));
      if (fragments.empty()) {
        return InvalidArgument("global placement tensor is not fully covered: " + tensor.tensor_id);
      }
    }
    const AxisSignature signature = AxisSignature::Of(tensor);
    for (const AxisKind kind : kAxisKinds) {
      if (signature.Declares(kind) || AxisSize(topology_, kind) <= 1) continue;
      MC_RETURN_IF_ERROR(CheckUndeclaredAxis(tensor, signature, fragments, kind));
    }
    std::stable_sort(fragments.begin(), fragments.end(), [&](const auto* a, const auto* b) {
      return Group(signature, a->rank) < Group(signature, b->rank);
    });
    const ExpectedOwners& expected = Expected(signature);
    for (FragmentList rest = fragments; !rest.empty();) {
      const FragmentList owned = rest.first(RunLength(rest, signature.owned));
      const auto& replicas = expected.at(signature.owned.Project(owned[0]->rank));
      MC_RETURN_IF_ERROR(CheckOwner(tensor, signature, replicas, owned));
      rest = rest.subspan(owned.size());
    }
    return OkStatus();
  }

 private:
  static std::pair<Coordinates, Coordinates> Group(const AxisSignature& signature,
                                                   const ParallelRank& rank) {
    return {signature.owned.Project(rank), signature.replicated.Project(rank)};
  }

  const ExpectedOwners& Expected(const AxisSignature& signature) {
    const auto it = expected_.find(signature);
    if (it != expected_.end()) return it->second;
    return expected_.emplace(signature, ExpectedOf(topology_, signature)).first->second;
  }

  const ParallelTopology& topology_;
  const ParticipantTable participants_;
  std::map<AxisSignature, ExpectedOwners> expected_;
};

}  // namespace

Status CheckCompleteCoverage(const ParallelTopology& topology,
                             std::span<const TensorDescriptor> tensors, FragmentSpan fragments,
                             std::span<const uint32_t> tensor_of) {
  if (tensors.empty()) return InvalidArgument("global weight placement must contain tensors");
  if (fragments.empty()) return InvalidArgument("global weight placement must contain fragments");
  // Fragments by tensor (a counting sort, so each tensor's keep their order).
  std::vector<size_t> begin(tensors.size() + 1);
  for (const uint32_t tensor : tensor_of) ++begin[tensor + 1];
  for (size_t i = 0; i < tensors.size(); ++i) begin[i + 1] += begin[i];
  std::vector<const PlacementFragment*> by_tensor(fragments.size());
  std::vector<size_t> next(begin.begin(), begin.end() - 1);
  for (size_t i = 0; i < fragments.size(); ++i) by_tensor[next[tensor_of[i]]++] = &fragments[i];

  CoverageCheck check(topology);
  for (size_t i = 0; i < tensors.size(); ++i) {
    MC_RETURN_IF_ERROR(
        check.Run(tensors[i], std::span(by_tensor).subspan(begin[i], begin[i + 1] - begin[i])));
  }
  return OkStatus();
}

}  // namespace mooncake::manifest
