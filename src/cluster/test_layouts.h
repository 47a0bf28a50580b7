// Layouts of a small transformer-like model, for tests that publish one and load another.
//
// Tests and the simulation only. Content is reshard/element_oracle.h's: every element holds its own
// global index, so what a buffer must hold follows from its box alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "manifest/types.h"
#include "manifest/validate.h"
#include "model/identity.h"
#include "reshard/element_oracle.h"

namespace mooncake::cluster {

struct TestTensor {
  std::string id;
  manifest::Extents shape;
  int64_t itemsize = 2;
  int64_t dim = -1;  // split over tp; -1: every rank has all of it
  int64_t layer = 0;
};

struct TestLayout {
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t dp = 1;
  // Where tp's parts end, per mille of the extent; empty: as even as can be.
  std::vector<int64_t> cuts;
  // Tensors whose split dimension is another one than the tensor's own.
  std::map<std::string, int64_t> dims;
  // Pairs of tensors that are one in memory.
  std::vector<std::vector<std::string>> ties;
};

// Small ones that are packed (under 256 KiB a fragment) and large ones that are objects of their
// own.
inline std::vector<TestTensor> TestModel() {
  return {{"embed", {1000, 64}, 2, 0, 0},        {"l0.norm", {64}, 4, -1, 0},
          {"l0.up", {700, 600}, 2, 0, 0},        {"l0.down", {600, 700}, 2, 1, 0},
          {"l1.norm", {64}, 4, -1, 1},           {"l1.up", {700, 600}, 2, 0, 1},
          {"l1.conv", {30, 20, 3, 40}, 1, 1, 1}, {"l1.scale", {12, 5}, 8, 0, 1}};
}

inline std::string RankName(int64_t dp, int64_t pp, int64_t tp) {
  return "d" + std::to_string(dp) + "p" + std::to_string(pp) + "t" + std::to_string(tp);
}

inline std::pair<int64_t, int64_t> TpRange(const TestLayout& layout, int64_t extent, int64_t tp) {
  const auto end = [&](int64_t rank) -> int64_t {
    if (rank < 0) return 0;
    if (rank == layout.tp - 1) return extent;
    if (!layout.cuts.empty()) return std::max<int64_t>(1, extent * layout.cuts[rank] / 1000);
    return extent * (rank + 1) / layout.tp;
  };
  return {end(tp - 1), end(tp)};
}

inline manifest::PlacementPtr MakeLayout(const model::WeightIdentity& identity,
                                         const TestLayout& layout,
                                         const std::vector<TestTensor>& tensors = TestModel()) {
  using manifest::AxisKind;
  using manifest::AxisSemantics;
  manifest::FragmentInventory inventory;
  inventory.resource_id = identity.resource_id;
  inventory.revision = identity.revision;
  inventory.weight_generation = identity.weight_generation.value;
  inventory.placement_set_id = "test";
  inventory.topology.tp_size = layout.tp;
  inventory.topology.pp_size = layout.pp;
  inventory.topology.dp_size = layout.dp;
  for (int64_t dp = 0; dp < layout.dp; ++dp) {
    for (int64_t pp = 0; pp < layout.pp; ++pp) {
      for (int64_t tp = 0; tp < layout.tp; ++tp) {
        inventory.topology.participants.push_back(
            {RankName(dp, pp, tp), {.dp = dp, .tp = tp, .pp = pp, .ep = 0}});
      }
    }
  }
  inventory.topology = *manifest::MakeTopology(inventory.topology);
  for (const TestTensor& tensor : tensors) {
    const auto other = layout.dims.find(tensor.id);
    const int64_t dim = other == layout.dims.end() ? tensor.dim : other->second;
    manifest::TensorDescriptor descriptor;
    descriptor.tensor_id = tensor.id;
    descriptor.global_shape = tensor.shape;
    descriptor.dtype = "test" + std::to_string(tensor.itemsize);
    descriptor.itemsize = tensor.itemsize;
    descriptor.layout_fingerprint = "row-major";
    descriptor.layer_id = tensor.layer;
    const bool split = dim >= 0 && layout.tp > 1;
    if (split) descriptor.shard_dims = {dim};
    const auto axis = [&](AxisKind kind, AxisSemantics semantics, int64_t split_dim = 0) {
      descriptor.parallel_axes.push_back({kind, semantics, split_dim});
    };
    if (layout.dp > 1) axis(AxisKind::kDp, AxisSemantics::kReplicated);
    if (layout.pp > 1) axis(AxisKind::kPp, AxisSemantics::kOwnership);
    if (split) axis(AxisKind::kTp, AxisSemantics::kSplit, dim);
    if (!split && layout.tp > 1) axis(AxisKind::kTp, AxisSemantics::kReplicated);
    inventory.tensors.push_back(descriptor);
    for (const manifest::TopologyParticipant& participant : inventory.topology.participants) {
      if (participant.rank.pp != tensor.layer % layout.pp) continue;
      manifest::PlacementFragment fragment;
      fragment.tensor_id = tensor.id;
      fragment.global_offset.assign(tensor.shape.size(), 0);
      fragment.local_shape = tensor.shape;
      if (split) {
        const auto [begin, end] = TpRange(layout, tensor.shape[dim], participant.rank.tp);
        fragment.global_offset[dim] = begin;
        fragment.local_shape[dim] = end - begin;
      }
      fragment.nbytes = static_cast<uint64_t>(tensor.itemsize);
      for (const int64_t extent : fragment.local_shape) {
        fragment.nbytes *= static_cast<uint64_t>(extent);
      }
      fragment.rank = participant.rank;
      for (const std::vector<std::string>& tie : layout.ties) {
        if (std::find(tie.begin(), tie.end(), tensor.id) != tie.end()) fragment.aliases = tie;
      }
      auto made = manifest::MakePlacementFragment(std::move(fragment));
      MC_CHECK(made.ok());
      inventory.fragments.push_back(*std::move(made));
    }
  }
  auto placement = manifest::PlacementFromFragments(std::move(inventory));
  MC_CHECK(placement.ok());
  return *std::move(placement);
}

inline model::WeightIdentity TestIdentity(uint64_t generation = 1) {
  return {.tenant_id = "default",
          .name_space = "ns",
          .resource_id = "model",
          .revision = "main",
          .weight_generation = model::WeightGeneration(generation)};
}

}  // namespace mooncake::cluster
