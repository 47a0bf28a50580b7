// Small contract values for the tests of this folder.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "manifest/canonical.h"
#include "manifest/validate.h"

namespace mooncake::manifest {

inline Status StatusOf(const Status& status) { return status; }
template <class T>
Status StatusOf(const Result<T>& result) {
  return result.status();
}

MATCHER_P(Refused, text,
          "is INVALID_ARGUMENT with a message containing \"" + std::string(text) + '"') {
  const Status status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.code() == Code::kInvalidArgument &&
         status.message().find(text) != std::string::npos;
}
MATCHER(Accepted, "is OK") {
  const Status status = StatusOf(arg);
  *result_listener << status.ToString();
  return status.ok();
}

inline ParallelAxis Split(AxisKind kind, int64_t dim) { return {kind, AxisSemantics::kSplit, dim}; }
inline ParallelAxis Replicated(AxisKind kind) { return {kind, AxisSemantics::kReplicated, 0}; }
inline ParallelAxis Owned(AxisKind kind) { return {kind, AxisSemantics::kOwnership, 0}; }

inline TensorDescriptor Tensor(std::string id, Extents shape, std::vector<ParallelAxis> axes = {}) {
  TensorDescriptor tensor;
  tensor.tensor_id = std::move(id);
  tensor.global_shape = std::move(shape);
  tensor.dtype = "bfloat16";
  tensor.itemsize = 2;
  tensor.layout_fingerprint = "v1";
  tensor.layer_id = 0;
  for (const ParallelAxis& axis : axes) {
    if (axis.semantics == AxisSemantics::kSplit) tensor.shard_dims.push_back(axis.dim);
  }
  std::sort(tensor.shard_dims.begin(), tensor.shard_dims.end());
  tensor.parallel_axes = std::move(axes);
  return tensor;
}

// Participants "p0", "p1", ... with these ranks; sizes are the smallest that hold them.
inline ParallelTopology Topology(const std::vector<ParallelRank>& ranks) {
  ParallelTopology topology;
  for (size_t i = 0; i < ranks.size(); ++i) {
    topology.participants.push_back({"p" + std::to_string(i), ranks[i]});
    topology.dp_size = std::max(topology.dp_size, ranks[i].dp + 1);
    topology.tp_size = std::max(topology.tp_size, ranks[i].tp + 1);
    topology.pp_size = std::max(topology.pp_size, ranks[i].pp + 1);
    topology.ep_size = std::max(topology.ep_size, ranks[i].ep + 1);
  }
  return MakeTopology(std::move(topology)).value();
}

// Two bytes an element. The id is derived.
inline PlacementFragment Fragment(std::string tensor_id, Extents offset, Extents shape,
                                  ParallelRank rank = {}, std::vector<std::string> aliases = {}) {
  PlacementFragment fragment;
  fragment.tensor_id = std::move(tensor_id);
  fragment.global_offset = std::move(offset);
  fragment.local_shape = std::move(shape);
  fragment.nbytes = 2;
  for (const int64_t extent : fragment.local_shape) {
    fragment.nbytes *= static_cast<uint64_t>(extent);
  }
  fragment.rank = rank;
  fragment.aliases = std::move(aliases);
  return MakePlacementFragment(std::move(fragment)).value();
}

inline FragmentInventory Inventory(ParallelTopology topology, std::vector<TensorDescriptor> tensors,
                                   std::vector<PlacementFragment> fragments) {
  return {.resource_id = "m",
          .revision = "r",
          .weight_generation = 1,
          .placement_set_id = "s",
          .topology = std::move(topology),
          .tensors = std::move(tensors),
          .fragments = std::move(fragments),
          .placement_id = std::nullopt};
}

// "w" of shape (4, 2), rows split over two tensor-parallel ranks.
inline FragmentInventory MiniInventory() {
  return Inventory(
      Topology({{.tp = 0}, {.tp = 1}}), {Tensor("w", {4, 2}, {Split(AxisKind::kTp, 0)})},
      {Fragment("w", {0, 0}, {2, 2}, {.tp = 0}), Fragment("w", {2, 0}, {2, 2}, {.tp = 1})});
}

// The part of participant "p<index>" of MiniInventory().
inline PlacementPart MiniPart(int index) {
  const FragmentInventory inventory = MiniInventory();
  PlacementPart part;
  part.resource_id = inventory.resource_id;
  part.revision = inventory.revision;
  part.weight_generation = inventory.weight_generation;
  part.placement_set_id = inventory.placement_set_id;
  part.topology_id = inventory.topology.topology_id;
  part.participant_id = inventory.topology.participants[index].participant_id;
  part.rank = inventory.topology.participants[index].rank;
  part.tensors = SharedTensors(inventory.tensors);
  part.fragments = {inventory.fragments[index]};
  return part;
}

inline PlacementFields MiniFields() {
  const FragmentInventory inventory = MiniInventory();
  return {.resource_id = inventory.resource_id,
          .revision = inventory.revision,
          .weight_generation = inventory.weight_generation,
          .placement_set_id = inventory.placement_set_id,
          .topology = inventory.topology,
          .parts = {MiniPart(0), MiniPart(1)},
          .placement_id = std::nullopt};
}

// "w" of shape (4, 2) in one payload object of two fragments.
inline StoredManifest MiniStored() {
  StoredManifest manifest;
  manifest.namespace_name = "d";
  manifest.resource_id = "m";
  manifest.revision = "r";
  manifest.weight_generation = 1;
  manifest.group_id = "weights/d/m/r/1";
  manifest.manifest_key = "weights/d/m/r/1/manifest";
  manifest.created_at = "2026-01-01T00:00:00Z";
  manifest.tensors = {Tensor("w", {4, 2}, {Split(AxisKind::kTp, 0)})};
  for (int i = 0; i < 2; ++i) {
    StoredFragment fragment;
    fragment.fragment_id = "f" + std::to_string(i);
    fragment.tensor_id = "w";
    fragment.global_offset = {2 * i, 0};
    fragment.local_shape = {2, 2};
    fragment.object_key = "weights/d/m/r/1/payload/0";
    fragment.object_offset = 8 * static_cast<uint64_t>(i);
    fragment.nbytes = 8;
    manifest.fragments.push_back(fragment);
  }
  return manifest;
}

// A contiguous view of `fragment` at the beginning of an allocation of its own size.
inline RuntimeBindingFragment View(const PlacementFragment& fragment, uint64_t address) {
  RuntimeBindingFragment view;
  view.placement_fragment_id = fragment.placement_fragment_id;
  view.fragment_id = "runtime-" + fragment.placement_fragment_id;
  view.address = address;
  view.nbytes = fragment.nbytes;
  view.worker_id = "worker";
  view.endpoint = "host:1";
  view.device = "cuda:0";
  view.itemsize = 2;
  view.local_shape = fragment.local_shape;
  view.strides_bytes = CanonicalStridesBytes(fragment.local_shape, 2).value();
  view.storage_address = address;
  view.storage_nbytes = fragment.nbytes;
  return view;
}

// Binds a participant's fragments one after another from `address` on, `gap` bytes apart.
inline RuntimeBinding Bind(const Placement& placement, size_t part_index, uint64_t address,
                           uint64_t gap = 0) {
  const PlacementPart& part = placement.parts[part_index];
  RuntimeBinding binding;
  binding.resource_id = placement.resource_id;
  binding.placement_id = placement.placement_id;
  binding.placement_digest = placement.digest;
  binding.instance_id = "instance";
  binding.lease_id = "lease";
  binding.revision = placement.revision;
  binding.participant_id = part.participant_id;
  for (const PlacementFragment& fragment : part.fragments) {
    binding.fragments.push_back(View(fragment, address));
    address += fragment.nbytes + gap;
  }
  return binding;
}

}  // namespace mooncake::manifest
