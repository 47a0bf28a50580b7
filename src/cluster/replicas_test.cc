// Replicas of one box must have equal bytes when a revision is published: who is compared, what a
// difference does, and what becomes of imports whose ranks or Master die in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client/steps.h"
#include "cluster/step_trap.h"
#include "cluster/test_cluster.h"
#include "cluster/test_publish.h"

namespace mooncake::cluster {
namespace {

using reshard::ReplicaScope;
using testing::AllOf;
using testing::HasSubstr;

// Of a rank's own bytes of a tensor, one is flipped before they are put.
struct Flip {
  std::string participant;
  std::string tensor;
};

// Four tp ranks: 2 KV heads on two ranks each, one large enough to be an object of its own and one
// packed; norms on every rank, a tiny and a large one; and weights that are split.
manifest::PlacementPtr Replicated(const model::WeightIdentity& identity, int64_t dp = 1) {
  const std::vector<TestTensor> tensors = {
      {"norm", {3}, 4, -1, 0},    {"table", {600, 300}, 2, -1, 0}, {"kv", {400, 1000}, 2, 0, 0},
      {"kv.bias", {40}, 2, 0, 0}, {"w", {700, 600}, 2, 0, 0},
  };
  const manifest::PlacementPtr split = MakeLayout(identity, {.tp = 4, .dp = dp}, tensors);
  manifest::FragmentInventory inventory;
  inventory.resource_id = split->resource_id;
  inventory.revision = split->revision;
  inventory.weight_generation = split->weight_generation;
  inventory.placement_set_id = split->placement_set_id;
  inventory.topology = split->topology;
  inventory.tensors = split->tensors;
  for (manifest::TensorDescriptor& tensor : inventory.tensors) {
    if (!tensor.tensor_id.str().starts_with("kv")) continue;
    tensor.parallel_axes.clear();
    tensor.shard_dims.clear();
    manifest::OwnedTiling heads(2);
    const int64_t rows = tensor.global_shape[0] / 2;
    for (const auto& participant : inventory.topology.participants) {
      const int64_t head = participant.rank.tp / 2;
      manifest::OwnedBox& box = heads[static_cast<size_t>(head)];
      box.offset.assign(tensor.global_shape.size(), 0);
      box.offset[0] = head * rows;
      box.shape = tensor.global_shape;
      box.shape[0] = rows;
      box.owners.push_back(participant.participant_id);
      manifest::PlacementFragment fragment;
      fragment.tensor_id = tensor.tensor_id;
      fragment.global_offset = box.offset;
      fragment.local_shape = box.shape;
      fragment.nbytes = static_cast<uint64_t>(tensor.itemsize);
      for (const int64_t extent : box.shape) fragment.nbytes *= static_cast<uint64_t>(extent);
      fragment.rank = participant.rank;
      inventory.fragments.push_back(*manifest::MakePlacementFragment(std::move(fragment)));
    }
    tensor.extension = std::make_shared<const manifest::TensorExtension>(
        manifest::TensorExtension{.ownership = {heads}});
  }
  for (const manifest::PlacementFragment& fragment : split->fragments) {
    if (!fragment.tensor_id.str().starts_with("kv")) inventory.fragments.push_back(fragment);
  }
  auto placement = manifest::PlacementFromFragments(std::move(inventory));
  if (!placement.ok()) ADD_FAILURE() << placement.status().ToString();
  return *std::move(placement);
}

Status PutFlipped(client::Importer& importer, const manifest::Placement& placement,
                  const Flip& flip) {
  for (const std::string& participant : importer.participants()) {
    for (const auto& fragment : manifest::FindPart(placement, participant)->fragments) {
      reshard::Bytes bytes = Content(placement, fragment);
      if (participant == flip.participant && fragment.tensor_id == flip.tensor) {
        bytes[bytes.size() - 1] ^= 0x10;
      }
      MC_RETURN_IF_ERROR(importer.PutFragment(participant, fragment.placement_fragment_id,
                                              {bytes.data(), bytes.size(), {}}));
    }
  }
  return OkStatus();
}

Result<client::ImportReport> PublishFlipped(client::StoreClient& client,
                                            const model::WeightIdentity& identity,
                                            const manifest::PlacementPtr& placement,
                                            std::vector<std::string> participants, const Flip& flip,
                                            ReplicaScope scope = ReplicaScope::kSelected) {
  client::ImportRequest request;
  request.identity = identity;
  request.placement = placement;
  request.participants = std::move(participants);
  request.verify_replicas = scope;
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<client::Importer> importer,
                      client.BeginImport(request));
  MC_RETURN_IF_ERROR(PutFlipped(*importer, *placement, flip));
  return importer->Finish({.timeout_ms = 60'000, .cancel = {}, .keep_waiting = {}});
}

// Every rank as a process of its own would do it; what each of them got.
std::vector<Result<client::ImportReport>> PublishByRanks(
    TestCluster& cluster, const model::WeightIdentity& identity,
    const manifest::PlacementPtr& placement, const Flip& flip,
    ReplicaScope scope = ReplicaScope::kSelected, const client::StoreClientOptions& options = {}) {
  const std::vector<std::string> ranks = RanksOf(*placement);
  std::vector<std::unique_ptr<client::StoreClient>> clients;
  std::vector<Result<client::ImportReport>> results(ranks.size(), Internal("not run"));
  for (size_t i = 0; i < ranks.size(); ++i) clients.push_back(cluster.NewClient(options));
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] = PublishFlipped(*clients[i], identity, placement, {ranks[i]}, flip, scope);
      });
    }
  }
  return results;
}

