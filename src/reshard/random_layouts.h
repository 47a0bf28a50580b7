// Random complete placements over full (dp, pp, ep, tp) grids: every axis semantics, uneven and
// interleaved shards, fragments cut further along dimensions that no axis splits.
//
// Tests only. Within one dp rank, all replicas of a tensor are cut alike (others cannot be
// planned).
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "geometry/box.h"
#include "manifest/validate.h"

namespace mooncake::reshard {

using Random = std::mt19937_64;

inline int64_t Below(Random& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}
inline bool Chance(Random& random, int percent) { return Below(random, 100) < percent; }

// What both sides of a transfer must agree on.
inline std::vector<manifest::TensorDescriptor> RandomTensors(Random& random) {
  std::vector<manifest::TensorDescriptor> tensors;
  const int64_t count = 1 + Below(random, 4);
  for (int64_t t = 0; t < count; ++t) {
    manifest::TensorDescriptor tensor;
    tensor.tensor_id = "layers." + std::to_string(t);
    const int64_t rank = 1 + Below(random, 5);
    for (int64_t d = 0; d < rank; ++d) {
      tensor.global_shape.push_back(1 + Below(random, rank <= 2 ? 12 : rank <= 4 ? 5 : 3));
    }
    tensor.itemsize = int64_t{1} << Below(random, 3);
    tensor.dtype = "int" + std::to_string(8 * tensor.itemsize);
    tensor.layout_fingerprint = "row-major";
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Divides [0, extent) among `ranks` ranks: intervals per rank, uneven, sometimes interleaved.
inline std::vector<std::vector<geometry::Interval>> RandomShares(Random& random, int64_t extent,
                                                                 int64_t ranks) {
  const int64_t pieces = ranks + (Chance(random, 30) ? Below(random, extent - ranks + 1) : 0);
  std::vector<int64_t> cuts(static_cast<size_t>(extent - 1));
  std::iota(cuts.begin(), cuts.end(), 1);
  std::shuffle(cuts.begin(), cuts.end(), random);
  cuts.resize(static_cast<size_t>(pieces - 1));
  cuts.push_back(0);
  cuts.push_back(extent);
  std::sort(cuts.begin(), cuts.end());
  std::vector<int64_t> owner(static_cast<size_t>(pieces));
  for (int64_t p = 0; p < pieces; ++p) {
    owner[static_cast<size_t>(p)] = p < ranks ? p : Below(random, ranks);
  }
  if (Chance(random, 30)) std::shuffle(owner.begin(), owner.end(), random);
  std::vector<std::vector<geometry::Interval>> shares(static_cast<size_t>(ranks));
  for (size_t p = 0; p < owner.size(); ++p) {
    shares[static_cast<size_t>(owner[p])].push_back({cuts[p], cuts[p + 1]});
  }
  return shares;
}

class RandomPlacement {
 public:
  RandomPlacement(Random& random, std::vector<manifest::TensorDescriptor> tensors)
      : random_(random) {
    MakeTopology();
    inventory_.resource_id = "m";
    inventory_.revision = "r";
    inventory_.weight_generation = 1;
    inventory_.placement_set_id = "s";
    for (manifest::TensorDescriptor& tensor : tensors) {
      DeclareAxes(&tensor);
      Place(tensor);
      inventory_.tensors.push_back(std::move(tensor));
    }
    std::shuffle(inventory_.fragments.begin(), inventory_.fragments.end(), random_);
  }

  const manifest::FragmentInventory& inventory() const { return inventory_; }
  manifest::PlacementPtr Make() const {
    return manifest::PlacementFromFragments(inventory_).value();
  }

 private:
  using AxisKind = manifest::AxisKind;
  using AxisSemantics = manifest::AxisSemantics;
  static constexpr AxisKind kKinds[] = {AxisKind::kDp, AxisKind::kPp, AxisKind::kEp, AxisKind::kTp};

  void MakeTopology() {
    manifest::ParallelTopology topology;
    topology.dp_size = 1 + Below(random_, 3);
    topology.pp_size = 1 + Below(random_, 2);
    topology.ep_size = 1 + Below(random_, 3);
    topology.tp_size = 1 + Below(random_, 3);
    sizes_ = {topology.dp_size, topology.pp_size, topology.ep_size, topology.tp_size};
    std::vector<manifest::ParallelRank> ranks;
    ForEachRank({true, true, true, true},
                [&](const manifest::ParallelRank& rank) { ranks.push_back(rank); });
    std::shuffle(ranks.begin(), ranks.end(), random_);
    for (size_t i = 0; i < ranks.size(); ++i) {
      topology.participants.push_back({"p" + std::to_string(i), ranks[i]});
    }
    inventory_.topology = manifest::MakeTopology(std::move(topology)).value();
  }

  // All ranks whose coordinates run where `runs` says so and are 0 elsewhere.
  template <class Visit>
  void ForEachRank(const std::array<bool, 4>& runs, Visit visit) const {
    const auto end = [&](size_t k) { return runs[k] ? sizes_[k] : int64_t{1}; };
    for (int64_t dp = 0; dp < end(0); ++dp) {
      for (int64_t pp = 0; pp < end(1); ++pp) {
        for (int64_t ep = 0; ep < end(2); ++ep) {
          for (int64_t tp = 0; tp < end(3); ++tp) {
            visit(manifest::ParallelRank{.dp = dp, .tp = tp, .pp = pp, .ep = ep});
          }
        }
      }
    }
  }

  void DeclareAxes(manifest::TensorDescriptor* tensor) {
    const auto declare = [&](AxisKind kind, AxisSemantics semantics, int64_t dim = 0) {
      if (sizes_[static_cast<size_t>(kind)] == 1 && Chance(random_, 50)) return;
      tensor->parallel_axes.push_back({kind, semantics, dim});
      if (semantics == AxisSemantics::kSplit) tensor->shard_dims.push_back(dim);
    };
    declare(AxisKind::kDp,
            Chance(random_, 15) ? AxisSemantics::kOwnership : AxisSemantics::kReplicated);
    declare(AxisKind::kPp,
            Chance(random_, 70) ? AxisSemantics::kOwnership : AxisSemantics::kReplicated);
    const bool ep_splits = tensor->global_shape[0] >= sizes_[2] && Chance(random_, 40);
    declare(AxisKind::kEp, ep_splits             ? AxisSemantics::kSplit
                           : Chance(random_, 50) ? AxisSemantics::kOwnership
                                                 : AxisSemantics::kReplicated);
    const int64_t dim = Below(random_, static_cast<int64_t>(tensor->global_shape.size()));
    const bool tp_splits = tensor->global_shape[static_cast<size_t>(dim)] >= sizes_[3] &&
                           !(ep_splits && dim == 0) && Chance(random_, 70);
    declare(AxisKind::kTp, tp_splits ? AxisSemantics::kSplit : AxisSemantics::kReplicated,
            tp_splits ? dim : 0);
    std::sort(tensor->shard_dims.begin(), tensor->shard_dims.end());
  }

  void Place(const manifest::TensorDescriptor& tensor) {
    std::array<AxisSemantics, 4> semantics;
    semantics.fill(AxisSemantics::kReplicated);
    std::array<int64_t, 4> split_dim{};
    for (const manifest::ParallelAxis& axis : tensor.parallel_axes) {
      semantics[static_cast<size_t>(axis.kind)] = axis.semantics;
      split_dim[static_cast<size_t>(axis.kind)] = axis.dim;
    }
    std::array<bool, 4> owns{}, replicates{}, splits{};
    for (size_t k = 0; k < 4; ++k) {
      owns[k] = semantics[k] == AxisSemantics::kOwnership;
      replicates[k] = semantics[k] == AxisSemantics::kReplicated;
      splits[k] = semantics[k] == AxisSemantics::kSplit;
    }
    for (const manifest::ParallelRank& owner : Owners(owns)) {
      // One cutting for each dp rank of this owner.
      std::vector<Cutting> cuttings;
      for (int64_t dp = 0; dp < sizes_[0]; ++dp) {
        cuttings.push_back(
            dp > 0 && Chance(random_, 70) ? cuttings[0] : RandomCutting(tensor, splits, split_dim));
      }
      ForEachRank(replicates, [&](const manifest::ParallelRank& replica) {
        ForEachRank(splits, [&](const manifest::ParallelRank& split) {
          const manifest::ParallelRank rank{.dp = owner.dp + replica.dp + split.dp,
                                            .tp = owner.tp + replica.tp + split.tp,
                                            .pp = owner.pp + replica.pp + split.pp,
                                            .ep = owner.ep + replica.ep + split.ep};
          AddFragments(tensor, rank, splits, split_dim, cuttings[static_cast<size_t>(rank.dp)]);
        });
      });
    }
  }

  // One owner, or two where dp does not own.
  std::vector<manifest::ParallelRank> Owners(const std::array<bool, 4>& owns) {
    std::vector<manifest::ParallelRank> owners;
    ForEachRank(owns, [&](const manifest::ParallelRank& rank) { owners.push_back(rank); });
    std::shuffle(owners.begin(), owners.end(), random_);
    owners.resize(std::min<size_t>(owners.size(), owns[0] || Chance(random_, 70) ? 1 : 2));
    return owners;
  }

  struct Cutting {
    std::array<std::vector<std::vector<geometry::Interval>>, 4> shares;  // per split kind
    std::vector<std::vector<geometry::Interval>> segments;  // per dimension that no axis splits
  };

  Cutting RandomCutting(const manifest::TensorDescriptor& tensor, const std::array<bool, 4>& splits,
                        const std::array<int64_t, 4>& split_dim) {
    Cutting cutting;
    for (size_t k = 0; k < 4; ++k) {
      if (!splits[k]) continue;
      cutting.shares[k] =
          RandomShares(random_, tensor.global_shape[static_cast<size_t>(split_dim[k])], sizes_[k]);
    }
    for (int64_t extent : tensor.global_shape) {
      std::vector<geometry::Interval>& segments = cutting.segments.emplace_back();
      if (extent > 1 && Chance(random_, 20)) {
        const int64_t at = 1 + Below(random_, extent - 1);
        segments = {{0, at}, {at, extent}};
      } else {
        segments = {{0, extent}};
      }
    }
    return cutting;
  }

  void AddFragments(const manifest::TensorDescriptor& tensor, const manifest::ParallelRank& rank,
                    const std::array<bool, 4>& splits, const std::array<int64_t, 4>& split_dim,
                    const Cutting& cutting) {
    std::vector<std::vector<geometry::Interval>> intervals = cutting.segments;
    for (size_t k = 0; k < 4; ++k) {
      if (!splits[k]) continue;
      const auto coordinate = static_cast<size_t>(rank.Coordinate(kKinds[k]));
      intervals[static_cast<size_t>(split_dim[k])] = cutting.shares[k][coordinate];
    }
    std::vector<size_t> at(intervals.size(), 0);
    while (true) {
      manifest::PlacementFragment fragment;
      fragment.tensor_id = tensor.tensor_id;
      fragment.nbytes = static_cast<uint64_t>(tensor.itemsize);
      for (size_t d = 0; d < at.size(); ++d) {
        fragment.global_offset.push_back(intervals[d][at[d]].begin);
        fragment.local_shape.push_back(intervals[d][at[d]].length());
        fragment.nbytes *= static_cast<uint64_t>(intervals[d][at[d]].length());
      }
      fragment.rank = rank;
      if (sizes_[1] > 1) fragment.pipeline_stage_id = rank.pp;
      inventory_.fragments.push_back(manifest::MakePlacementFragment(std::move(fragment)).value());
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == intervals[d - 1].size()) at[--d] = 0;
      if (d == 0) return;
    }
  }

  Random& random_;
  std::array<int64_t, 4> sizes_{};  // dp, pp, ep, tp
  manifest::FragmentInventory inventory_;
};

}  // namespace mooncake::reshard
