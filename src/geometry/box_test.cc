#include "geometry/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace mooncake::geometry {
namespace {

using testing::HasSubstr;
using Numbers = std::vector<int64_t>;

TEST(BoxTest, RefusesWhatIsNoBox) {
  EXPECT_THAT(MakeBox(Numbers{0}, Numbers{1, 2}).status().message(), HasSubstr("got 1 and 2"));
  EXPECT_THAT(MakeBox(Numbers{}, Numbers{}).status().message(), HasSubstr("got 0"));
  EXPECT_THAT(MakeBox(Numbers(9, 0), Numbers(9, 1)).status().message(),
              HasSubstr("1 to 8 dimensions, got 9"));
  EXPECT_THAT(MakeBox(Numbers{0, 0}, Numbers{4, 0}).status().message(),
              HasSubstr("extent of dimension 1 must be at least 1, got 0"));
  EXPECT_THAT(MakeBox(Numbers{std::numeric_limits<int64_t>::max()}, Numbers{1}).status().message(),
              HasSubstr("leaves 64 bits: offset 9223372036854775807 plus extent 1"));
  EXPECT_EQ(MakeBox(Numbers{0}, Numbers{0}).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(MakeBox(Numbers(8, 0), Numbers(8, 1)).ok());
}

TEST(BoxTest, IntersectsAndContains) {
  const Box a = *MakeBox(Numbers{0, 2}, Numbers{4, 6});
  const Box b = *MakeBox(Numbers{3, 0}, Numbers{4, 3});
  ASSERT_TRUE(a.Intersect(b).has_value());
  EXPECT_EQ(*a.Intersect(b), *MakeBox(Numbers{3, 2}, Numbers{1, 1}));
  EXPECT_EQ(a.ToString(), "[0:4, 2:8]");
  EXPECT_TRUE(a.Contains(*a.Intersect(b)));
  EXPECT_FALSE(a.Contains(b));
  const Box touching = *MakeBox(Numbers{4, 2}, Numbers{1, 6});
  EXPECT_FALSE(a.Overlaps(touching));
  EXPECT_FALSE(a.Intersect(touching).has_value());
  EXPECT_FALSE(a.Contains(*MakeBox(Numbers{0}, Numbers{1})));
}

TEST(BoxTest, OrdersByOffsetThenExtent) {
  const Box a = *MakeBox(Numbers{0, 2}, Numbers{9, 9});
  const Box b = *MakeBox(Numbers{1, 0}, Numbers{1, 1});
  const Box c = *MakeBox(Numbers{1, 0}, Numbers{1, 2});
  EXPECT_LT(a, b);
  EXPECT_LT(b, c);
  EXPECT_FALSE(c < c);
  EXPECT_LT(*MakeBox(Numbers{5}, Numbers{1}), a);
}

TEST(BoxTest, VolumeSaturatesInsteadOfWrapping) {
  const int64_t big = int64_t{1} << 62;
  EXPECT_EQ(MakeBox(Numbers{0, 0}, Numbers{big, 4})->volume(), Volume{1} << 64);
  EXPECT_EQ(MakeBox(Numbers{0, 0, 0}, Numbers{big, big, big})->volume(), kVolumeMax);
  EXPECT_EQ(VolumeOf(Numbers{big, big, 0}), Volume{0});
  EXPECT_EQ(SaturatingAdd(kVolumeMax, 1), kVolumeMax);
}

}  // namespace
}  // namespace mooncake::geometry