void ExpectNothingLeft(TestCluster& cluster, const model::WeightIdentity& identity) {
  const auto observer = cluster.NewClient();
  EXPECT_FALSE(*observer->Exists(identity));
  EXPECT_TRUE(observer->List({})->revisions.empty());
  EXPECT_EQ(cluster.Status().open_imports(), 0u);
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
}

TEST(ReplicasTest, EqualOnesArePublishedByEveryRank) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  uint64_t uploaded = 0;
  uint64_t compared = 0;
  for (const auto& report : PublishByRanks(cluster, identity, source, {})) {
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    uploaded += report->bytes_uploaded;
    compared += report->bytes_compared;
  }
  const auto client = cluster.NewClient();
  EXPECT_EQ(uploaded, *client->GetSize(identity));
  uint64_t held = 0;
  for (const auto& fragment : source->fragments) held += fragment.nbytes;
  EXPECT_EQ(compared, held - uploaded);
  LoadEveryRank(*client, identity, Replicated(identity));
  ASSERT_TRUE(client->Remove(identity).ok());
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
}

// A KV head, packed and not; a tiny norm in a pack; a large tensor: on each rank that has it.
TEST(ReplicasTest, OneFlippedByteIsEverybodysConflict) {
  TestCluster cluster;
  uint64_t generation = 0;
  const std::vector<Flip> flips = {{"d0p0t1", "kv"},      {"d0p0t2", "kv"},   {"d0p0t0", "kv.bias"},
                                   {"d0p0t3", "kv.bias"}, {"d0p0t0", "norm"}, {"d0p0t2", "norm"},
                                   {"d0p0t1", "table"},   {"d0p0t3", "table"}};
  for (const Flip& flip : flips) {
    SCOPED_TRACE(flip.tensor + " of " + flip.participant);
    const model::WeightIdentity identity = TestIdentity(++generation);
    const manifest::PlacementPtr source = Replicated(identity);
    const auto results = PublishByRanks(cluster, identity, source, flip);
    for (const auto& result : results) {
      EXPECT_EQ(result.status().code(), Code::kConflict);
      EXPECT_EQ(result.status().message(), results[0].status().message());
    }
    // If its bytes would have been stored, all others of the box differ from it.
    EXPECT_THAT(results[0].status().message(),
                AllOf(HasSubstr("tensor " + flip.tensor + ", box"), HasSubstr(flip.participant),
                      HasSubstr("dp=0 pp=0 ep=0 tp=")));
    ExpectNothingLeft(cluster, identity);
    // The same attempt with the right bytes.
    for (const auto& report : PublishByRanks(cluster, identity, source, {})) {
      ASSERT_TRUE(report.ok()) << report.status().ToString();
    }
    ASSERT_TRUE(cluster.NewClient()->Remove(identity).ok());
    EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
  }
}

