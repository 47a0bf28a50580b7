// What many parts have in common lies in memory once, and reads as if each had its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "manifest/canonical.h"
#include "manifest/contract_samples.h"
#include "manifest/item_refs.h"
#include "manifest/json.h"
#include "manifest/shared_text.h"
#include "manifest/sorting.h"
#include "manifest/validate.h"

namespace mooncake::manifest {
namespace {

TEST(SharedText, ReadsAsItsString) {
  const SharedText text = "model.layers.0.weight";
  SharedText copy;
  copy = text;
  EXPECT_TRUE(copy.IsSameAs(text));
  const SharedText equal = std::string("model.layers.0.weight");
  EXPECT_FALSE(equal.IsSameAs(text));
  EXPECT_EQ(equal, text);
  EXPECT_EQ(std::hash<SharedText>()(equal), std::hash<SharedText>()(text));
  EXPECT_LT(SharedText("a"), SharedText("b"));
  EXPECT_EQ("tensor " + text + "!", "tensor model.layers.0.weight!");
  EXPECT_EQ(fmt::format("{:>3}", SharedText("w")), "  w");
}

TEST(SharedText, EmptyIsAText) {
  const SharedText none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none, "");
  EXPECT_EQ(none, SharedText(""));
  EXPECT_LT(none, SharedText("a"));
}

TEST(SharedText, LivesAsLongAsOneOfItsCopies) {
  SharedText kept;
  {
    SharedText first = std::string(100, 'x');
    kept = first;
    first = SharedText("other");
    EXPECT_EQ(first, "other");
  }
  kept = *&kept;
  EXPECT_EQ(kept, std::string(100, 'x'));
}

TEST(ItemSpan, IsTheSameOverValuesAndPointers) {
  const std::vector<std::string> side_by_side{"a", "b", "c", "d"};
  std::vector<const std::string*> pointers;
  pointers.reserve(side_by_side.size());
  for (const std::string& item : side_by_side) pointers.push_back(&item);
  const ItemRefs<std::string> refs(pointers);
  for (const ItemSpan<std::string>& span :
       {ItemSpan<std::string>(side_by_side), ItemSpan<std::string>(refs)}) {
    EXPECT_EQ(std::vector<std::string>(span.begin(), span.end()), side_by_side);
    EXPECT_EQ(&span[2], &side_by_side[2]);
    const ItemSpan<std::string> middle = span.subspan(1, 2);
    EXPECT_EQ(std::vector<std::string>(middle.begin(), middle.end()),
              (std::vector<std::string>{"b", "c"}));
    EXPECT_EQ(*std::lower_bound(span.begin(), span.end(), "c"), "c");
    EXPECT_EQ(span.end() - span.begin(), 4);
  }
  EXPECT_TRUE(ItemSpan<std::string>().empty());
}

TEST(PositionsById, SortsLikeTheTextsThemselves) {
  // Long common beginnings, one id a beginning of another, bytes above 127 and zeros.
  const std::vector<std::string> ids{
      "sha256:abcdefgh1",           "sha256:abcdefgh0", "sha256:",          "sha256:a",
      std::string("sha256:a\0", 9), "sha256:\xC3\xA9",  "sha256:abcdefgh1", "sha256:z"};
  std::vector<uint32_t> wanted(ids.size());
  for (uint32_t i = 0; i < ids.size(); ++i) wanted[i] = i;
  std::stable_sort(wanted.begin(), wanted.end(),
                   [&ids](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
  EXPECT_EQ(PositionsById(ids.size(), [&ids](size_t i) { return std::string_view(ids[i]); }),
            wanted);
  EXPECT_TRUE(PositionsById(0, [](size_t) { return std::string_view(); }).empty());
}

void ExpectShared(const Placement& placement) {
  std::vector<const PlacementFragment*> of_parts;
  for (const PlacementPart& part : placement.parts) {
    for (const PlacementFragment& fragment : part.fragments) of_parts.push_back(&fragment);
    for (size_t t = 0; t < part.tensors.size(); ++t) {
      EXPECT_EQ(part.tensors.pointers()[t], placement.parts[0].tensors.pointers()[t]);
    }
  }
  ASSERT_EQ(placement.fragments.size(), of_parts.size());
  for (size_t i = 0; i < placement.fragments.size(); ++i) {
    const PlacementFragment& fragment = placement.fragments[i];
    EXPECT_THAT(of_parts, ::testing::Contains(&fragment));
    EXPECT_TRUE(fragment.tensor_id.IsSameAs(placement.tensors[placement.tensor_of[i]].tensor_id));
  }
}

TEST(SharedValues, APlacementHoldsEachFragmentAndDescriptorOnce) {
  const PlacementPtr made = PlacementFromFragments(MiniInventory()).value();
  ExpectShared(*made);
  ExpectShared(*PlacementFromJson(PlacementToJson(*made)).value());
  // Parts that were made one by one, each with descriptors and texts of its own.
  ExpectShared(*MakePlacement(MiniFields()).value());
}

TEST(SharedValues, TheFirstFaultyFragmentIsNamed) {
  const auto fault = [](auto change) {
    PlacementPart part = MiniPart(0);
    part.fragments = {Fragment("w", {0, 0}, {1, 2}, part.rank),
                      Fragment("w", {1, 0}, {1, 2}, part.rank)};
    PlacementFragment again = part.fragments[0];
    again.placement_fragment_id = "b";
    part.fragments[0].placement_fragment_id = "a";
    part.fragments[1].placement_fragment_id = "c";
    part.fragments.insert(part.fragments.begin() + 1, again);
    change(part.fragments);
    return MakePart(part).status().message();
  };
  using Fragments = std::vector<PlacementFragment>;
  using ::testing::HasSubstr;
  EXPECT_THAT(fault([](Fragments&) {}), HasSubstr("duplicate logical fragment"));
  EXPECT_THAT(fault([](Fragments& f) { f[0].nbytes = 3; }), HasSubstr("byte size mismatch: a"));
  EXPECT_THAT(fault([](Fragments& f) { f[1].nbytes = 3; }), HasSubstr("duplicate logical"));
  EXPECT_THAT(fault([](Fragments& f) { f[2].nbytes = 3; }), HasSubstr("duplicate logical"));
  EXPECT_THAT(fault([](Fragments& f) { f[2].tensor_id = "v"; }), HasSubstr("duplicate logical"));
  EXPECT_THAT(fault([](Fragments& f) { f[1].tensor_id = "v"; }), HasSubstr("unknown tensor_id: v"));
  EXPECT_THAT(fault([](Fragments& f) { f[1].placement_fragment_id = "a"; }),
              HasSubstr("duplicate fragment_id: a"));
}

}  // namespace
}  // namespace mooncake::manifest
