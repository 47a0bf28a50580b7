// Fused copies: fewer, and the same bytes to the same places.
#include "reshard/fusion.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"
#include "reshard/random_extended.h"

namespace mooncake::reshard {
namespace {

using manifest::Fragment;
using manifest::Inventory;
using manifest::PlacementFragment;
using manifest::PlacementPtr;
using manifest::Tensor;
using manifest::Topology;

// One buffer for all of a part's fragments, in the order of the part's tensors.
struct FlatMemory {
  Bytes buffer;
  std::vector<uint64_t> begins;  // per fragment
  manifest::RuntimeBindingPtr binding;
};

FlatMemory BindFlat(const manifest::Placement& placement, const manifest::PlacementPart& part) {
  FlatMemory flat;
  std::vector<size_t> order(part.fragments.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const PlacementFragment& fa = part.fragments[a];
    const PlacementFragment& fb = part.fragments[b];
    return std::tie(fa.tensor_id, fa.global_offset) < std::tie(fb.tensor_id, fb.global_offset);
  });
  flat.begins.resize(order.size());
  uint64_t bytes = 0;
  for (const size_t f : order) {
    flat.begins[f] = bytes;
    bytes += part.fragments[f].nbytes;
  }
  flat.buffer.assign(bytes, uint8_t{0xee});
  manifest::RuntimeBinding binding = *BindMemory(placement, part).binding;
  size_t next = 0;
  for (size_t f = 0; f < part.fragments.size(); ++f) {
    if (part.fragments[f].is_empty()) continue;
    manifest::RuntimeBindingFragment& bound = binding.fragments[next++];
    bound.storage_address = reinterpret_cast<uint64_t>(flat.buffer.data());
    bound.storage_nbytes = bytes;
    bound.storage_offset_bytes = flat.begins[f];
    bound.address = bound.storage_address + bound.storage_offset_bytes;
  }
  flat.binding = *manifest::MakeRuntimeBinding(std::move(binding));
  return flat;
}

struct Fused {
  size_t regions = 0;
  size_t copies = 0;
  std::string wrong;
};

// Loads one part into a flat buffer by fused copies.
Fused LoadFused(const PlacementPtr& source, const PlacementPtr& target, size_t part_index) {
  const UploadPlan upload = PlanUpload(source, "g", 1 << 20).value();  // all in packs
  const auto stored = BuildStoredManifest(upload, "d", "now").value();
  const std::map<std::string, Bytes> objects = UploadedObjects(upload);
  const manifest::PlacementPart& part = target->parts[part_index];
  const LogicalPlanPtr plan = PlanStoredToLocalTarget(stored, target, part.participant_id).value();
  FlatMemory flat = BindFlat(*target, part);
  const BoundPlanPtr bound = BindStoredToLocalTarget(plan, *flat.binding).value();
  Fused fused;
  fused.regions = bound->size();
  std::vector<uint8_t> writes(flat.buffer.size(), 0);
  for (uint32_t object = 0; object < bound->objects().size(); ++object) {
    std::vector<ObjectCopy> copies;
    for (size_t i = 0; i < bound->size(); ++i) {
      if (bound->object_of(i) == object) copies.push_back(CopyOf(bound->operation(i)));
    }
    const Bytes& from = objects.at(std::string(bound->objects()[object].name));
    for (const ObjectCopy& copy : FuseCopies(copies)) {
      ++fused.copies;
      geometry::ForEachSegment(copy.region, [&](uint64_t s, uint64_t t, uint64_t n) {
        const uint64_t at = t - reinterpret_cast<uint64_t>(flat.buffer.data());
        if (s + n > from.size() || at + n > flat.buffer.size()) {
          fused.wrong = "a copy leaves its memory";
          return;
        }
        std::memcpy(flat.buffer.data() + at, from.data() + s, n);
        for (uint64_t b = 0; b < n; ++b) ++writes[at + b];
      });
    }
  }
  for (const uint8_t count : writes) {
    if (count != 1) fused.wrong = "a byte written " + std::to_string(count) + "x";
  }
  for (size_t f = 0; f < part.fragments.size(); ++f) {
    const PlacementFragment& fragment = part.fragments[f];
    const auto* tensor = manifest::FindTensor(part.tensors, fragment.tensor_id);
    const Bytes wanted = CutBox(*tensor, fragment.global_offset, fragment.local_shape);
    if (!std::equal(wanted.begin(), wanted.end(),
                    flat.buffer.begin() + static_cast<ptrdiff_t>(flat.begins[f]))) {
      fused.wrong = fragment.tensor_id + ": wrong bytes";
    }
  }
  return fused;
}

// `experts` matrices (4, 6), whole or the left half of each.
PlacementPtr Experts(int64_t experts, bool halves) {
  std::vector<manifest::ParallelRank> ranks{{}};
  if (halves) ranks.push_back({.tp = 1});
  std::vector<manifest::TensorDescriptor> tensors;
  std::vector<PlacementFragment> fragments;
  for (int64_t e = 0; e < experts; ++e) {
    const std::string id = "expert-" + std::to_string(100 + e);
    const auto split = manifest::Split(manifest::AxisKind::kTp, 1);
    tensors.push_back(halves ? Tensor(id, {4, 6}, {split}) : Tensor(id, {4, 6}));
    for (const manifest::ParallelRank& rank : ranks) {
      PlacementFragment fragment = Fragment(id, {0, 3 * rank.tp}, {4, halves ? 3 : 6}, rank);
      // In the order of the experts, so that they lie in the pack as in the target.
      fragment.placement_fragment_id = id + "-" + std::to_string(rank.tp);
      fragments.push_back(fragment);
    }
  }
  return manifest::PlacementFromFragments(Inventory(Topology(ranks), tensors, fragments)).value();
}

TEST(Fusion, NeighboursThatLieAlikeAreOneCopy) {
  const Fused whole = LoadFused(Experts(10, false), Experts(10, false), 0);
  EXPECT_EQ(whole.wrong, "");
  EXPECT_EQ(whole.regions, 10u);
  EXPECT_EQ(whole.copies, 1u);
}

TEST(Fusion, HalvesOfNeighboursAreOneStridedCopy) {
  const Fused halves = LoadFused(Experts(10, false), Experts(10, true), 1);
  EXPECT_EQ(halves.wrong, "");
  EXPECT_EQ(halves.regions, 10u);
  EXPECT_EQ(halves.copies, 1u);
}

TEST(Fusion, BuffersStayApart) {
  const auto copy = [](uint64_t buffer, uint64_t source, uint64_t target) {
    ObjectCopy made;
    made.buffer = buffer;
    made.region.source_base_offset = source;
    made.region.target_base_offset = target;
    made.region.inner_bytes = 8;
    return made;
  };
  // The same addresses, but the second is in another allocation.
  EXPECT_EQ(FuseCopies({copy(100, 0, 100), copy(108, 8, 108)}).size(), 2u);
  const auto fused = FuseCopies({copy(100, 8, 108), copy(100, 0, 100)});
  ASSERT_EQ(fused.size(), 1u);
  EXPECT_EQ(fused[0].region.inner_bytes, 16u);
  EXPECT_EQ(fused[0].region.loops, 0);
  EXPECT_TRUE(FuseCopies({}).empty());
}

RC_GTEST_PROP(Fusion, TheSameBytesWhateverTheLayouts, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<manifest::TensorDescriptor> tensors = RandomTensors(random);
  const PlacementPtr source =
      manifest::PlacementFromFragments(RandomExtended(random, tensors)).value();
  const PlacementPtr target =
      manifest::PlacementFromFragments(RandomExtended(random, tensors)).value();
  for (size_t p = 0; p < target->parts.size(); ++p) {
    if (!manifest::HoldsElements(target->parts[p])) continue;
    const Fused fused = LoadFused(source, target, p);
    RC_ASSERT(fused.wrong == "");
    RC_ASSERT(fused.copies <= fused.regions);
  }
}

}  // namespace
}  // namespace mooncake::reshard