TEST(ReplicasTest, OneProcessForAllRanksIsComparedToo) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  const auto refused = PublishFlipped(*client, identity, source, {}, {"d0p0t2", "norm"});
  EXPECT_EQ(refused.status().code(), Code::kConflict) << refused.status().ToString();
  EXPECT_THAT(refused.status().message(), HasSubstr("tensor norm, box"));
  ExpectNothingLeft(cluster, identity);
  ASSERT_TRUE(PublishFlipped(*client, identity, source, {}, {}).ok());
  LoadEveryRank(*client, identity, source);
}

TEST(ReplicasTest, NotAskedForIsNotSeen) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  // Of one whose bytes are not those that are stored.
  const auto plan =
      *reshard::PlanUpload(source, "g", reshard::kDefaultPackThreshold, ReplicaScope::kSelected);
  std::string holder;
  for (const reshard::ParticipantUpload& participant : plan.participants) {
    for (const uint32_t f : participant.replicas) {
      if (source->fragments[f].tensor_id == "norm") holder = participant.participant_id;
    }
  }
  const auto report =
      PublishFlipped(*client, identity, source, {}, {holder, "norm"}, ReplicaScope::kNone);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->bytes_compared, 0u);
  LoadEveryRank(*client, identity, source);
}

TEST(ReplicasTest, OtherDataParallelReplicasWhenAskedFor) {
  TestCluster cluster;
  const Flip flip{"d1p0t1", "w"};
  const model::WeightIdentity first = TestIdentity(1);
  for (const auto& report : PublishByRanks(cluster, first, Replicated(first, 2), flip)) {
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  }
  const model::WeightIdentity second = TestIdentity(2);
  const auto results =
      PublishByRanks(cluster, second, Replicated(second, 2), flip, ReplicaScope::kAll);
  for (const auto& result : results) {
    EXPECT_EQ(result.status().code(), Code::kConflict) << result.status().ToString();
    EXPECT_EQ(result.status().message(), results[0].status().message());
  }
  EXPECT_THAT(results[0].status().message(),
              AllOf(HasSubstr("tensor w, box"), HasSubstr("d1p0t1 (dp=1 pp=0 ep=0 tp=1)"),
                    HasSubstr("d0p0t1 (dp=0 pp=0 ep=0 tp=1)")));
  const model::WeightIdentity third = TestIdentity(3);
  for (const auto& report :
       PublishByRanks(cluster, third, Replicated(third, 2), {}, ReplicaScope::kAll)) {
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  }
}

TEST(ReplicasTest, RanksThatDisagreeAboutComparingAreRefused) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  auto first = client->BeginImport({identity, source, {"d0p0t0"}, {}, {}});
  ASSERT_TRUE(first.ok());
  const auto second =
      PublishFlipped(*cluster.NewClient(), identity, source, {"d0p0t1"}, {}, ReplicaScope::kNone);
  EXPECT_EQ(second.status().code(), Code::kConflict) << second.status().ToString();
  EXPECT_THAT(second.status().message(), HasSubstr("verify_replicas"));
}

