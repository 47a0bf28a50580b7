// Every check of parts and placements, except coverage (coverage_test.cc).
#include <gtest/gtest.h>

#include <algorithm>

#include "manifest/contract_samples.h"
#include "manifest/lookup.h"
#include "manifest/validate.h"

namespace mooncake::manifest {
namespace {

template <class T, class Change>
T With(T value, Change change) {
  change(value);
  return value;
}

TEST(Part, Checks) {
  using P = PlacementPart;
  const auto with = [](auto change) { return MakePart(With(MiniPart(0), change)); };
  EXPECT_THAT(with([](P&) {}), Accepted());
  EXPECT_THAT(with([](P& p) { p.resource_id = ""; }),
              Refused("resource_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.revision = ""; }), Refused("revision must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.placement_set_id = ""; }),
              Refused("placement_set_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.topology_id = ""; }),
              Refused("topology_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.participant_id = ""; }),
              Refused("participant_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.rank.tp = -1; }), Refused("parallel rank tp must be at least 0"));
  EXPECT_THAT(with([](P& p) { p.rank.tp = 1; }),
              Refused("placement part fragment rank differs from part rank"));
  EXPECT_THAT(with([](P& p) { p.tensors.push_back(Tensor("v", {2})); }),
              Refused("placement part contains an unreferenced tensor: v"));
  EXPECT_THAT(with([](P& p) { p.tensors.push_back(p.tensors[0]); }),
              Refused("duplicate tensor_id: w"));
  EXPECT_THAT(with([](P& p) { p.fragments.push_back(p.fragments[0]); }),
              Refused("duplicate fragment_id: sha256:"));
  EXPECT_THAT(with([](P& p) {
                p.fragments.push_back(p.fragments[0]);
                p.fragments[1].placement_fragment_id = "twin";
              }),
              Refused("duplicate logical fragment for tensor and parallel rank: twin"));
  EXPECT_THAT(with([](P& p) { p.fragments.push_back(Fragment("x", {0}, {1})); }),
              Refused("unknown tensor_id: x"));
  EXPECT_THAT(with([](P& p) { p.fragments.push_back(Fragment("w", {0}, {2})); }),
              Refused("fragment rank mismatch: sha256:"));
  EXPECT_THAT(with([](P& p) {
                p.fragments[0].global_offset = {3, 0};
              }),
              Refused("fragment is out of bounds: sha256:"));
  EXPECT_THAT(with([](P& p) { p.fragments[0].nbytes = 9; }), Refused("expected 8, got 9"));
  EXPECT_THAT(with([](P& p) {
                p.fragments.push_back(Fragment("w", {1, 0}, {2, 2}));
              }),
              Refused("logical fragment boxes overlap for tensor and parallel rank: w"));
  EXPECT_THAT(with([](P& p) { p.fragments[0].placement_fragment_id = ""; }),
              Refused("placement_fragment_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) {
                TensorDescriptor tensor = p.tensors[0];
                tensor.itemsize = 0;
                p.tensors = {tensor};
              }),
              Refused("itemsize must be at least 1"));
}

TEST(Part, MayBeEmptyOrPartialAndIsSorted) {
  EXPECT_THAT(MakePart(With(MiniPart(0),
                            [](PlacementPart& p) {
                              p.tensors.clear();
                              p.fragments.clear();
                            })),
              Accepted());
  PlacementPart part = MiniPart(0);
  part.tensors.push_back(Tensor("a", {4}));
  part.fragments[0].placement_fragment_id = "z";
  part.fragments.push_back(Fragment("a", {0}, {1}));  // covers a quarter
  part.fragments.back().placement_fragment_id = "y";
  const PlacementPart made = MakePart(part).value();
  EXPECT_EQ(made.tensors[0].tensor_id, "a");
  EXPECT_EQ(made.fragments[0].placement_fragment_id, "y");
}

TEST(Placement, ChecksItsFields) {
  using P = PlacementFields;
  const auto with = [](auto change) { return MakePlacement(With(MiniFields(), change)); };
  EXPECT_THAT(with([](P&) {}), Accepted());
  EXPECT_THAT(with([](P& p) { p.resource_id = ""; }),
              Refused("resource_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.revision = ""; }), Refused("revision must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.placement_set_id = ""; }),
              Refused("placement_set_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.placement_id = ""; }),
              Refused("placement_id must be a non-empty string"));
  EXPECT_THAT(with([](P& p) { p.placement_id = "sha256:0"; }),
              Refused("placement_id does not match canonical logical content: expected sha256:"));
  EXPECT_THAT(with([](P& p) { p.topology.topology_id = "sha256:0"; }),
              Refused("topology_id does not match canonical topology"));
}

TEST(Placement, ChecksThePartSet) {
  using P = PlacementFields;
  const auto with = [](auto change) { return MakePlacement(With(MiniFields(), change)); };
  EXPECT_THAT(with([](P& p) { p.parts.push_back(p.parts[1]); }),
              Refused("duplicate placement participant"));
  EXPECT_THAT(with([](P& p) { p.parts.clear(); }), Refused("missing topology participant: p0"));
  EXPECT_THAT(with([](P& p) { p.parts[1].participant_id = "q"; }),
              Refused("missing topology participant: p1"));
  EXPECT_THAT(with([](P& p) {
                p.parts.push_back(p.parts[1]);
                p.parts[2].participant_id = "a";
              }),
              Refused("unknown topology participant: a"));
  EXPECT_THAT(with([](P& p) { p.parts[1].resource_id = "n"; }),
              Refused("placement part resource_id differs: p1: expected m, got n"));
  EXPECT_THAT(with([](P& p) { p.parts[1].revision = "n"; }),
              Refused("placement part revision differs"));
  EXPECT_THAT(with([](P& p) { p.parts[1].weight_generation = 2; }),
              Refused("placement part weight_generation differs: p1: expected 1, got 2"));
  EXPECT_THAT(with([](P& p) { p.parts[1].placement_set_id = "n"; }),
              Refused("placement part placement_set_id differs"));
  EXPECT_THAT(with([](P& p) { p.parts[1].topology_id = "n"; }),
              Refused("placement part topology_id differs"));
  EXPECT_THAT(with([](P& p) {
                p.parts[1].rank.tp = 0;
                p.parts[1].fragments[0].rank.tp = 0;
              }),
              Refused("placement part rank differs from topology"));
  EXPECT_THAT(with([](P& p) {
                TensorDescriptor tensor = p.parts[1].tensors[0];
                tensor.layout_fingerprint = "v2";
                p.parts[1].tensors = {tensor};
              }),
              Refused("placement part tensor descriptor mismatch: w"));
  EXPECT_THAT(with([](P& p) {
                p.parts[1].fragments[0].placement_fragment_id =
                    p.parts[0].fragments[0].placement_fragment_id;
              }),
              Refused("duplicate fragment_id: sha256:"));
}

TEST(Placement, NeedsTensors) {
  EXPECT_THAT(MakePlacement(With(MiniFields(),
                                 [](PlacementFields& p) {
                                   for (PlacementPart& part : p.parts) {
                                     part.tensors.clear();
                                     part.fragments.clear();
                                   }
                                 })),
              Refused("global weight placement must contain tensors"));
}

TEST(Placement, MergesAndSorts) {
  PlacementFields fields = MiniFields();
  std::swap(fields.parts[0], fields.parts[1]);
  fields.parts[1].fragments[0].placement_fragment_id = "b";  // p0
  fields.parts[0].fragments[0].placement_fragment_id = "a";  // p1
  const PlacementPtr placement = MakePlacement(fields).value();
  EXPECT_EQ(placement->parts[0].participant_id, "p0");
  ASSERT_EQ(placement->tensors.size(), 1U);
  ASSERT_EQ(placement->fragments.size(), 2U);
  EXPECT_EQ(placement->fragments[0].placement_fragment_id, "a");
  EXPECT_EQ(placement->fragments[0].rank.tp, 1);
  EXPECT_EQ(placement->digest, PlacementDigest(*placement));
  EXPECT_EQ(placement->placement_id, PlacementId(*placement));
  EXPECT_EQ(FindFragment(placement->fragments, "b"), &placement->fragments[1]);
  EXPECT_EQ(FindFragment(placement->fragments, "c"), nullptr);
  EXPECT_EQ(FindPart(*placement, "p1"), &placement->parts[1]);
  EXPECT_EQ(FindPart(*placement, "p2"), nullptr);
}

TEST(Inventory, Checks) {
  using I = FragmentInventory;
  const auto with = [](auto change) {
    return PlacementFromFragments(With(MiniInventory(), change));
  };
  EXPECT_THAT(with([](I& i) { i.tensors.push_back(i.tensors[0]); }),
              Refused("duplicate tensor_id in placement tensors: w"));
  EXPECT_THAT(with([](I& i) {
                i.fragments.push_back(Fragment("y", {0}, {1}));
                i.fragments.push_back(Fragment("x", {0}, {1}));
              }),
              Refused("unknown tensor_id: x"));
  EXPECT_THAT(with([](I& i) {
                i.tensors.push_back(Tensor("y", {1}));
                i.tensors.push_back(Tensor("x", {1}));
              }),
              Refused("global placement contains an unreferenced tensor: x"));
  EXPECT_THAT(with([](I& i) {
                i.fragments[1].rank.tp = 5;
                i.fragments[1].placement_fragment_id = "f";
              }),
              Refused("placement fragment rank has no topology participant: f"));
  EXPECT_THAT(with([](I& i) { i.placement_id = "sha256:0"; }),
              Refused("placement_id does not match canonical logical content"));
}

TEST(Inventory, EqualsTheSamePartsAndKeepsEmptyParticipants) {
  EXPECT_EQ(*PlacementFromFragments(MiniInventory()).value(), *MakePlacement(MiniFields()).value());
  // The tensor lives on pipeline stage 1 alone.
  const PlacementPtr placement =
      PlacementFromFragments(Inventory(Topology({{.pp = 0}, {.pp = 1}}),
                                       {Tensor("w", {4}, {Owned(AxisKind::kPp)})},
                                       {Fragment("w", {0}, {4}, {.pp = 1})}))
          .value();
  ASSERT_EQ(placement->parts.size(), 2U);
  EXPECT_TRUE(placement->parts[0].tensors.empty());
  EXPECT_EQ(placement->parts[1].tensors.size(), 1U);
}

// w and v are tied; all members declare the group on every fragment.
FragmentInventory Tied() {
  const std::vector<std::string> group = {"v", "w"};
  return Inventory(Topology({{}}), {Tensor("v", {4}), Tensor("w", {4})},
                   {Fragment("v", {0}, {4}, {}, group), Fragment("w", {0}, {2}, {}, group),
                    Fragment("w", {2}, {2}, {}, group)});
}

TEST(Aliases, Checks) {
  using I = FragmentInventory;
  const auto with = [](auto change) { return PlacementFromFragments(With(Tied(), change)); };
  EXPECT_THAT(with([](I&) {}), Accepted());
  EXPECT_THAT(with([](I& i) {
                i.fragments[0].aliases = {"v", "b", "a"};
              }),
              Refused("alias group references unknown tensor: a"));
  EXPECT_THAT(with([](I& i) { i.fragments[0].aliases = {}; }),
              Refused("alias group is not declared consistently for tensor: v"));
  EXPECT_THAT(with([](I& i) { i.fragments[2].aliases = {}; }),
              Refused("alias group is not declared consistently for tensor: w"));
  // Shapes and dtypes of members may differ at this level.
  EXPECT_THAT(with([](I& i) {
                i.tensors[0] = Tensor("v", {2, 2});
                i.fragments[0] = Fragment("v", {0, 0}, {2, 2}, {}, {"w", "v"});
              }),
              Accepted());
}

// A part alone says nothing about the other members of a group.
TEST(Aliases, AreNotCheckedInAPart) {
  PlacementPart part = MiniPart(0);
  part.fragments = {Fragment("w", {0, 0}, {2, 2}, {}, {"w", "elsewhere"})};
  EXPECT_THAT(MakePart(part), Accepted());
}

}  // namespace
}  // namespace mooncake::manifest
