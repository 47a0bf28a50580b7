// Strided views of one allocation: the digits against the bytes themselves.
#include "manifest/view_overlap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "manifest/contract_samples.h"
#include "manifest/lookup.h"

namespace mooncake::manifest {
namespace {

constexpr uint64_t kStorage = 4096;

RuntimeBindingFragment Strided(uint64_t offset, Extents shape, Extents strides, int64_t itemsize) {
  RuntimeBindingFragment view;
  view.placement_fragment_id = "f";
  view.fragment_id = "r";
  view.worker_id = "worker";
  view.endpoint = "host:1";
  view.device = "cpu";
  view.itemsize = itemsize;
  view.nbytes = static_cast<uint64_t>(itemsize);
  for (const int64_t extent : shape) view.nbytes *= static_cast<uint64_t>(extent);
  view.local_shape = std::move(shape);
  view.strides_bytes = std::move(strides);
  view.storage_address = kStorage;
  view.storage_nbytes = 1 << 20;
  view.storage_offset_bytes = offset;
  view.address = kStorage + offset;
  view.strided = true;
  return view;
}

std::vector<uint64_t> BytesOf(const RuntimeBindingFragment& view) {
  std::vector<uint64_t> bytes{view.address};
  for (size_t d = 0; d < view.local_shape.size(); ++d) {
    std::vector<uint64_t> next;
    for (int64_t i = 0; i < view.local_shape[d]; ++i) {
      for (const uint64_t b : bytes)
        next.push_back(b + static_cast<uint64_t>(i * view.strides_bytes[d]));
    }
    bytes = std::move(next);
  }
  std::vector<uint64_t> all;
  for (const uint64_t b : bytes) {
    for (int64_t i = 0; i < view.itemsize; ++i) all.push_back(b + static_cast<uint64_t>(i));
  }
  return all;
}

bool ShareAByte(const std::vector<RuntimeBindingFragment>& views) {
  std::set<uint64_t> seen;
  for (const RuntimeBindingFragment& view : views) {
    for (const uint64_t byte : BytesOf(view)) {
      if (!seen.insert(byte).second) return true;
    }
  }
  return false;
}

bool Found(const std::vector<RuntimeBindingFragment>& views) {
  std::vector<const RuntimeBindingFragment*> pointers;
  pointers.reserve(views.size());
  for (const RuntimeBindingFragment& view : views) pointers.push_back(&view);
  return FindOverlappingViews(pointers).has_value();
}

TEST(ViewOverlap, ExactForSlicesOfOneBuffer) {
  // A buffer of 6 x 5 elements of 2 bytes: every pair of its rectangular slices.
  std::vector<RuntimeBindingFragment> slices;
  for (int64_t r = 0; r < 6; ++r) {
    for (int64_t c = 0; c < 5; ++c) {
      for (int64_t rows = 1; r + rows <= 6; ++rows) {
        for (int64_t columns = 1; c + columns <= 5; ++columns) {
          slices.push_back(
              Strided(static_cast<uint64_t>(10 * r + 2 * c), {rows, columns}, {10, 2}, 2));
        }
      }
    }
  }
  const RuntimeBindingFragment whole = Strided(0, {6, 5}, {10, 2}, 2);
  EXPECT_TRUE(Found({whole, slices[7]}));
  size_t apart = 0;
  for (const RuntimeBindingFragment& a : slices) {
    // The wider one gives the digits; only where both have rows does it say anything of columns.
    if (a.local_shape[0] < 2) continue;
    for (const RuntimeBindingFragment& b : slices) {
      const bool share = ShareAByte({a, b});
      EXPECT_EQ(Found({a, b}), share);
      apart += share ? 0 : 1;
    }
  }
  EXPECT_GT(apart, 1000u);
}

TEST(ViewOverlap, InterleavedRowsAreApart) {
  EXPECT_FALSE(Found({Strided(0, {4, 3}, {16, 2}, 2), Strided(8, {4, 3}, {16, 2}, 2)}));
  EXPECT_TRUE(Found({Strided(0, {4, 5}, {16, 2}, 2), Strided(8, {4, 3}, {16, 2}, 2)}));
  EXPECT_FALSE(Found({Strided(0, {2, 3, 2}, {48, 8, 1}, 1), Strided(2, {2, 3, 2}, {48, 8, 1}, 1),
                      Strided(24, {2, 3, 8}, {48, 8, 1}, 1)}));
}

RC_GTEST_PROP(ViewOverlap, NeverMissesASharedByte, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  std::mt19937_64 random(seed);
  std::vector<RuntimeBindingFragment> views;
  for (int v = 0; v < 3; ++v) {
    const auto itemsize = static_cast<int64_t>(1 + random() % 3);
    Extents shape;
    Extents strides;
    int64_t span = itemsize;
    for (uint64_t d = random() % 4; d > 0; --d) {
      shape.insert(shape.begin(), static_cast<int64_t>(1 + random() % 4));
      strides.insert(strides.begin(), span + static_cast<int64_t>(random() % 3));
      span += strides.front() * (shape.front() - 1);
    }
    views.push_back(Strided(random() % 60, shape, strides, itemsize));
    RC_ASSERT(MakeRuntimeBindingFragment(views.back()).ok());
  }
  if (ShareAByte(views)) RC_ASSERT(Found(views));
}

TEST(StridedBinding, Rules) {
  const auto make = [](uint64_t offset, Extents shape, Extents strides) {
    return MakeRuntimeBindingFragment(Strided(offset, std::move(shape), std::move(strides), 2));
  };
  EXPECT_TRUE(make(0, {3, 4}, {2, 6}).ok());
  EXPECT_TRUE(make(0, {}, {}).ok());
  EXPECT_THAT(make(0, {3, 4}, {2, 4}),
              Refused("runtime view overlaps itself: a stride of 4 over 6"));
  EXPECT_THAT(make(0, {3}, {1}), Refused("runtime view overlaps itself"));
  EXPECT_THAT(make((1 << 20) - 23, {3, 4}, {8, 2}),
              Refused("runtime view exceeds storage allocation bounds: 24 bytes"));
  EXPECT_THAT(make(0, {2, 2}, {INT64_MAX, 2}),
              Refused("runtime view must span at most 2^63-1 bytes"));
  RuntimeBindingFragment wrong = Strided(0, {3, 4}, {8, 2}, 2);
  wrong.nbytes = 23;
  EXPECT_THAT(MakeRuntimeBindingFragment(wrong),
              Refused("runtime view nbytes does not match its elements"));
}

TEST(StridedBinding, OnlyMarkedViewsMayBeStrided) {
  const PlacementPtr placement = PlacementFromFragments(MiniInventory()).value();
  RuntimeBinding binding = Bind(*placement, 0, 4096);
  RuntimeBindingFragment& view = binding.fragments[0];
  view.strides_bytes = {8, 2};
  view.storage_nbytes = 64;
  EXPECT_THAT(ValidateRuntimeBinding(*placement, *MakeRuntimeBinding(binding).value()),
              Refused("runtime binding stride does not describe a canonical contiguous view"));
  view.strided = true;
  EXPECT_TRUE(ValidateRuntimeBinding(*placement, *MakeRuntimeBinding(binding).value()).ok());
}

TEST(StridedBinding, ViewsOfOneBindingMustBeApart) {
  const PlacementPtr placement =
      PlacementFromFragments(
          Inventory(Topology({{}}), {Tensor("a", {4, 3}), Tensor("b", {4, 3})},
                    {Fragment("a", {0, 0}, {4, 3}), Fragment("b", {0, 0}, {4, 3})}))
          .value();
  const auto validated = [&](uint64_t second_offset) {
    RuntimeBinding binding = Bind(*placement, 0, 4096);
    for (RuntimeBindingFragment& view : binding.fragments) {
      const bool is_a =
          FindFragment(placement->fragments, view.placement_fragment_id)->tensor_id == "a";
      view.strided = true;
      view.strides_bytes = {16, 2};
      view.storage_address = 4096;
      view.storage_nbytes = 64;
      view.storage_offset_bytes = is_a ? 0 : second_offset;
      view.address = 4096 + view.storage_offset_bytes;
    }
    return ValidateRuntimeBinding(*placement, *MakeRuntimeBinding(binding).value());
  };
  EXPECT_TRUE(validated(8).ok());
  EXPECT_THAT(validated(4), Refused("runtime binding address ranges overlap"));
  EXPECT_THAT(validated(0), Refused("runtime binding address ranges overlap"));
}

}  // namespace
}  // namespace mooncake::manifest
