// Contract JSON, base and extended; saved plans; digests objects.
#include "base/check.h"
#include "base/digest.h"
#include "client/digests.h"
#include "fuzz/decoders.h"
#include "manifest/contract_samples.h"
#include "manifest/json.h"
#include "reshard/plan_reuse.h"
#include "reshard/planner.h"
#include "reshard/random_extended.h"
#include "reshard/upload_plan.h"

namespace mooncake::fuzz {
namespace {

using manifest::PlacementPtr;
using manifest::StoredManifestPtr;

PlacementPtr MiniPlacement() {
  return manifest::PlacementFromFragments(manifest::MiniInventory()).value();
}

// The same tensor whole on one rank.
PlacementPtr WholePlacement() {
  return manifest::PlacementFromFragments(
             manifest::Inventory(manifest::Topology({{}}), {manifest::Tensor("w", {4, 2})},
                                 {manifest::Fragment("w", {0, 0}, {4, 2})}))
      .value();
}

std::vector<PlacementPtr> Placements() {
  std::vector<PlacementPtr> placements{MiniPlacement(), WholePlacement()};
  for (const uint64_t seed : {1, 2, 3}) {
    reshard::Random random(seed);
    const auto tensors = reshard::RandomTensors(random);
    placements.push_back(
        manifest::PlacementFromFragments(reshard::RandomExtended(random, tensors)).value());
  }
  return placements;
}

StoredManifestPtr StoredOf(const PlacementPtr& placement) {
  const auto upload = reshard::PlanUpload(placement, "weights/d/m/r/1", 64).value();
  return reshard::BuildStoredManifest(upload, "d", "2026-01-01T00:00:00Z").value();
}

void CheckRefusal(const Status& status) { MC_CHECK(status.code() == Code::kInvalidArgument); }

}  // namespace

void FeedPlacementJson(std::string_view bytes) {
  const auto placement = manifest::PlacementFromJson(bytes);
  if (!placement.ok()) return CheckRefusal(placement.status());
  const auto again = manifest::PlacementFromJson(manifest::PlacementToJson(**placement));
  MC_CHECK(again.ok() && **again == **placement);
  // What is a placement can be planned, or is refused with a reason.
  const auto upload =
      reshard::PlanUpload(*placement, "weights/d/m/r/1", 64, reshard::ReplicaScope::kAll);
  if (!upload.ok()) CheckRefusal(upload.status());
}

std::vector<std::string> PlacementJsonSeeds() {
  std::vector<std::string> seeds;
  for (const PlacementPtr& placement : Placements()) {
    seeds.push_back(manifest::PlacementToJson(*placement));
  }
  return seeds;
}

void FeedStoredManifestJson(std::string_view bytes) {
  const auto stored = manifest::StoredManifestFromJson(bytes);
  if (!stored.ok()) return CheckRefusal(stored.status());
  const auto again = manifest::StoredManifestFromJson(manifest::StoredManifestToJson(**stored));
  MC_CHECK(again.ok() && **again == **stored);
}

std::vector<std::string> StoredManifestJsonSeeds() {
  std::vector<std::string> seeds;
  for (const PlacementPtr& placement : Placements()) {
    seeds.push_back(manifest::StoredManifestToJson(*StoredOf(placement)));
  }
  return seeds;
}

// Also with a checksum that fits, behind which the real checks are.
void FeedSavedPlan(std::string_view bytes) {
  static const PlacementPtr source = MiniPlacement();
  static const PlacementPtr target = WholePlacement();
  std::string sealed(bytes.substr(0, bytes.size() - std::min<size_t>(bytes.size(), 32)));
  const Sha256Digest check = Sha256Of(sealed);
  sealed.append(reinterpret_cast<const char*>(check.data()), check.size());
  for (const std::string_view saved : {bytes, std::string_view(sealed)}) {
    const auto plan = reshard::LoadPlan(saved, {source, nullptr}, target);
    if (!plan.ok()) {
      CheckRefusal(plan.status());
      continue;
    }
    MC_CHECK(reshard::SavePlan(**plan).value() == saved);
  }
}

std::vector<std::string> SavedPlanSeeds() {
  return {reshard::SavePlan(*reshard::PlanPlacement(MiniPlacement(), WholePlacement()).value())
              .value()};
}

void FeedDigestsObject(std::string_view bytes) {
  const auto table = client::DigestsTable::Decode(std::string(bytes));
  if (!table.ok()) {
    MC_CHECK(table.status().code() == Code::kCorrupt);
    return;
  }
  std::vector<client::PayloadDigests> payloads;
  for (const auto& entry : table->entries()) {
    MC_CHECK(table->Find(entry.name) == &entry);
    payloads.push_back(
        {std::string(entry.name), entry.nbytes, {entry.blocks.begin(), entry.blocks.end()}});
  }
  std::vector<client::FragmentFingerprint> fragments;
  for (const auto& fragment : table->fragments()) {
    MC_CHECK(table->FindFragment(fragment.id) == &fragment);
    fragments.push_back({std::string(fragment.id), fragment.nbytes, fragment.sha256});
  }
  MC_CHECK(client::EncodeDigests(std::move(payloads), std::move(fragments)) == bytes);
}

std::vector<std::string> DigestsObjectSeeds() {
  return {client::EncodeDigests({}),
          client::EncodeDigests({{"pack-w0", kDigestBlockBytes + 1, {{}, {}}}, {"a", 0, {}}}),
          client::EncodeDigests({{"a", 3, {{}}}}, {{"sha256:a", 5, {}}, {"sha256:b", 7, {}}})};
}

}  // namespace mooncake::fuzz
