// Ids, digests and JSON of random values: independent of input order, equal to what another JSON
// writer makes of the same content, and read back to the same value.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/digest.h"
#include "manifest/canonical.h"
#include "manifest/contract_samples.h"
#include "manifest/json.h"

namespace mooncake::manifest {
namespace {

using nlohmann::json;

std::string Text(const std::string& prefix) {
  static const std::vector<std::string> pieces = {"a",  "Z",      ".",      "/", "\"",        "\\",
                                                  "\n", "\t",     "\x01",   " ", "\x7f",      "é",
                                                  "中", "\u2028", "\ufffd", "😀", "\U0010ffff"};
  std::string text = prefix;
  for (int n = *rc::gen::inRange(1, 6); n > 0; --n) text += *rc::gen::elementOf(pieces);
  return text;
}

std::vector<int64_t> Pieces(int64_t extent, int64_t parts) {  // lengths, each >= 1
  std::vector<int64_t> lengths(parts, 1);
  for (int64_t left = extent - parts; left > 0; --left)
    ++lengths[*rc::gen::inRange<size_t>(0, parts)];
  return lengths;
}

// A valid placement of a few tensors over TP x DP, with stage ids, aliases and explicit ids at
// times.
FragmentInventory RandomInventory() {
  const int64_t tp = *rc::gen::inRange<int64_t>(1, 4);
  const int64_t dp = *rc::gen::inRange<int64_t>(1, 3);
  std::vector<ParallelRank> ranks;
  for (int64_t d = 0; d < dp; ++d) {
    for (int64_t t = 0; t < tp; ++t) ranks.push_back({.dp = d, .tp = t});
  }
  ParallelTopology topology = Topology(ranks);
  for (auto& participant : topology.participants) {
    participant.participant_id = Text(participant.participant_id);
  }
  topology = MakeTopology(topology).value();

  std::vector<TensorDescriptor> tensors;
  std::vector<PlacementFragment> fragments;
  const std::vector<std::string> tied = {Text("tied0"), Text("tied1")};
  const int count = *rc::gen::inRange(2, 6);
  const bool tie = *rc::gen::arbitrary<bool>();
  for (int i = 0; i < count; ++i) {
    const int64_t dim = *rc::gen::inRange<int64_t>(0, 2);
    Extents shape = {*rc::gen::inRange<int64_t>(tp, 3 * tp + 1),
                     *rc::gen::inRange<int64_t>(tp, 3 * tp + 1)};
    const bool in_group = tie && i < 2;
    TensorDescriptor tensor = Tensor(in_group ? tied[i] : Text(std::to_string(i)), shape,
                                     {Split(AxisKind::kTp, dim), Replicated(AxisKind::kDp)});
    tensor.dtype = Text("d");
    tensor.layout_fingerprint = Text("l");
    if (*rc::gen::arbitrary<bool>()) tensor.layer_id = std::nullopt;
    if (*rc::gen::arbitrary<bool>()) tensor.expert_id = *rc::gen::inRange<int64_t>(0, 100);
    const std::vector<int64_t> pieces = Pieces(shape[dim], tp);
    Extents offset = {0, 0};
    for (int64_t t = 0; t < tp; ++t) {
      Extents local = shape;
      local[dim] = pieces[t];
      for (int64_t d = 0; d < dp; ++d) {
        PlacementFragment fragment = Fragment(tensor.tensor_id, offset, local, {.dp = d, .tp = t},
                                              in_group ? tied : std::vector<std::string>{});
        if (*rc::gen::inRange(0, 3) == 0)
          fragment.pipeline_stage_id = *rc::gen::inRange<int64_t>(0, 9);
        std::optional<std::string> id;
        if (*rc::gen::inRange(0, 4) == 0) id = Text("id" + std::to_string(fragments.size()) + "-");
        fragments.push_back(MakePlacementFragment(fragment, id).value());
      }
      offset[dim] += pieces[t];
    }
    tensors.push_back(tensor);
  }
  FragmentInventory inventory = Inventory(topology, tensors, fragments);
  inventory.resource_id = Text("m");
  inventory.revision = Text("r");
  inventory.placement_set_id = Text("s");
  inventory.weight_generation = *rc::gen::arbitrary<uint64_t>();
  return inventory;
}

std::string OracleSha256(json content, const char* schema) {
  content["schema"] = schema;
  return "sha256:" + ToHex(Sha256Of(content.dump(-1, ' ', true)));
}

TEST(Identity, PlacementsAgreeWithAnotherJsonWriter) {
  EXPECT_TRUE(rc::check([] {
    const PlacementPtr placement = PlacementFromFragments(RandomInventory()).value();
    const std::string text = PlacementToJson(*placement);
    const json content = json::parse(text);
    RC_ASSERT(content.dump(-1, ' ', true) == text);
    RC_ASSERT(placement->digest == ToHex(Sha256Of(text)));
    json hashed = content;
    hashed.erase("placement_id");
    hashed.erase("resource_kind");
    RC_ASSERT(placement->placement_id == OracleSha256(hashed, "complete-weight-placement"));
    json topology = content["topology"];
    topology.erase("topology_id");
    RC_ASSERT(placement->topology.topology_id ==
              OracleSha256(topology, "weight-parallel-topology"));
    for (const json& part : content["parts"]) {
      for (json fragment : part["fragments"]) {
        const std::string id = fragment["placement_fragment_id"];
        const PlacementFragment* found = nullptr;
        for (const auto& f : placement->fragments) {
          if (f.placement_fragment_id == id) found = &f;
        }
        RC_ASSERT(found != nullptr);
        fragment.erase("placement_fragment_id");
        RC_ASSERT(PlacementFragmentId(*found) ==
                  OracleSha256(fragment, "weight-placement-fragment"));
      }
    }
  }));
}

TEST(Identity, InputOrderNeverMatters) {
  EXPECT_TRUE(rc::check([] {
    FragmentInventory inventory = RandomInventory();
    const PlacementPtr placement = PlacementFromFragments(inventory).value();
    std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
    std::shuffle(inventory.fragments.begin(), inventory.fragments.end(), random);
    std::shuffle(inventory.tensors.begin(), inventory.tensors.end(), random);
    for (TensorDescriptor& tensor : inventory.tensors) {
      std::shuffle(tensor.parallel_axes.begin(), tensor.parallel_axes.end(), random);
    }
    for (PlacementFragment& fragment : inventory.fragments) {
      std::shuffle(fragment.aliases.begin(), fragment.aliases.end(), random);
    }
    auto& participants = inventory.topology.participants;
    std::shuffle(participants.begin(), participants.end(), random);
    inventory.topology = MakeTopology(inventory.topology, inventory.topology.topology_id).value();
    RC_ASSERT(*PlacementFromFragments(inventory).value() == *placement);

    PlacementFields fields{.resource_id = placement->resource_id,
                           .revision = placement->revision,
                           .weight_generation = placement->weight_generation,
                           .placement_set_id = placement->placement_set_id,
                           .topology = placement->topology,
                           .parts = placement->parts,
                           .placement_id = placement->placement_id};
    std::shuffle(fields.parts.begin(), fields.parts.end(), random);
    for (PlacementPart& part : fields.parts) {
      std::shuffle(part.tensors.pointers().begin(), part.tensors.pointers().end(), random);
      std::shuffle(part.fragments.begin(), part.fragments.end(), random);
    }
    RC_ASSERT(*MakePlacement(fields).value() == *placement);
  }));
}

TEST(Identity, PlacementJsonRoundTrip) {
  EXPECT_TRUE(rc::check([] {
    const PlacementPtr placement = PlacementFromFragments(RandomInventory()).value();
    const std::string text = PlacementToJson(*placement);
    RC_ASSERT(*PlacementFromJson(text).value() == *placement);
    // The same content, spelt differently.
    RC_ASSERT(*PlacementFromJson(json::parse(text).dump(2)).value() == *placement);
  }));
}

// Stores replica dp=0 of a random placement.
StoredManifest RandomStored() {
  const PlacementPtr placement = PlacementFromFragments(RandomInventory()).value();
  StoredManifest manifest;
  manifest.namespace_name = Text("n");
  manifest.resource_id = placement->resource_id;
  manifest.revision = placement->revision;
  manifest.weight_generation = placement->weight_generation;
  manifest.group_id = Text("weights/");
  manifest.manifest_key = manifest.group_id + "/manifest";
  manifest.created_at = Text("now");
  manifest.tensors = placement->tensors;
  uint64_t offset = 0;
  for (const PlacementFragment& fragment : placement->fragments) {
    if (fragment.rank.dp != 0) continue;
    StoredFragment stored;
    stored.fragment_id = fragment.placement_fragment_id;
    stored.tensor_id = fragment.tensor_id;
    stored.global_offset = fragment.global_offset;
    stored.local_shape = fragment.local_shape;
    stored.object_key = manifest.group_id + "/payload/" + Text("");
    stored.object_offset = offset;
    stored.nbytes = fragment.nbytes;
    offset += fragment.nbytes;
    manifest.fragments.push_back(stored);
  }
  return manifest;
}

TEST(Identity, StoredManifestsAgreeWithAnotherJsonWriterAndRoundTrip) {
  EXPECT_TRUE(rc::check([] {
    const StoredManifestPtr manifest = MakeStoredManifest(RandomStored()).value();
    const std::string text = StoredManifestToJson(*manifest);
    RC_ASSERT(json::parse(text).dump() == text);
    RC_ASSERT(manifest->manifest_digest == ToHex(Sha256Of(text)));
    RC_ASSERT(*StoredManifestFromJson(text).value() == *manifest);
    RC_ASSERT(*StoredManifestFromJson(json::parse(text).dump(1, '\t', true)).value() == *manifest);
  }));
}

}  // namespace
}  // namespace mooncake::manifest