TEST(ReplicasTest, ARepeatComparesReplicasWithWhatWasHandedIn) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  for (const auto& report : PublishByRanks(cluster, identity, source, {})) {
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  }
  const auto generation = cluster.NewClient()->GetMetadata(identity)->metadata.metadata_generation;
  for (const auto& report : PublishByRanks(cluster, identity, source, {})) {
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(report->already_published);
    EXPECT_EQ(report->bytes_uploaded, 0u);
  }
  const auto results = PublishByRanks(cluster, identity, source, {"d0p0t3", "norm"});
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].status().code(), i == 3 ? Code::kConflict : Code::kOk)
        << results[i].status().ToString();
  }
  EXPECT_EQ(cluster.NewClient()->GetMetadata(identity)->metadata.metadata_generation, generation);
  LoadEveryRank(*cluster.NewClient(), identity, source);
}

// A rank that would only have compared: nothing becomes READY without it, its death ends the
// import.
TEST(ReplicasTest, ADeadRankOfReplicasEndsTheImport) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  // Of two dp ranks the second one has nothing but replicas.
  const manifest::PlacementPtr source = Replicated(identity, 2);
  client::StoreClientOptions options;
  options.import_ttl_ms = 300;
  HookedMaster* hooks = nullptr;
  const auto dying = cluster.NewClient(options, &hooks);
  client::ImportRequest request{identity, source, {"d1p0t0"}, {}, {}, ReplicaScope::kAll};
  auto lost = dying->BeginImport(request);
  ASSERT_TRUE(lost.ok()) << lost.status().ToString();
  ASSERT_FALSE((*lost)->WantedFragments("d1p0t0")->empty());
  const auto others = cluster.NewClient();
  std::vector<std::string> rest = RanksOf(*source);
  std::erase(rest, "d1p0t0");
  request.participants = rest;
  auto importer = others->BeginImport(request);
  ASSERT_TRUE(importer.ok()) << importer.status().ToString();
  ASSERT_TRUE(PutFlipped(**importer, *source, {}).ok());
  hooks->Vanish();
  const Status ended = (*importer)->Finish().status();
  EXPECT_EQ(ended.code(), Code::kCancelled) << ended.ToString();
  EXPECT_THAT(ended.message(), HasSubstr("d1p0t0"));
  ExpectNothingLeft(cluster, identity);
}

// Whose receipt completes the set compares and commits; if it dies first, another one does.
TEST(ReplicasTest, TheNextRankGoesOnWhenTheLastOneIsGone) {
  TestCluster cluster;
  for (const bool equal : {true, false}) {
    const model::WeightIdentity identity = TestIdentity(equal ? 1 : 2);
    const manifest::PlacementPtr source = Replicated(identity);
    std::vector<std::string> rest = RanksOf(*source);
    const std::string last = rest.back();
    rest.pop_back();
    const auto waiting = cluster.NewClient();
    auto importer = waiting->BeginImport({identity, source, rest, {}, {}});
    ASSERT_TRUE(importer.ok());
    ASSERT_TRUE(PutFlipped(**importer, *source, {}).ok());
    Result<client::ImportReport> report = Internal("not run");
    std::jthread others([&] { report = (*importer)->Finish(); });
    HookedMaster* hooks = nullptr;
    client::StoreClientOptions options;
    options.step_observer = [&](std::string_view step) {
      if (step != client::import_step::kReceiptAccepted) return OkStatus();
      hooks->Vanish();
      return Cancelled("vanished");
    };
    const auto dying = cluster.NewClient(options, &hooks);
    const Flip flip = equal ? Flip{} : Flip{last, "norm"};
    EXPECT_FALSE(PublishFlipped(*dying, identity, source, {last}, flip).ok());
    others.join();
    EXPECT_EQ(report.status().code(), equal ? Code::kOk : Code::kConflict)
        << report.status().ToString();
    if (equal) LoadEveryRank(*waiting, identity, source);
  }
}

