#include "client/fragment_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace mooncake::client {
namespace {

using testing::HasSubstr;

manifest::PlacementFragment Fragment(manifest::Extents shape, uint64_t itemsize) {
  manifest::PlacementFragment fragment;
  fragment.tensor_id = "w_q";
  fragment.placement_fragment_id = "f0";
  fragment.nbytes = itemsize;
  for (const int64_t extent : shape) fragment.nbytes *= static_cast<uint64_t>(extent);
  fragment.global_offset.assign(shape.size(), 0);
  fragment.local_shape = std::move(shape);
  return fragment;
}

// The elements in row-major order of the shape, one by one.
std::vector<int16_t> Oracle(const int16_t* data, const manifest::Extents& shape,
                            const std::vector<int64_t>& strides) {
  std::vector<int16_t> elements;
  std::vector<int64_t> index(shape.size(), 0);
  while (true) {
    int64_t offset = 0;
    for (size_t d = 0; d < shape.size(); ++d) offset += index[d] * strides[d];
    elements.push_back(data[offset / 2]);
    size_t d = shape.size();
    while (d-- > 0) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
      if (d == 0) return elements;
    }
  }
}

std::vector<int16_t> Pack(const transfer::StridedSource& source, size_t count) {
  std::vector<int16_t> out(count);
  transfer::CopyEngine engine({.threads = 1});
  const transfer::PayloadWrite write{reinterpret_cast<std::byte*>(out.data()), {source}};
  EXPECT_TRUE(engine.WritePayloads({&write, 1}).ok());
  return out;
}

TEST(FragmentSourceTest, StridedViewsArePackedInRowMajorOrder) {
  std::vector<int16_t> memory(4096);
  std::iota(memory.begin(), memory.end(), 0);
  struct Case {
    manifest::Extents shape;
    std::vector<int64_t> strides;
    int loops;
  };
  for (const Case& c : {Case{{6, 8}, {16, 2}, 0},          // dense
                        Case{{8, 6}, {2, 16}, 2},          // transposed
                        Case{{6, 3}, {16, 2}, 1},          // column slice
                        Case{{5, 1, 7}, {14, 999, 2}, 0},  // an extent of one has no stride
                        Case{{2, 3, 4}, {96, 32, 2}, 1},   // rows of rows join
                        Case{{2, 3, 4}, {200, 32, 2}, 2}, Case{{3, 4}, {2, 6}, 2},
                        Case{{4, 5}, {0, 2}, 1},  // expanded
                        Case{{7}, {4}, 1}}) {
    const auto fragment = Fragment(c.shape, 2);
    const auto source = MakeStridedSource(fragment, {memory.data(), fragment.nbytes, c.strides});
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_EQ(source->loops, c.loops);
    const std::vector<int16_t> expected = Oracle(memory.data(), c.shape, c.strides);
    EXPECT_EQ(Pack(*source, expected.size()), expected);
  }
}

TEST(FragmentSourceTest, EmptyFragmentsHaveNothingToRead) {
  const auto empty = Fragment({0, 4}, 2);
  const auto source = MakeStridedSource(empty, {nullptr, 0, {8, 2}});
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->inner_bytes, 0u);
  EXPECT_EQ(MakeStridedSource(empty, {nullptr, 2, {}}).status().code(), Code::kInvalidArgument);
}

TEST(FragmentSourceTest, WhatIsRefused) {
  const auto fragment = Fragment({4, 8}, 2);
  int16_t data[64] = {};
  const Status size = MakeStridedSource(fragment, {data, 60, {}}).status();
  EXPECT_EQ(size.code(), Code::kInvalidArgument);
  EXPECT_THAT(size.message(), HasSubstr("w_q: expected 64 bytes, got 60"));
  const Status rank = MakeStridedSource(fragment, {data, 64, {2}}).status();
  EXPECT_THAT(rank.message(), HasSubstr("expected 2 strides, got 1"));
  const Status negative = MakeStridedSource(fragment, {data, 64, {-16, 2}}).status();
  EXPECT_EQ(negative.code(), Code::kInvalidArgument);
  EXPECT_THAT(negative.message(), HasSubstr("dimension 0 must not be negative, got -16"));
  EXPECT_EQ(MakeStridedSource(fragment, {nullptr, 64, {}}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace mooncake::client
