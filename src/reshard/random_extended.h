// Random placements in the extended form: tensors whose boxes list their owners, beside base ones.
//
// Tests only. Tilings are made by cutting boxes in two; owners are any participants, so that whole
// ranks may hold nothing.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manifest/validate.h"
#include "reshard/random_layouts.h"

namespace mooncake::reshard {

// Boxes that fill `shape`, by random cuts.
inline std::vector<std::pair<manifest::Extents, manifest::Extents>> RandomTiling(
    Random& random, const manifest::Extents& shape) {
  std::vector<std::pair<manifest::Extents, manifest::Extents>> boxes{
      {manifest::Extents(shape.size(), 0), shape}};
  for (int64_t cuts = Below(random, 6); cuts > 0 && !shape.empty(); --cuts) {
    auto& [offset, extents] = boxes[static_cast<size_t>(Below(random, std::ssize(boxes)))];
    const auto dim = static_cast<size_t>(Below(random, std::ssize(shape)));
    if (extents[dim] < 2) continue;
    const int64_t at = 1 + Below(random, extents[dim] - 1);
    auto upper = std::pair(offset, extents);
    upper.first[dim] += at;
    upper.second[dim] -= at;
    extents[dim] = at;
    boxes.push_back(std::move(upper));
  }
  return boxes;
}

// Replaces the tensor's axes and fragments by one to three tilings with random owners.
inline void MakeOwned(Random& random, manifest::FragmentInventory* inventory, size_t position) {
  manifest::TensorDescriptor& tensor = inventory->tensors[position];
  std::erase_if(inventory->fragments,
                [&](const auto& fragment) { return fragment.tensor_id == tensor.tensor_id; });
  tensor.parallel_axes.clear();
  tensor.shard_dims.clear();
  auto extension = std::make_shared<manifest::TensorExtension>();
  const auto& participants = inventory->topology.participants;
  using Held = std::tuple<size_t, manifest::Extents, manifest::Extents>;
  std::map<Held, int64_t> held;  // the most often that one tiling names it
  for (int64_t tilings = 1 + Below(random, 3); tilings > 0; --tilings) {
    manifest::OwnedTiling tiling;
    std::map<Held, int64_t> here;
    for (const auto& [offset, shape] : RandomTiling(random, tensor.global_shape)) {
      manifest::OwnedBox box{offset, shape, {}};
      for (int64_t owners = 1 + Below(random, 3); owners > 0; --owners) {
        const auto p = static_cast<size_t>(Below(random, std::ssize(participants)));
        box.owners.push_back(participants[p].participant_id);
        ++here[{p, offset, shape}];
      }
      tiling.push_back(std::move(box));
    }
    for (manifest::OwnedBox& box : tiling) std::sort(box.owners.begin(), box.owners.end());
    std::sort(tiling.begin(), tiling.end());
    if (std::find(extension->ownership.begin(), extension->ownership.end(), tiling) !=
        extension->ownership.end()) {
      continue;
    }
    for (const auto& [key, count] : here) held[key] = std::max(held[key], count);
    extension->ownership.push_back(std::move(tiling));
  }
  tensor.extension = std::move(extension);
  for (const auto& [key, count] : held) {
    const auto& [participant, offset, shape] = key;
    for (int64_t slot = 0; slot < count; ++slot) {
      manifest::PlacementFragment fragment;
      fragment.tensor_id = tensor.tensor_id;
      fragment.global_offset = offset;
      fragment.local_shape = shape;
      fragment.nbytes =
          static_cast<uint64_t>(tensor.itemsize) * static_cast<uint64_t>(geometry::VolumeOf(shape));
      fragment.rank = participants[participant].rank;
      if (count > 1) fragment.slot = slot;
      inventory->fragments.push_back(
          manifest::MakePlacementFragment(std::move(fragment), std::nullopt,
                                          manifest::FragmentForm::kExtended)
              .value());
    }
  }
}

// A base placement of `tensors` in which some are made owned.
inline manifest::FragmentInventory RandomExtended(
    Random& random, const std::vector<manifest::TensorDescriptor>& tensors) {
  manifest::FragmentInventory inventory = RandomPlacement(random, tensors).inventory();
  for (size_t t = 0; t < inventory.tensors.size(); ++t) {
    if (Chance(random, 60)) MakeOwned(random, &inventory, t);
  }
  return inventory;
}

}  // namespace mooncake::reshard
