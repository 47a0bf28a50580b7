// Ids, digests and JSON against the published vectors (tests/golden/reshard_vectors.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "manifest/canonical.h"
#include "manifest/contract_samples.h"
#include "manifest/json.h"

namespace mooncake::manifest {
namespace {

const nlohmann::json& Vectors() {
  static const nlohmann::json vectors = [] {
    std::ifstream file(MOONCAKE_SOURCE_DIR "/tests/golden/reshard_vectors.json");
    return nlohmann::json::parse(file);
  }();
  return vectors;
}

ParallelRank RankOf(const nlohmann::json& json) {
  return {.dp = json["dp"], .tp = json["tp"], .pp = json["pp"], .ep = json["ep"]};
}

TEST(Golden, FragmentIds) {
  ASSERT_FALSE(Vectors()["fragment_ids"].empty());
  for (const auto& vector : Vectors()["fragment_ids"]) {
    const auto& input = vector["input"];
    PlacementFragment fragment;
    fragment.tensor_id = input["tensor_id"].get<std::string>();
    fragment.global_offset = input["global_offset"].get<Extents>();
    fragment.local_shape = input["local_shape"].get<Extents>();
    fragment.nbytes = input["nbytes"];
    fragment.rank = RankOf(input["rank"]);
    if (input.contains("pipeline_stage_id")) {
      fragment.pipeline_stage_id = input["pipeline_stage_id"].get<int64_t>();
    }
    if (input.contains("aliases")) fragment.aliases = input["aliases"];
    EXPECT_EQ(MakePlacementFragment(fragment).value().placement_fragment_id, vector["id"]);
    EXPECT_EQ(PlacementFragmentId(fragment), vector["id"]);
  }
}

TEST(Golden, PlacementsRoundTripWithTheirIdsAndDigests) {
  for (const char* name : {"mini", "source", "target"}) {
    SCOPED_TRACE(name);
    const auto& vector = Vectors()[name];
    const std::string text = vector["json"];
    const PlacementPtr placement = PlacementFromJson(text).value();
    EXPECT_EQ(placement->placement_id, vector["placement_id"]);
    EXPECT_EQ(placement->digest, vector["digest"]);
    EXPECT_EQ(placement->topology.topology_id, vector["topology_id"]);
    EXPECT_EQ(PlacementToJson(*placement), text);
    EXPECT_EQ(PlacementId(*placement), vector["placement_id"]);
    EXPECT_EQ(PlacementDigest(*placement), vector["digest"]);
    EXPECT_EQ(TopologyId(placement->topology), vector["topology_id"]);
    for (const PlacementFragment& fragment : placement->fragments) {
      EXPECT_EQ(PlacementFragmentId(fragment), fragment.placement_fragment_id);
    }
    EXPECT_EQ(*PlacementFromJson(PlacementToJson(*placement)).value(), *placement);
  }
}

TEST(Golden, StoredManifestRoundTrip) {
  const auto& vector = Vectors()["mini_stored"];
  const std::string text = vector["json"];
  const StoredManifestPtr manifest = StoredManifestFromJson(text).value();
  EXPECT_EQ(manifest->manifest_digest, vector["manifest_digest"]);
  EXPECT_EQ(StoredManifestToJson(*manifest), text);
  EXPECT_EQ(StoredManifestDigest(*manifest), vector["manifest_digest"]);
  EXPECT_EQ(IdentityOf(*manifest).content_sha256, vector["manifest_digest"]);
}

// The same placement made from plain values instead of JSON.
TEST(Golden, MiniPlacementFromValues) {
  FragmentInventory inventory = MiniInventory();
  for (auto& participant : inventory.topology.participants) {
    participant.participant_id[0] = 'w';
  }
  inventory.topology = MakeTopology(inventory.topology).value();
  const PlacementPtr placement = PlacementFromFragments(inventory).value();
  EXPECT_EQ(PlacementToJson(*placement), Vectors()["mini"]["json"]);
}

// The stand-alone digests that the specification quotes.
TEST(Golden, QuotedFragmentId) {
  PlacementFragment fragment = Fragment("weight", {0, 0}, {4, 4}, {.tp = 1});
  EXPECT_EQ(fragment.placement_fragment_id,
            "sha256:73b1b25fe8cf11d48697cfd441a400d57ef84d52583d392c09453b5b79a86035");
}

}  // namespace
}  // namespace mooncake::manifest
