#include "client/replica_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "manifest/contract_samples.h"

namespace mooncake::client {
namespace {

using manifest::AxisKind;
using reshard::UploadPlan;
using testing::ElementsAre;
using testing::HasSubstr;

// Two tp ranks: "a" and "b" on both, "w" split. 8 elements of 2 bytes each; `pack_threshold`
// decides which of them are objects of their own.
UploadPlan PlanOf(uint64_t pack_threshold) {
  std::vector<manifest::PlacementFragment> fragments;
  for (int64_t tp = 0; tp < 2; ++tp) {
    for (const char* tensor : {"a", "b"}) {
      fragments.push_back(manifest::Fragment(tensor, {0}, {8}, {.tp = tp}));
    }
    fragments.push_back(manifest::Fragment("w", {8 * tp}, {8}, {.tp = tp}));
  }
  const auto replicated = manifest::Replicated(AxisKind::kTp);
  const auto placement =
      manifest::PlacementFromFragments(
          manifest::Inventory(
              manifest::Topology({{.tp = 0}, {.tp = 1}}),
              {manifest::Tensor("a", {8}, {replicated}), manifest::Tensor("b", {8}, {replicated}),
               manifest::Tensor("w", {16}, {manifest::Split(AxisKind::kTp, 0)})},
              fragments))
          .value();
  return reshard::PlanUpload(placement, "g", pack_threshold, reshard::ReplicaScope::kSelected)
      .value();
}

BlockDigest BlockOf(const std::string& content) {
  return BlockDigestOf(content.data(), content.size());
}

// What every participant hands in. `content` tells the bytes of a fragment.
template <class Content>
DigestsByParticipant HandedIn(const UploadPlan& plan, Content content) {
  DigestsByParticipant tables;
  for (uint32_t p = 0; p < plan.participants.size(); ++p) {
    const reshard::ParticipantUpload& participant = plan.participants[p];
    std::vector<PayloadDigests> payloads;
    std::vector<FragmentFingerprint> fragments;
    std::set<uint32_t> packed;
    const auto bytes = [&](uint32_t f) { return content(p, plan.placement->fragments[f]); };
    const auto add = [&](uint32_t f) {
      const std::vector<BlockDigest> blocks{BlockOf(bytes(f))};
      const auto& fragment = plan.placement->fragments[f];
      fragments.push_back({fragment.placement_fragment_id, fragment.nbytes, FingerprintOf(blocks)});
    };
    for (const uint32_t o : participant.objects) {
      const reshard::PayloadObject& object = plan.objects[o];
      std::string all;
      for (const auto& uploaded : object.fragments) {
        all += bytes(uploaded.fragment);
        if (object.fragments.size() > 1) packed.insert(uploaded.fragment);
      }
      payloads.push_back({object.name, object.nbytes, {BlockOf(all)}});
    }
    for (const uint32_t f : participant.replicas) add(f);
    for (const uint32_t f : participant.compared) {
      if (packed.contains(f)) add(f);
    }
    tables.emplace(p, DigestsTable::Decode(EncodeDigests(payloads, fragments)).value());
  }
  return tables;
}

std::string Equal(uint32_t, const manifest::PlacementFragment& fragment) {
  return std::string(fragment.nbytes, fragment.tensor_id.str()[0]);
}

TEST(ReplicaCheckTest, EqualBytesPassPackedOrNot) {
  for (const uint64_t threshold : {0, 17}) {
    const UploadPlan plan = PlanOf(threshold);
    EXPECT_THAT(ParticipantsToCompare(plan), ElementsAre(0, 1));
    EXPECT_EQ(CompareReplicas(plan, HandedIn(plan, Equal)).ToString(), "OK");
  }
}

TEST(ReplicaCheckTest, NamesTensorBoxAndBothParticipants) {
  for (const uint64_t threshold : {0, 17}) {
    const UploadPlan plan = PlanOf(threshold);
    const auto one_byte = [](const char* tensor) {
      return [tensor](uint32_t p, const manifest::PlacementFragment& fragment) {
        std::string bytes = Equal(p, fragment);
        if (p == 1 && fragment.tensor_id == tensor) bytes[5] ^= 1;
        return bytes;
      };
    };
    // p0 uploads a, p1 uploads b: whichever side is flipped, both are named.
    const Status a = CompareReplicas(plan, HandedIn(plan, one_byte("a")));
    EXPECT_EQ(a.code(), Code::kConflict);
    EXPECT_THAT(a.message(), HasSubstr("tensor a, box"));
    EXPECT_THAT(a.message(), HasSubstr("participant p1 (dp=0 pp=0 ep=0 tp=1) and participant p0 "
                                       "(dp=0 pp=0 ep=0 tp=0), whose bytes would be stored; 1 of 2 "
                                       "compared fragments differ"));
    const Status b = CompareReplicas(plan, HandedIn(plan, one_byte("b")));
    EXPECT_THAT(b.message(), HasSubstr("tensor b, box"));
    EXPECT_THAT(b.message(), HasSubstr("participant p0 (dp=0 pp=0 ep=0 tp=0) and participant p1"));
    // What nobody else has is nobody else's business.
    EXPECT_TRUE(CompareReplicas(plan, HandedIn(plan, one_byte("w"))).ok());
  }
}

TEST(ReplicaCheckTest, TheFirstOfSeveralByTensor) {
  const UploadPlan plan = PlanOf(17);
  const Status status = CompareReplicas(
      plan, HandedIn(plan, [](uint32_t p, const manifest::PlacementFragment& fragment) {
        return std::string(fragment.nbytes, static_cast<char>('0' + p));
      }));
  EXPECT_THAT(status.message(), HasSubstr("tensor a, box"));
  EXPECT_THAT(status.message(), HasSubstr("2 of 2 compared fragments differ"));
}

TEST(ReplicaCheckTest, MissingEvidenceIsAFailure) {
  const UploadPlan plan = PlanOf(0);
  const auto message = [&](uint32_t p, const std::string& object) {
    DigestsByParticipant tables = HandedIn(plan, Equal);
    tables.erase(p);
    if (!object.empty()) tables.emplace(p, DigestsTable::Decode(object).value());
    const Status status = CompareReplicas(plan, tables);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    return status.message();
  };
  EXPECT_THAT(message(1, ""), HasSubstr("digests of participant p1: expected 16 bytes of"));
  EXPECT_THAT(message(1, ""), HasSubstr("got nothing"));
  EXPECT_THAT(message(0, EncodeDigests({})), HasSubstr("got no such"));
  // Every fragment, but half as long.
  std::vector<FragmentFingerprint> fragments;
  std::vector<PayloadDigests> payloads;
  for (const uint32_t f : plan.participants[0].replicas) {
    fragments.push_back({plan.placement->fragments[f].placement_fragment_id, 8, {}});
  }
  for (const uint32_t o : plan.participants[0].objects) {
    payloads.push_back({plan.objects[o].name, 8, {BlockDigest{}}});
  }
  EXPECT_THAT(message(0, EncodeDigests(payloads, fragments)), HasSubstr("got 8 bytes"));
}

}  // namespace
}  // namespace mooncake::client
