// Plans for the next generation, saved and loaded: the same bytes, and everything else refused.
#include "reshard/plan_reuse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/digest.h"
#include "manifest/contract_samples.h"
#include "reshard/element_oracle.h"
#include "reshard/planner.h"
#include "reshard/random_extended.h"

namespace mooncake::reshard {
namespace {

using manifest::PlacementPtr;
using manifest::Refused;

manifest::FragmentInventory Generation(manifest::FragmentInventory inventory, uint64_t generation) {
  inventory.weight_generation = generation;
  inventory.revision = "step-" + std::to_string(generation);
  inventory.placement_set_id = "set-" + std::to_string(generation);
  return inventory;
}

manifest::StoredManifestPtr Stored(const PlacementPtr& placement) {
  const std::string group = "g" + std::to_string(placement->weight_generation);
  return BuildStoredManifest(*PlanUpload(placement, group, 64), "d", group).value();
}

std::vector<PlannedOperation> Operations(const LogicalPlan& plan) {
  return {plan.operations().begin(), plan.operations().end()};
}

// Equal in all that a caller can ask for.
std::string WhatDiffers(const LogicalPlan& a, const LogicalPlan& b) {
  if (Operations(a) != Operations(b)) return "operations";
  if (a.total_bytes() != b.total_bytes()) return "bytes";
  if (a.total_segments() != b.total_segments()) return "segments";
  if (a.local_target_part() != b.local_target_part()) return "part";
  if (!std::equal(a.source_executors().begin(), a.source_executors().end(),
                  b.source_executors().begin(), b.source_executors().end())) {
    return "source executors";
  }
  if (!std::equal(a.target_executors().begin(), a.target_executors().end(),
                  b.target_executors().begin(), b.target_executors().end())) {
    return "target executors";
  }
  if (a.source_tensors().size() != b.source_tensors().size()) return "source tensors";
  if (a.target_tensors().size() != b.target_tensors().size()) return "target tensors";
  return a.limits() == b.limits() ? "" : "limits";
}

RC_GTEST_PROP(PlanReuse, TheNextGenerationAndAFileGiveTheSameBytes, ()) {
  const auto seed = *rc::gen::noShrink(rc::gen::arbitrary<uint64_t>());
  Random random(seed);
  const std::vector<manifest::TensorDescriptor> tensors = RandomTensors(random);
  const manifest::FragmentInventory from = RandomExtended(random, tensors);
  const manifest::FragmentInventory to = RandomExtended(random, tensors);
  const auto made = [](const manifest::FragmentInventory& inventory, uint64_t generation) {
    return manifest::PlacementFromFragments(Generation(inventory, generation)).value();
  };
  const PlacementPtr source = made(from, 1), target = made(to, 1);
  const PlacementPtr next_source = made(from, 2), next_target = made(to, 2);
  const auto check = [&](const LogicalPlan& plan, const PlanSource& here, const PlanSource& next,
                         const LogicalPlan& planned_next) {
    const auto reused = ReusePlan(plan, next, next_target);
    RC_ASSERT(reused.status() == OkStatus());
    RC_ASSERT(WhatDiffers(**reused, planned_next) == "");
    RC_ASSERT(WhatIsWrong(**reused) == "");
    RC_ASSERT((*reused)->weight_generation() == 2);
    RC_ASSERT(GeometryDigestOf(**reused) == GeometryDigestOf(plan));
    const std::string saved = SavePlan(plan).value();
    const auto loaded = LoadPlan(saved, here, target);
    RC_ASSERT(loaded.status() == OkStatus());
    RC_ASSERT(WhatDiffers(**loaded, plan) == "");
    const auto loaded_next = LoadPlan(saved, next, next_target);
    RC_ASSERT(loaded_next.status() == OkStatus());
    RC_ASSERT(WhatDiffers(**loaded_next, planned_next) == "");
  };
  check(*PlanPlacement(source, target).value(), {source, nullptr}, {next_source, nullptr},
        *PlanPlacement(next_source, next_target).value());
  check(*PlanStored(Stored(source), target).value(), {nullptr, Stored(source)},
        {nullptr, Stored(next_source)}, *PlanStored(Stored(next_source), next_target).value());
  for (const manifest::PlacementPart& part : target->parts) {
    if (!manifest::HoldsElements(part)) continue;
    check(*PlanStoredToLocalTarget(Stored(source), target, part.participant_id).value(),
          {nullptr, Stored(source)}, {nullptr, Stored(next_source)},
          *PlanStoredToLocalTarget(Stored(next_source), next_target, part.participant_id).value());
  }
}

PlacementPtr Mini(uint64_t generation) {
  manifest::FragmentInventory inventory = manifest::MiniInventory();
  inventory.weight_generation = generation;
  return manifest::PlacementFromFragments(inventory).value();
}

// The same tensor, whole on one rank.
PlacementPtr Whole(uint64_t generation) {
  manifest::FragmentInventory inventory =
      manifest::Inventory(manifest::Topology({{}}), {manifest::Tensor("w", {4, 2})},
                          {manifest::Fragment("w", {0, 0}, {4, 2})});
  inventory.weight_generation = generation;
  return manifest::PlacementFromFragments(inventory).value();
}

TEST(PlanReuse, OtherGeometryIsRefused) {
  const auto plan = PlanPlacement(Mini(1), Whole(1)).value();
  EXPECT_TRUE(ReusePlan(*plan, {Mini(2), nullptr}, Whole(2)).ok());
  EXPECT_THAT(ReusePlan(*plan, {Whole(2), nullptr}, Whole(2)),
              Refused("the plan is of another geometry: the plan's is " + GeometryDigestOf(*plan)));
  EXPECT_THAT(ReusePlan(*plan, {nullptr, Stored(Mini(2))}, Whole(2)),
              Refused("the plan is of another geometry"));
  EXPECT_THAT(ReusePlan(*plan, {Mini(2), nullptr}, Whole(3)),
              Refused("source and target weight_generation differ: 2 and 3"));
  // A plan of one participant is not one of all, even where it fills the same.
  const auto local = PlanPlacementToLocalTarget(Mini(1), Whole(1), "p0").value();
  EXPECT_NE(GeometryDigestOf(*local), GeometryDigestOf(*plan));
}

TEST(PlanReuse, BindingChecksTheGenerationAgain) {
  const auto plan = PlanStoredToLocalTarget(Stored(Mini(1)), Whole(1), "p0").value();
  const PlacementPtr next = Whole(2);
  const BoundMemory memory = BindMemory(*next, next->parts[0]);
  EXPECT_THAT(BindStoredToLocalTarget(plan, *memory.binding),
              Refused("placement_id and runtime binding placement_id differ"));
  const auto reused = ReusePlan(*plan, {nullptr, Stored(Mini(2))}, next).value();
  EXPECT_TRUE(BindStoredToLocalTarget(reused, *memory.binding).ok());
}

// A saved plan whose checksum fits whatever `change` did to it.
template <class Change>
std::string Forged(const LogicalPlan& plan, Change change) {
  std::string saved = SavePlan(plan).value();
  saved.resize(saved.size() - 32);
  change(saved);
  const Sha256Digest check = Sha256Of(saved);
  saved.append(reinterpret_cast<const char*>(check.data()), check.size());
  return saved;
}

TEST(SavedPlan, EveryDamagedByteIsRefused) {
  const auto plan = PlanPlacement(Mini(1), Whole(1)).value();
  const std::string saved = SavePlan(*plan).value();
  ASSERT_TRUE(LoadPlan(saved, {Mini(1), nullptr}, Whole(1)).ok());
  for (size_t i = 0; i < saved.size(); ++i) {
    std::string damaged = saved;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(LoadPlan(damaged, {Mini(1), nullptr}, Whole(1)).ok()) << i;
    EXPECT_FALSE(LoadPlan(saved.substr(0, i), {Mini(1), nullptr}, Whole(1)).ok()) << i;
  }
  EXPECT_THAT(LoadPlan("", {Mini(1), nullptr}, Whole(1)), Refused("not a saved plan"));
  EXPECT_THAT(LoadPlan(saved + "x", {Mini(1), nullptr}, Whole(1)),
              Refused("saved plan is damaged"));
}

TEST(SavedPlan, ForgedPlansNeverFillABufferWrongly) {
  const auto plan = PlanPlacement(Mini(1), Whole(1)).value();
  const auto load = [](const std::string& saved) {
    return LoadPlan(saved, {Mini(1), nullptr}, Whole(1));
  };
  const auto operations_at = [](const std::string& saved) { return saved.size() - 16; };
  EXPECT_TRUE(load(Forged(*plan, [](std::string&) {})).ok());
  EXPECT_THAT(load(Forged(*plan, [&](std::string& s) { s[operations_at(s)] = 9; })),
              Refused("target fragment is not fully covered"));
  EXPECT_THAT(
      load(Forged(*plan, [&](std::string& s) { s[operations_at(s) + 8] = s[operations_at(s)]; })),
      Refused("target fragment is not fully covered"));
  EXPECT_THAT(
      load(Forged(
          *plan, [&](std::string& s) { std::swap(s[operations_at(s)], s[operations_at(s) + 8]); })),
      Refused("target fragment is not fully covered"));
  EXPECT_THAT(load(Forged(*plan, [&](std::string& s) { s[operations_at(s) + 4] = 1; })),
              Refused("target fragment is not fully covered"));
  EXPECT_THAT(load(Forged(*plan, [&](std::string& s) { s[operations_at(s) + 12] = 1; })),
              Refused("target fragment is not fully covered"));
  // A file's own limits hold for its operations.
  EXPECT_THAT(load(Forged(*plan,
                          [](std::string& s) {
                            const uint64_t one = 1;
                            std::memcpy(s.data() + 76, &one, sizeof(one));
                          })),
              Refused("logical transfer plan exceeds max_transfer_regions: 1, it needs 2"));
  EXPECT_THAT(load(Forged(*plan, [](std::string& s) { s.resize(s.size() - 1); })),
              Refused("saved plan has 15 bytes for 2 operations of 8"));
  EXPECT_THAT(load(Forged(*plan, [](std::string& s) { s.resize(80); })),
              Refused("saved plan ends early"));
  EXPECT_THAT(load(Forged(*plan, [](std::string& s) { s[72] = '\xff'; })),
              Refused("saved plan ends early: 255 bytes wanted"));
}

}  // namespace
}  // namespace mooncake::reshard
