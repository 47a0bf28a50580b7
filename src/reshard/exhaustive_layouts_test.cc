// Every pair of layouts of small shapes, of the families of all_layouts.h: memory to memory, and
// through the store. Each element holds its global index; assembled, cut and compared.
//
// S -> store -> T must equal S -> T in every byte. Larger families run where MOONCAKE_SOAK is set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "manifest/json.h"
#include "reshard/all_layouts.h"
#include "reshard/element_oracle.h"
#include "reshard/planner.h"

namespace mooncake::reshard {
namespace {

using manifest::Extents;
using manifest::PlacementPtr;

bool Soaking() { return std::getenv("MOONCAKE_SOAK") != nullptr; }

// The bytes that the plan leaves in each target fragment, by id.
std::map<std::string, Bytes> Executed(const LogicalPlan& plan,
                                      const std::map<std::string, Bytes>* objects) {
  std::map<std::string, Bytes> filled;
  for (size_t i = 0; i < plan.operations().size(); ++i) {
    const PlannedOperation& operation = plan.operations()[i];
    const manifest::PlacementFragment& target = plan.target_fragments()[operation.target];
    Bytes& bytes = filled[target.placement_fragment_id];
    bytes.resize(target.nbytes, uint8_t{0xee});
    Bytes cut;
    const uint8_t* source = nullptr;
    if (objects != nullptr) {
      const manifest::StoredFragment& stored = plan.source_stored_fragments()[operation.source];
      const std::string name = stored.object_key.substr(stored.object_key.rfind('/') + 1);
      source = objects->at(name).data() + stored.object_offset;
    } else {
      cut = CutFragment(plan.source_tensors(), plan.source_placement_fragments()[operation.source]);
      source = cut.data();
    }
    geometry::ForEachSegment(plan.region(i), [&](uint64_t s, uint64_t t, uint64_t n) {
      MC_CHECK(t + n <= bytes.size());
      std::memcpy(bytes.data() + t, source + s, n);
    });
  }
  return filled;
}

struct Source {
  SourceIndexPtr memory;
  SourceIndexPtr store;
  std::map<std::string, Bytes> objects;
};

Source Indexed(const PlacementPtr& placement) {
  const auto upload = PlanUpload(placement, "g");
  EXPECT_TRUE(upload.ok()) << upload.status().ToString() << manifest::PlacementToJson(*placement);
  const manifest::StoredManifestPtr stored =
      BuildStoredManifest(*upload, "d", "2026-01-01T00:00:00Z").value();
  return {IndexPlacement(placement), IndexStored(stored), UploadedObjects(*upload)};
}

void ExpectEveryPairRight(const std::string& family, const std::vector<PlacementPtr>& layouts,
                          bool every_rank) {
  std::vector<Source> sources;
  sources.reserve(layouts.size());
  for (const PlacementPtr& layout : layouts) sources.push_back(Indexed(layout));
  for (size_t s = 0; s < sources.size(); ++s) {
    for (size_t t = 0; t < layouts.size(); ++t) {
      const std::string pair =
          family + ": layout " + std::to_string(s) + " to " + std::to_string(t);
      const auto direct = PlanFromIndex(sources[s].memory, layouts[t]);
      const auto loaded = PlanFromIndex(sources[s].store, layouts[t]);
      ASSERT_TRUE(direct.ok()) << pair << ": " << direct.status().ToString();
      ASSERT_TRUE(loaded.ok()) << pair << ": " << loaded.status().ToString();
      ASSERT_EQ(WhatIsWrong(**direct), "") << pair;
      ASSERT_EQ(WhatIsWrong(**loaded), "") << pair;
      ASSERT_EQ(Executed(**direct, nullptr), Executed(**loaded, &sources[s].objects)) << pair;
      for (const manifest::PlacementPart& part : layouts[t]->parts) {
        if (!every_rank || part.fragments.empty()) continue;
        const auto local =
            PlanFromIndexToLocalTarget(sources[s].memory, layouts[t], part.participant_id);
        ASSERT_TRUE(local.ok()) << pair << ": " << local.status().ToString();
        ASSERT_EQ(WhatIsWrong(**local), "") << pair << ", " << part.participant_id;
      }
    }
  }
  testing::Test::RecordProperty("pairs of " + family,
                                std::to_string(layouts.size() * layouts.size()));
}

std::string Name(const char* family, const Extents& shape) {
  std::string name = family;
  for (const int64_t extent : shape) name += " " + std::to_string(extent);
  return name;
}

TEST(EveryPairOfLayouts, OwnedByTwoRanks) {
  std::vector<Extents> shapes{{3}, {2, 2}, {1, 2, 2}, {2, 1, 1, 2}};
  if (Soaking()) shapes.push_back({5});
  for (const Extents& shape : shapes) {
    ExpectEveryPairRight(Name("owned", shape), AllOwnedLayouts(shape, 2), true);
  }
}

TEST(EveryPairOfLayouts, OwnedByThreeRanks) {
  std::vector<Extents> shapes{{2}, {1, 2, 1, 1}};
  if (Soaking()) shapes.insert(shapes.end(), {{3}, {1, 3, 1}});
  for (const Extents& shape : shapes) {
    ExpectEveryPairRight(Name("owned", shape), AllOwnedLayouts(shape, 3), true);
  }
}

// Where {2} stands for all sets of owners: the one that is not the first rank.
TEST(EveryPairOfLayouts, EveryDeclarationOfTheAxes) {
  const std::vector<int> every_set{1, 2, 3};
  for (const Extents& shape : std::vector<Extents>{{3}, {2, 3}, {2, 2, 2}, {2, 1, 3, 2}}) {
    const std::vector<int> owners =
        shape.size() <= 2 || Soaking() ? every_set : std::vector<int>{2};
    ExpectEveryPairRight(Name("axes", shape), AllAxisLayouts(shape, owners, {2}), Soaking());
  }
  if (Soaking()) {
    ExpectEveryPairRight("axes, every owner, 2 3", AllAxisLayouts({2, 3}, every_set, every_set),
                         false);
  }
}

}  // namespace
}  // namespace mooncake::reshard