TEST(ReplicasTest, ARankThatNeverComesIsNamedWithTheWayOut) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity, 2);
  const auto client = cluster.NewClient();
  std::vector<std::string> present = RanksOf(*source);
  std::erase(present, "d1p0t2");
  auto importer = client->BeginImport({identity, source, present, {}, {}, ReplicaScope::kAll});
  ASSERT_TRUE(importer.ok());
  ASSERT_TRUE(PutFlipped(**importer, *source, {}).ok());
  const Status status =
      (*importer)->Finish({.timeout_ms = 0, .cancel = {}, .keep_waiting = {}}).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("d1p0t2 (which has replicas only"), HasSubstr("verify_replicas")));
}

// Whatever the Master was doing: the outcome is the one that the bytes call for.
TEST(ReplicasTest, AMasterThatDiesInBetweenChangesNothing) {
  const std::vector<std::string_view> steps = {
      client::import_step::kFragmentPut, client::import_step::kDigestsWritten,
      client::import_step::kReceiptAccepted, client::import_step::kReplicasCompared};
  TestCluster cluster;
  uint64_t generation = 0;
  for (const std::string_view step : steps) {
    for (const bool equal : {true, false}) {
      SCOPED_TRACE(std::string(step) + (equal ? ", equal" : ", different"));
      const model::WeightIdentity identity = TestIdentity(++generation);
      const manifest::PlacementPtr source = Replicated(identity);
      std::mutex mutex;
      int passed = 0;
      client::StoreClientOptions options;
      options.step_observer = [&](std::string_view at) {
        std::lock_guard lock(mutex);
        if (at != step || ++passed != 2) return OkStatus();
        cluster.master().Kill();
        cluster.master().Start();
        return OkStatus();
      };
      const auto results =
          PublishByRanks(cluster, identity, source, equal ? Flip{} : Flip{"d0p0t2", "kv"},
                         ReplicaScope::kSelected, options);
      for (const auto& result : results) {
        EXPECT_EQ(result.status().code(), equal ? Code::kOk : Code::kConflict)
            << result.status().ToString();
        EXPECT_EQ(result.status().message(), results[0].status().message());
      }
      if (!equal) {
        ExpectNothingLeft(cluster, identity);
        continue;
      }
      const auto client = cluster.NewClient();
      LoadEveryRank(*client, identity, source);
      ASSERT_TRUE(client->Remove(identity).ok());
      EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.Empty(); }));
    }
  }
}

// A writer that looks after the Master was restarted gets the recorded reason.
TEST(ReplicasTest, TheReasonOutlivesTheMaster) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  const auto client = cluster.NewClient();
  const auto refused = PublishFlipped(*client, identity, source, {}, {"d0p0t2", "norm"});
  ASSERT_EQ(refused.status().code(), Code::kConflict);
  cluster.master().Kill();
  cluster.master().Start();
  v1::GetImportRequest get;
  get.set_import_id(1);
  const v1::GetImportReply reply = cluster.api()->GetImport(get);
  EXPECT_EQ(reply.state(), v1::IMPORT_STATE_ABORTED);
  EXPECT_EQ(reply.abort_code(), static_cast<uint32_t>(Code::kConflict));
  EXPECT_THAT(refused.status().message(), HasSubstr(reply.abort_reason()));
  EXPECT_THAT(reply.abort_reason(), HasSubstr("tensor norm"));
}

TEST(ReplicasTest, DamagedEvidenceIsNotAgreement) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = Replicated(identity);
  cluster.on_read_metadata = [](const std::string& name, Result<std::string> content) {
    if (content.ok() && name == "digests/d0p0t1")
      content->back() = static_cast<char>(~content->back());
    return content;
  };
  const Status damaged = PublishFlipped(*client, identity, source, {}, {}).status();
  EXPECT_EQ(damaged.code(), Code::kCorrupt) << damaged.ToString();
  EXPECT_THAT(damaged.message(), HasSubstr("digests/d0p0t1"));
  cluster.on_read_metadata = nullptr;
  ExpectNothingLeft(cluster, identity);
}

}  // namespace
}  // namespace mooncake::cluster
