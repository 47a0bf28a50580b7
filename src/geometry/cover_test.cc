#include "geometry/cover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <vector>

#include "geometry/box_index.h"

namespace mooncake::geometry {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<int64_t>;

Box B(Numbers offset, Numbers shape) { return *MakeBox(offset, shape); }

// The oracle: how many boxes hold each element of `container`, counted one by one.
std::vector<int> Paint(const Box& container, const std::vector<Box>& boxes) {
  std::vector<int> painted(static_cast<size_t>(container.volume()), 0);
  for (size_t element = 0; element < painted.size(); ++element) {
    size_t rest = element;
    Numbers at(static_cast<size_t>(container.rank()));
    for (int d = container.rank() - 1; d >= 0; --d) {
      const auto extent = static_cast<size_t>(container.extent(d));
      at[static_cast<size_t>(d)] = container.begin(d) + static_cast<int64_t>(rest % extent);
      rest /= extent;
    }
    const Box point = B(at, Numbers(at.size(), 1));
    for (const Box& box : boxes) painted[element] += box.Contains(point) ? 1 : 0;
  }
  return painted;
}

// A tiling made by cutting boxes in two at random places: irregular in every dimension.
std::vector<Box> RandomTiling(const Box& container, size_t wanted, std::mt19937_64& random) {
  std::vector<Box> boxes{container};
  for (size_t tries = 0; boxes.size() < wanted && tries < 20 * wanted; ++tries) {
    const size_t which = random() % boxes.size();
    const Box box = boxes[which];
    const int dim = static_cast<int>(random() % static_cast<size_t>(box.rank()));
    if (box.extent(dim) < 2) continue;
    const int64_t cut =
        1 + static_cast<int64_t>(random() % static_cast<uint64_t>(box.extent(dim) - 1));
    Numbers offset, shape;
    for (int d = 0; d < box.rank(); ++d) {
      offset.push_back(box.begin(d));
      shape.push_back(box.extent(d));
    }
    const auto at = static_cast<size_t>(dim);
    shape[at] = cut;
    boxes[which] = B(offset, shape);
    offset[at] += cut;
    shape[at] = box.extent(dim) - cut;
    boxes.push_back(B(offset, shape));
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

TEST(CoverTest, FewBoxes) {
  EXPECT_FALSE(BoxesOverlap({}));
  EXPECT_FALSE(BoxesOverlap(std::vector{B({0}, {4})}));
  EXPECT_FALSE(BoxesOverlap(std::vector{B({0}, {4}), B({4}, {1})}));
  EXPECT_TRUE(BoxesOverlap(std::vector{B({0}, {4}), B({3}, {1})}));
  EXPECT_TRUE(BoxesOverlap(std::vector{B({0, 0}, {4, 4}), B({0, 0}, {4, 4})}));
  EXPECT_FALSE(BoxesExactlyCover(B({0}, {4}), {}));
  EXPECT_FALSE(BoxesExactlyCover(B({0}, {4}), std::vector{B({0}, {5})}));
  EXPECT_FALSE(BoxesExactlyCover(B({0}, {4}), std::vector{B({0}, {2}), B({1}, {2})}));
  EXPECT_TRUE(BoxesExactlyCover(B({0}, {4}), std::vector{B({3}, {1}), B({0}, {3})}));
  EXPECT_TRUE(BoxesExactlyCover(B({2}, {2}), std::vector{B({3}, {1}), B({2}, {1})}));
}

TEST(CoverTest, NoIntegerWrapCanFakeCoverage) {
  const int64_t big = int64_t{1} << 62;
  // Volumes of 2^128 and more do not fit: refused, not wrapped to an equal number.
  const Box container = B({0, 0, 0}, {big, big, 16});
  EXPECT_FALSE(BoxesExactlyCover(container, std::vector{container}));
  EXPECT_TRUE(BoxesExactlyCover(B({0, 0}, {big, 4}),
                                std::vector{B({0, 0}, {big, 2}), B({0, 2}, {big, 2})}));
}

RC_GTEST_PROP(CoverProperty, AgreesWithCountingEveryElement, ()) {
  std::mt19937_64 random(*rc::gen::noShrink(rc::gen::arbitrary<uint64_t>()));
  const int rank = 1 + static_cast<int>(random() % 5);
  Numbers shape;
  for (int d = 0; d < rank; ++d) shape.push_back(1 + static_cast<int64_t>(random() % 6));
  const Box container = B(Numbers(static_cast<size_t>(rank), 0), shape);
  std::vector<Box> boxes = RandomTiling(container, 1 + random() % 40, random);
  // Leave it a tiling, or break it in one of three ways.
  const auto fault = random() % 4;
  const size_t which = random() % boxes.size();
  if (fault == 1) boxes.erase(boxes.begin() + static_cast<ptrdiff_t>(which));
  if (fault == 2) boxes.push_back(boxes[which]);
  if (fault == 3) {
    // Same volume, one place twice and another not at all, where two boxes of one shape exist.
    for (Box& other : boxes) {
      if (other.volume() == boxes[which].volume()) other = boxes[which];
    }
  }
  const std::vector<int> painted = Paint(container, boxes);
  const bool overlap = std::any_of(painted.begin(), painted.end(), [](int n) { return n > 1; });
  const bool exact = std::all_of(painted.begin(), painted.end(), [](int n) { return n == 1; });
  RC_ASSERT(BoxesOverlap(boxes) == overlap);
  RC_ASSERT(BoxesExactlyCover(container, boxes) == exact);
  RC_ASSERT(*BoxesOverlapWithin(boxes, 1'000'000) == overlap);
  RC_ASSERT(*BoxesExactlyCoverWithin(container, boxes, 1'000'000) == exact);
  RC_ASSERT(boxes.empty() || BoxIndex(boxes).AnyOverlap() == overlap);
}

RC_GTEST_PROP(BoxIndexProperty, FindsWhatAScanFinds, ()) {
  std::mt19937_64 random(*rc::gen::noShrink(rc::gen::arbitrary<uint64_t>()));
  const int rank = 1 + static_cast<int>(random() % 4);
  const auto some_box = [&] {
    Numbers offset, shape;
    for (int d = 0; d < rank; ++d) {
      offset.push_back(static_cast<int64_t>(random() % 30));
      shape.push_back(1 + static_cast<int64_t>(random() % 12));
    }
    return B(offset, shape);
  };
  std::vector<Box> boxes(random() % 200);
  for (Box& box : boxes) box = some_box();
  const BoxIndex index(boxes);
  for (int q = 0; q < 10; ++q) {
    const Box query = some_box();
    std::vector<uint32_t> found;
    index.FindOverlaps(query, &found);
    std::set<uint32_t> wanted;
    for (uint32_t i = 0; i < boxes.size(); ++i) {
      if (boxes[i].Overlaps(query)) wanted.insert(i);
    }
    RC_ASSERT(std::set<uint32_t>(found.begin(), found.end()) == wanted);
    RC_ASSERT(found.size() == wanted.size());
  }
}

TEST(CoverTest, BudgetBoundsThreeDimensionalSweeps) {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 4; ++i) boxes.push_back(B({0, i, 0}, {1, 1, 1}));
  EXPECT_EQ(*BoxesOverlapWithin(boxes, 6), false);  // 0 + 1 + 2 + 3 comparisons
  const Status refused = BoxesOverlapWithin(boxes, 5).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.message(), "high-dimensional overlap budget exceeded before validation");
  EXPECT_EQ(BoxesExactlyCoverWithin(B({0, 0, 0}, {1, 4, 1}), boxes, 5).status().message(),
            refused.message());
  // Two dimensions are never limited.
  EXPECT_EQ(*BoxesOverlapWithin(std::vector{B({0, 0}, {1, 1}), B({0, 1}, {1, 1})}, 0), false);
  EXPECT_THAT(BoxesOverlapWithin(std::vector{B({0}, {1}), B({0, 1}, {1, 1})}, 9).status().message(),
              HasSubstr("different ranks: 1 and 2"));
}

double SecondsToCover(const Box& container, const std::vector<Box>& boxes, bool expected) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(BoxesExactlyCover(container, boxes), expected);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bounds are far above what is measured (milliseconds) and far below a pairwise test's 10^10 steps.
TEST(CoverTest, HundredThousandBoxesInEveryRankWithoutPairwiseWork) {
  std::mt19937_64 random(7);
  for (const Numbers& grid :
       {Numbers{100'000}, Numbers{320, 320}, Numbers{1, 100'000}, Numbers{47, 47, 47},
        Numbers{18, 18, 18, 18}, Numbers{1, 50'000, 1, 2}, Numbers{4, 4, 4, 4, 4, 4, 4, 6}}) {
    std::vector<Box> boxes;
    Numbers at(grid.size(), 0);
    Numbers shape, unit;
    for (size_t d = 0; d < grid.size(); ++d) {
      unit.push_back(static_cast<int64_t>(d) + 2);
      shape.push_back(grid[d] * unit[d]);
    }
    while (true) {
      Numbers offset = at;
      for (size_t d = 0; d < at.size(); ++d) offset[d] *= unit[d];
      boxes.push_back(B(offset, unit));
      size_t d = 0;
      while (d < at.size() && ++at[d] == grid[d]) at[d++] = 0;
      if (d == at.size()) break;
    }
    std::shuffle(boxes.begin(), boxes.end(), random);
    const Box container = B(Numbers(grid.size(), 0), shape);
    EXPECT_LT(SecondsToCover(container, boxes, true), 5.0) << boxes.size() << " boxes";
  }
  for (const Numbers& shape :
       {Numbers{60'000, 60'000}, Numbers{2000, 2000, 2000}, Numbers{300, 300, 300, 300}}) {
    const Box container = B(Numbers(shape.size(), 0), shape);
    const std::vector<Box> boxes = RandomTiling(container, 100'000, random);
    EXPECT_LT(SecondsToCover(container, boxes, true), 10.0) << boxes.size() << " irregular boxes";
  }
}

}  // namespace
}  // namespace mooncake::geometry
