// The extended forms' values: JSON, ids, canonical order, and everything they refuse.
#include "manifest/extension.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "manifest/canonical.h"
#include "manifest/contract_samples.h"
#include "manifest/json.h"

namespace mooncake::manifest {
namespace {

TensorDescriptor With(TensorDescriptor tensor, TensorExtension extension) {
  tensor.extension = std::make_shared<const TensorExtension>(std::move(extension));
  return tensor;
}

Result<TensorDescriptor> Make(Extents shape, TensorExtension extension) {
  return MakeTensorDescriptor(With(Tensor("w", std::move(shape)), std::move(extension)));
}

PlacementFragment Piece(const std::string& id, Extents offset, Extents shape, ParallelRank rank,
                        std::optional<int64_t> slot = std::nullopt) {
  PlacementFragment fragment;
  fragment.tensor_id = id;
  fragment.nbytes = 2;
  for (const int64_t extent : shape) fragment.nbytes *= static_cast<uint64_t>(extent);
  fragment.global_offset = std::move(offset);
  fragment.local_shape = std::move(shape);
  fragment.rank = rank;
  fragment.slot = slot;
  return MakePlacementFragment(std::move(fragment), std::nullopt, FragmentForm::kExtended).value();
}

// "w" of (4, 2): rows 0-1 held by p0 and p1, rows 2-3 by p1.
FragmentInventory OwnedInventory() {
  TensorExtension extension;
  extension.ownership = {{{{2, 0}, {2, 2}, {"p1"}}, {{0, 0}, {2, 2}, {"p1", "p0"}}}};
  return Inventory(Topology({{.tp = 0}, {.tp = 1}}), {With(Tensor("w", {4, 2}), extension)},
                   {Piece("w", {0, 0}, {2, 2}, {.tp = 0}), Piece("w", {0, 0}, {2, 2}, {.tp = 1}),
                    Piece("w", {2, 0}, {2, 2}, {.tp = 1})});
}

TEST(Extension, JsonAndIdsAreWhatAStrangerWouldCompute) {
  FragmentInventory inventory = OwnedInventory();
  inventory.omitted_tensors = {"z", "mtp"};
  const PlacementPtr placement = PlacementFromFragments(inventory).value();
  const std::string text = PlacementToJson(*placement);
  nlohmann::json document = nlohmann::json::parse(text);
  EXPECT_EQ(document.dump(), text);  // sorted keys, no spaces
  EXPECT_EQ(document["extended_form"], 1);
  EXPECT_EQ(document["omitted_tensors"], (std::vector<std::string>{"mtp", "z"}));
  EXPECT_EQ(document["tensors"][0]["extension"].dump(),
            R"({"ownership":[[{"offset":[0,0],"owners":["p0","p1"],"shape":[2,2]},)"
            R"({"offset":[2,0],"owners":["p1"],"shape":[2,2]}]]})");
  EXPECT_EQ(placement->digest, ToHex(Sha256Of(text)));
  nlohmann::json hashed = document;
  hashed.erase("placement_id");
  hashed.erase("resource_kind");
  hashed["schema"] = "extended-weight-placement";
  EXPECT_EQ(placement->placement_id, "sha256:" + ToHex(Sha256Of(hashed.dump())));
  nlohmann::json geometry = document;
  for (const char* key : {"placement_id", "resource_kind", "resource_id", "revision",
                          "weight_generation", "placement_set_id"}) {
    geometry.erase(key);
  }
  geometry["placement_geometry"] = 1;
  EXPECT_EQ(placement->geometry_digest, ToHex(Sha256Of(geometry.dump())));
  EXPECT_EQ(PlacementGeometryDigest(*placement), placement->geometry_digest);
  const PlacementPtr again = PlacementFromJson(text).value();
  EXPECT_EQ(*again, *placement);
}

// What was published once never changes (docs/extended_forms.md has the same documents).
TEST(Extension, GoldenDocuments) {
  std::ifstream file(MOONCAKE_SOURCE_DIR "/tests/golden/extended_vectors.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const char* name : {"owned", "everything"}) {
    const std::string text = golden[name]["json"];
    const PlacementPtr placement = PlacementFromJson(text).value();
    EXPECT_EQ(PlacementToJson(*placement), text);
    EXPECT_EQ(placement->digest, golden[name]["digest"]);
    EXPECT_EQ(placement->placement_id, golden[name]["placement_id"]);
    EXPECT_EQ(placement->geometry_digest, golden[name]["geometry_digest"]);
  }
  const std::string text = golden["tied"]["json"];
  const StoredManifestPtr stored = StoredManifestFromJson(text).value();
  EXPECT_EQ(StoredManifestToJson(*stored), text);
  EXPECT_EQ(stored->manifest_digest, golden["tied"]["digest"]);
}

TEST(Extension, FragmentIds) {
  const PlacementFragment base = Fragment("w", {0, 0}, {2, 2});
  EXPECT_EQ(Piece("w", {0, 0}, {2, 2}, {}).placement_fragment_id, base.placement_fragment_id);
  for (const auto& [shape, slot, nbytes] : {std::tuple(Extents{2, 2}, std::optional<int64_t>(3), 8),
                                            {Extents{0, 2}, std::nullopt, 0}}) {
    nlohmann::json hashed = {{"aliases", nlohmann::json::array()},
                             {"global_offset", {0, 0}},
                             {"local_shape", shape},
                             {"nbytes", nbytes},
                             {"rank", {{"dp", 0}, {"ep", 0}, {"pp", 0}, {"tp", 0}}},
                             {"schema", "extended-weight-placement-fragment"},
                             {"tensor_id", "w"}};
    if (slot) hashed["slot"] = *slot;
    EXPECT_EQ(Piece("w", {0, 0}, shape, {}, slot).placement_fragment_id,
              "sha256:" + ToHex(Sha256Of(hashed.dump())));
  }
}

TEST(Extension, EveryKeyRoundTrips) {
  TensorExtension weight;
  weight.padded_shape = Extents{9, 5};
  weight.sections = Sections{0, {{"q", 0, 6}, {"k", 6, 8}}};
  weight.block_scales = BlockScales{"s", {4, 5}, true};
  weight.packing = Packing{1, 9, 2};
  std::vector<PlacementFragment> fragments{
      Piece("w", {0, 0}, {6, 5}, {}), Piece("w", {6, 0}, {2, 5}, {}),
      Piece("s", {0, 0}, {3, 1}, {}), Piece("e", {0}, {0}, {}), Piece("n", {}, {}, {})};
  const PlacementPtr placement =
      PlacementFromFragments(Inventory(Topology({{}}),
                                       {With(Tensor("w", {8, 5}), weight), Tensor("s", {3, 1}),
                                        With(Tensor("e", {0}), {}), With(Tensor("n", {}), {})},
                                       fragments))
          .value();
  const std::string text = PlacementToJson(*placement);
  const nlohmann::json document = nlohmann::json::parse(text);
  EXPECT_EQ(document.dump(), text);
  EXPECT_EQ(document["tensors"][3]["extension"].dump(),
            R"({"block_scales":{"block_shape":[4,5],"scale_tensor_id":"s","shareable":true},)"
            R"("packing":{"dim":1,"extent":9,"factor":2},"padded_shape":[9,5],)"
            R"("sections":{"dim":0,"parts":[{"begin":0,"end":6,"name":"q"},)"
            R"({"begin":6,"end":8,"name":"k"}]}})");
  EXPECT_EQ(document["tensors"][0]["extension"].dump(), "{}");
  EXPECT_EQ(*PlacementFromJson(text).value(), *placement);
}

TEST(Extension, BaseReadersAndWritersKnowNothingOfIt) {
  // The base constructors refuse what only the extended form can say.
  EXPECT_THAT(MakeTensorDescriptor(Tensor("w", {})), Refused("global_shape must not be empty"));
  EXPECT_THAT(MakeTensorDescriptor(Tensor("w", {0})), Refused("global_shape must be at least 1"));
  PlacementFragment empty;
  empty.tensor_id = "w";
  empty.global_offset = {0};
  empty.local_shape = {0};
  EXPECT_THAT(MakePlacementFragment(empty), Refused("local_shape must be at least 1"));
  PlacementFragment slotted = Fragment("w", {0, 0}, {2, 2});
  slotted.slot = 0;
  EXPECT_THAT(MakePlacementFragment(slotted), Refused("slot is for fragments of extended tensors"));
  // A slot or an empty shard of a base tensor is refused within an extended placement too.
  for (const PlacementFragment& fragment :
       {Piece("b", {0}, {2}, {}, 0), Piece("b", {0}, {0}, {})}) {
    EXPECT_FALSE(PlacementFromFragments(Inventory(Topology({{}}),
                                                  {Tensor("b", {2}), With(Tensor("n", {}), {})},
                                                  {fragment, Piece("n", {}, {}, {})}))
                     .ok());
  }
  // A document is in exactly one form.
  const std::string base = PlacementToJson(*PlacementFromFragments(MiniInventory()).value());
  nlohmann::json document = nlohmann::json::parse(base);
  document["extended_form"] = 1;
  document["omitted_tensors"] = nlohmann::json::array();
  EXPECT_THAT(PlacementFromJson(document.dump()),
              Refused("placement manifest extended_form without an extended value"));
}

TEST(Extension, DocumentsThatAreRefused) {
  const std::string text = PlacementToJson(*PlacementFromFragments(OwnedInventory()).value());
  const auto refused = [&](auto change, const char* message) {
    nlohmann::json document = nlohmann::json::parse(text);
    change(document);
    EXPECT_THAT(PlacementFromJson(document.dump()), Refused(message)) << document.dump();
  };
  const auto extension = [](nlohmann::json& d) -> nlohmann::json& {
    return d["tensors"][0]["extension"];
  };
  refused([](auto& d) { d["extended_form"] = 2; }, "placement manifest extended_form must be 1");
  refused([](auto& d) { d["extended_form"] = true; }, "placement manifest extended_form must be 1");
  refused([](auto& d) { d.erase("extended_form"); },
          "placement manifest schema fields do not match contract");
  refused([](auto& d) { d.erase("omitted_tensors"); },
          "placement manifest schema fields do not match contract");
  refused([](auto& d) { d.erase("extended_form"), d.erase("omitted_tensors"); },
          "placement tensor 0 schema fields do not match contract");
  refused(
      [](auto& d) {
        d["omitted_tensors"] = {"a", "a"};
      },
      "omitted_tensors must not contain duplicates: a");
  refused([](auto& d) { d["omitted_tensors"] = {3}; },
          "omitted_tensors must be a non-empty string");
  refused([&](auto& d) { extension(d) = 3; }, "placement tensor 0 extension must be a JSON object");
  refused([&](auto& d) { extension(d)["more"] = 1; },
          "schema fields do not match contract: unknown more");
  refused([&](auto& d) { extension(d)["ownership"] = nlohmann::json::array(); },
          "placement tensor 0 extension must not be empty");
  refused([&](auto& d) { extension(d)["ownership"][0][0].erase("owners"); },
          "placement tensor 0 extension schema fields do not match contract");
  refused(
      [&](auto& d) {
        extension(d)["ownership"][0][0]["owners"] = {"p0", "px"};
      },
      "explicit ownership names an unknown participant: w: px");
  refused(
      [&](auto& d) {
        extension(d)["padded_shape"] = {4, 2.5};
      },
      "placement tensor 0 extension must be an integer at least 0");
  refused(
      [&](auto& d) {
        extension(d)["packing"] = {{"dim", 0}};
      },
      "placement tensor 0 extension schema fields do not match contract");
  refused(
      [&](auto& d) {
        extension(d)["block_scales"] = {
            {"block_shape", {1, 1}}, {"scale_tensor_id", "s"}, {"shareable", 1}};
      },
      "placement tensor 0 extension must be true or false");
  refused([](auto& d) { d["parts"][0]["fragments"][0]["slot"] = -1; },
          "placement fragment 0 slot must be an integer at least 0");
}

TEST(Extension, Ownership) {
  const auto owned = [](std::vector<OwnedTiling> ownership) {
    TensorExtension extension;
    extension.ownership = std::move(ownership);
    return extension;
  };
  const OwnedTiling whole{{{0, 0}, {4, 2}, {"a"}}};
  EXPECT_TRUE(Make({4, 2}, owned({whole})).ok());
  TensorDescriptor with_axes = With(Tensor("w", {4, 2}, {Split(AxisKind::kTp, 0)}), owned({whole}));
  EXPECT_THAT(MakeTensorDescriptor(with_axes),
              Refused("explicit ownership replaces parallel_axes and shard_dims: w"));
  EXPECT_THAT(Make({4, 2}, owned({{}})), Refused("explicit ownership tiling has no boxes: w"));
  EXPECT_THAT(Make({4, 2}, owned({{{{0, 0}, {4, 2}, {}}}})),
              Refused("explicit ownership box has no owner: w"));
  for (const OwnedBox& box : {OwnedBox{{1, 0}, {4, 2}, {"a"}}, OwnedBox{{-1, 0}, {4, 2}, {"a"}},
                              OwnedBox{{0, 0}, {0, 2}, {"a"}}, OwnedBox{{0}, {4}, {"a"}},
                              OwnedBox{{INT64_MAX, 0}, {4, 2}, {"a"}}}) {
    EXPECT_THAT(Make({4, 2}, owned({{box}})),
                Refused("explicit ownership box is out of bounds: w"));
  }
  EXPECT_THAT(Make({4, 2}, owned({{{{0, 0}, {3, 2}, {"a"}}}})),
              Refused("explicit ownership does not tile the tensor exactly: w: 1 boxes"));
  EXPECT_THAT(Make({4, 2}, owned({{{{0, 0}, {3, 2}, {"a"}}, {{2, 0}, {1, 2}, {"b"}}}})),
              Refused("explicit ownership does not tile the tensor exactly: w"));
  EXPECT_THAT(Make({4, 2}, owned({whole, whole})),
              Refused("explicit ownership repeats a tiling: w"));
  EXPECT_THAT(Make({0, 2}, owned({whole})), Refused("explicit ownership of an empty tensor: w"));
  EXPECT_THAT(Make(Extents(9, 1), {}), Refused("an extended tensor has at most 8 dimensions"));
}

TEST(Extension, FragmentsAreExactlyWhatIsDeclared) {
  FragmentInventory lacks = OwnedInventory();
  lacks.fragments.erase(lacks.fragments.begin());
  EXPECT_THAT(PlacementFromFragments(lacks),
              Refused("explicit ownership and fragments differ: w: p0 at offset (0, 0) and shape "
                      "(2, 2): declared 1, found 0"));
  FragmentInventory more = OwnedInventory();
  more.fragments.push_back(Piece("w", {2, 0}, {2, 2}, {.tp = 0}));
  EXPECT_THAT(PlacementFromFragments(more), Refused("declared 0, found 1"));
  FragmentInventory twice = OwnedInventory();
  twice.fragments.push_back(Piece("w", {0, 0}, {2, 2}, {.tp = 0}, 1));
  EXPECT_THAT(PlacementFromFragments(twice), Refused("declared 1, found 2"));
  FragmentInventory same_slot = OwnedInventory();
  same_slot.fragments.push_back(same_slot.fragments[0]);
  same_slot.fragments.back().placement_fragment_id = "another";
  EXPECT_THAT(PlacementFromFragments(same_slot),
              Refused("duplicate logical fragment for tensor and parallel rank"));
  FragmentInventory empty = OwnedInventory();
  empty.fragments.push_back(Piece("w", {4, 0}, {0, 2}, {.tp = 0}));
  EXPECT_TRUE(PlacementFromFragments(empty).ok());
}

TEST(Extension, PaddedShapeSectionsAndPacking) {
  const auto padded = [](Extents shape) {
    return TensorExtension{.padded_shape = std::move(shape)};
  };
  EXPECT_TRUE(Make({4, 2}, padded({4, 3})).ok());
  EXPECT_THAT(Make({4, 2}, padded({4})),
              Refused("padded_shape must have the rank of global_shape"));
  EXPECT_THAT(Make({4, 2}, padded({4, 1})),
              Refused("padded_shape must not be smaller than global_shape: w: (4, 1) and (4, 2)"));

  const auto fused = [](int64_t dim, std::vector<SectionPart> parts) {
    return TensorExtension{.sections = Sections{dim, std::move(parts)}};
  };
  EXPECT_TRUE(Make({4, 2}, fused(0, {{"q", 0, 3}, {"k", 3, 4}})).ok());
  EXPECT_THAT(Make({4, 2}, fused(2, {{"q", 0, 4}})), Refused("sections dimension is out of range"));
  EXPECT_THAT(Make({4, 2}, fused(0, {})), Refused("sections must not be empty"));
  EXPECT_THAT(Make({4, 2}, fused(0, {{"q", 0, 2}, {"q", 2, 4}})),
              Refused("section names must not contain duplicates: w: q"));
  EXPECT_THAT(Make({4, 2}, fused(0, {{"", 0, 4}})), Refused("section name must be a non-empty"));
  for (const auto& parts : std::vector<std::vector<SectionPart>>{
           {{"q", 0, 2}, {"k", 3, 4}}, {{"q", 0, 3}}, {{"q", 0, 5}}, {{"q", 0, 0}, {"k", 0, 4}}}) {
    EXPECT_THAT(Make({4, 2}, fused(0, parts)), Refused("sections do not fill the dimension: w"));
  }
  EXPECT_THAT(PlacementFromFragments(Inventory(
                  Topology({{}}), {With(Tensor("w", {4}), fused(0, {{"q", 0, 3}, {"k", 3, 4}}))},
                  {Piece("w", {0}, {4}, {})})),
              Refused("[0, 4) of dimension 0 of w crosses 3, where q ends and k begins"));

  const auto packed = [](int64_t dim, int64_t extent, int64_t factor) {
    return TensorExtension{.packing = Packing{dim, extent, factor}};
  };
  EXPECT_TRUE(Make({4, 2}, packed(1, 3, 2)).ok());
  EXPECT_THAT(Make({4, 2}, packed(-1, 4, 2)), Refused("packing dimension is out of range"));
  EXPECT_THAT(Make({4, 2}, packed(1, 2, 1)), Refused("packing factor must be at least 2, got 1"));
  EXPECT_THAT(Make({4, 2}, packed(1, 5, 2)),
              Refused("5 elements, 2 an item, are 3 items along dimension 1, got 2"));
}

TEST(Extension, BlockScales) {
  const auto placed = [](const Extents& scale_shape, const char* scale_id, Extents block) {
    TensorExtension extension{.block_scales = BlockScales{scale_id, std::move(block), true}};
    PlacementFragment scales = Piece("s", Extents(scale_shape.size(), 0), scale_shape, {});
    return PlacementFromFragments(
        Inventory(Topology({{}}), {With(Tensor("w", {6, 4}), extension), Tensor("s", scale_shape)},
                  {Piece("w", {0, 0}, {6, 4}, {}), scales}));
  };
  EXPECT_TRUE(placed({2, 1}, "s", {4, 4}).ok());
  EXPECT_THAT(placed({2, 1}, "s", {4}), Refused("block_shape must have the rank of global_shape"));
  EXPECT_THAT(placed({2, 1}, "s", {4, 0}), Refused("block_shape must be at least 1, got 0"));
  EXPECT_THAT(placed({2, 1}, "x", {4, 4}), Refused("block scales name an unknown tensor: w: x"));
  EXPECT_THAT(placed({2, 1}, "w", {4, 4}), Refused("block scales name an unknown tensor: w: w"));
  EXPECT_THAT(placed({2, 2}, "s", {4, 4}),
              Refused("block scales have another shape: w: expected (2, 1) of s, got (2, 2)"));
  // Blocks begin anew in each section.
  TensorDescriptor fused =
      With(Tensor("w", {10, 4}), {.sections = Sections{0, {{"q", 0, 6}, {"k", 6, 10}}},
                                  .block_scales = BlockScales{"s", {4, 4}, true}});
  EXPECT_EQ(ScaleShape(fused), (Extents{3, 1}));
}

TEST(Extension, StoredManifests) {
  // One copy: how ranks hold a tensor has no place there.
  StoredManifest owned = MiniStored();
  owned.tensors[0] = With(Tensor("w", {4, 2}), {.padded_shape = Extents{8, 2}});
  EXPECT_THAT(MakeStoredManifest(owned),
              Refused("a stored tensor has no ownership and no padded_shape: w"));

  StoredManifest tied = MiniStored();
  tied.tensors.push_back(tied.tensors[0]);
  tied.tensors[1].tensor_id = "x";
  for (StoredFragment& fragment : tied.fragments) {
    fragment.aliases = {"w", "x"};
    fragment.shares_range = true;
  }
  for (int i = 0; i < 2; ++i) {
    tied.fragments.push_back(tied.fragments[i]);
    tied.fragments.back().tensor_id = "x";
    tied.fragments.back().fragment_id += "x";
  }
  const StoredManifestPtr made = MakeStoredManifest(tied).value();
  const std::string text = StoredManifestToJson(*made);
  EXPECT_EQ(nlohmann::json::parse(text).dump(), text);
  EXPECT_EQ(nlohmann::json::parse(text)["extended_form"], 1);
  EXPECT_EQ(nlohmann::json::parse(text)["fragments"][0]["shares_range"], true);
  EXPECT_EQ(*StoredManifestFromJson(text).value(), *made);
  EXPECT_EQ(made->manifest_digest, ToHex(Sha256Of(text)));

  StoredManifest unmarked = tied;
  unmarked.fragments[0].shares_range = false;
  EXPECT_THAT(MakeStoredManifest(unmarked), Refused("stored fragment object ranges overlap"));
  StoredManifest shifted = tied;
  shifted.fragments[2].object_offset = 4;
  EXPECT_THAT(MakeStoredManifest(shifted), Refused("stored fragment object ranges overlap"));
  StoredManifest other_box = tied;
  std::swap(other_box.fragments[2].object_offset, other_box.fragments[3].object_offset);
  EXPECT_THAT(MakeStoredManifest(other_box), Refused("stored fragment object ranges overlap"));
  StoredManifest alone = MiniStored();
  alone.fragments[0].shares_range = true;
  EXPECT_THAT(MakeStoredManifest(alone),
              Refused("stored fragment shares its range with no other: f0"));

  nlohmann::json document =
      nlohmann::json::parse(StoredManifestToJson(*MakeStoredManifest(MiniStored()).value()));
  document["extended_form"] = 1;
  EXPECT_THAT(StoredManifestFromJson(document.dump()),
              Refused("weight manifest extended_form without an extended value"));
  // The geometry is that of the bytes below the group.
  StoredManifest next = tied;
  next.weight_generation = 2;
  next.created_at = "later";
  next.group_id = "weights/d/m/r/2";
  next.manifest_key = next.group_id + "/manifest";
  for (StoredFragment& fragment : next.fragments) {
    fragment.object_key = next.group_id + fragment.object_key.substr(made->group_id.size());
  }
  EXPECT_EQ(StoredGeometryDigest(*MakeStoredManifest(next).value()), StoredGeometryDigest(*made));
  next.fragments[0].fragment_id = "g";
  EXPECT_NE(StoredGeometryDigest(*MakeStoredManifest(next).value()), StoredGeometryDigest(*made));
}

}  // namespace
}  // namespace mooncake::manifest
