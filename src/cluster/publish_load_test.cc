// Publish in one layout, load in others: every byte compared with what its global index says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cluster/test_cluster.h"
#include "cluster/test_publish.h"

namespace mooncake::cluster {
namespace {

using testing::HasSubstr;

const TestLayout kSource{.tp = 4, .dp = 2};

TEST(PublishLoadTest, FromManyWritersIntoOtherLayouts) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, kSource);
  // Eight writers, each a client of its own, as eight processes would be.
  const std::vector<std::string> ranks = RanksOf(*source);
  ASSERT_EQ(ranks.size(), 8u);
  std::vector<Result<client::ImportReport>> reports(ranks.size(),
                                                    Result<client::ImportReport>(Internal("-")));
  {
    std::vector<std::jthread> writers;
    for (size_t i = 0; i < ranks.size(); ++i) {
      writers.emplace_back([&, i] {
        const auto client = cluster.NewClient();
        reports[i] = Publish(*client, identity, source, {.participants = {ranks[i]}});
      });
    }
  }
  uint64_t uploaded = 0;
  uint64_t compared = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    ASSERT_TRUE(reports[i].ok()) << ranks[i] << ": " << reports[i].status().ToString();
    EXPECT_EQ(reports[i]->metadata.availability, model::Availability::kReady);
    EXPECT_EQ(reports[i]->metadata.observed_residency, model::Residency::kHot);
    compared += reports[i]->bytes_compared;
    uploaded += reports[i]->bytes_uploaded;
  }
  uint64_t logical = 0;
  for (const TestTensor& tensor : TestModel()) {
    uint64_t bytes = static_cast<uint64_t>(tensor.itemsize);
    for (const int64_t extent : tensor.shape) bytes *= static_cast<uint64_t>(extent);
    logical += bytes;
  }
  // One logical copy, whatever tp and dp are.
  EXPECT_EQ(uploaded, logical);
  // Of the one dp replica that is uploaded: the two norms on all tp ranks but the one that brings
  // it.
  EXPECT_EQ(compared, 2 * 256 * static_cast<uint64_t>(kSource.tp - 1));
  EXPECT_EQ(reports[0]->metadata.logical_payload_bytes, logical);

  const auto client = cluster.NewClient();
  for (const TestLayout& target :
       {TestLayout{}, TestLayout{.tp = 2, .pp = 2}, TestLayout{.tp = 3, .cuts = {170, 560}},
        TestLayout{.tp = 4, .dp = 2}, TestLayout{.tp = 5},
        TestLayout{.tp = 2, .dims = {{"l0.up", 1}, {"l1.conv", 3}, {"embed", 1}}},
        TestLayout{.tp = 3, .dims = {{"l0.down", 0}, {"l1.conv", 2}}}}) {
    LoadEveryRank(*client, identity, MakeLayout(identity, target));
  }
  EXPECT_EQ(cluster.Status().active_leases(), 0u);
}

TEST(PublishLoadTest, OneImporterWithManyThreadsAndTargetsTogether) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, kSource);
  const auto client = cluster.NewClient();
  const auto report = Publish(*client, identity, source, {.threads = 4});
  ASSERT_TRUE(report.ok()) << report.status().ToString();

  // All ranks of one host in one call: objects are read once for all of them.
  const manifest::PlacementPtr target = MakeLayout(identity, {.tp = 2, .pp = 2});
  std::vector<std::unique_ptr<TargetMemory>> memories;
  std::vector<client::LoadTarget> targets;
  uint64_t needed = 0;
  for (const std::string& rank : RanksOf(*target)) {
    memories.push_back(std::make_unique<TargetMemory>(target, rank));
    targets.push_back(memories.back()->target());
    needed += memories.back()->nbytes();
  }
  for (const int threads : {1, 2, 3}) {
    const auto loaded = client->Load(identity, targets, {.threads = threads});
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    for (const auto& memory : memories) EXPECT_EQ(memory->WhatIsWrong(), "");
    EXPECT_EQ(loaded->bytes_needed, needed);
    EXPECT_EQ(loaded->bytes_moved, needed);
    EXPECT_EQ(loaded->tensors, TestModel().size());
    EXPECT_EQ(loaded->plan_reused, threads != 1);
    EXPECT_EQ(loaded->objects, report->metadata.payload_count);
    // Each block once, although several ranks want bytes of it.
    EXPECT_EQ(loaded->bytes_verified, report->metadata.logical_payload_bytes);
  }
  const auto unverified = client->Load(identity, targets, {.verify = false});
  ASSERT_TRUE(unverified.ok());
  EXPECT_EQ(unverified->bytes_verified, 0u);
  EXPECT_EQ(unverified->bytes_moved, needed);
}

TEST(PublishLoadTest, RegionsDependOnBoxesAndNotOnRows) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const std::vector<TestTensor> tensors = {{"w", {5000, 6, 20}, 2, 0, 0}};
  const auto client = cluster.NewClient();
  ASSERT_TRUE(Publish(*client, identity, MakeLayout(identity, {.tp = 2}, tensors)).ok());
  const auto target = MakeLayout(identity, {.tp = 2, .dims = {{"w", 2}}}, tensors);
  const TargetMemory memory(target, "d0p0t1");
  const auto report = client->Load(identity, {memory.target()});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->regions, 2u);
  EXPECT_EQ(memory.WhatIsWrong(), "");
}

TEST(PublishLoadTest, StridedSourcesArePacked) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, {.tp = 2});
  const auto client = cluster.NewClient();
  auto importer = client->BeginImport({identity, source, {}, {}});
  ASSERT_TRUE(importer.ok()) << importer.status().ToString();
  for (const std::string& rank : RanksOf(*source)) {
    for (const auto& fragment : manifest::FindPart(*source, rank)->fragments) {
      // The elements lie in memory with the dimensions reversed.
      const auto* tensor = manifest::FindTensor(source->tensors, fragment.tensor_id);
      const reshard::Bytes dense = Content(*source, fragment);
      const size_t rank_count = fragment.local_shape.size();
      std::vector<int64_t> strides(rank_count);
      int64_t stride = tensor->itemsize;
      for (size_t d = 0; d < rank_count; ++d) {
        strides[d] = stride;
        stride *= fragment.local_shape[d];
      }
      reshard::Bytes reversed(dense.size());
      for (uint64_t element = 0; element < dense.size() / tensor->itemsize; ++element) {
        uint64_t rest = element;
        int64_t at = 0;
        for (size_t d = rank_count; d-- > 0;) {
          at += static_cast<int64_t>(rest % fragment.local_shape[d]) * strides[d];
          rest /= fragment.local_shape[d];
        }
        std::memcpy(reversed.data() + at, dense.data() + element * tensor->itemsize,
                    tensor->itemsize);
      }
      ASSERT_TRUE((*importer)
                      ->PutFragment(rank, fragment.placement_fragment_id,
                                    {reversed.data(), reversed.size(), strides})
                      .ok());
    }
  }
  ASSERT_TRUE((*importer)->Finish().ok());
  LoadEveryRank(*client, identity, MakeLayout(identity, {.tp = 3}));
}

TEST(PublishLoadTest, TiedTensorsLoadUnderBothNames) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  // The oracle's content depends on the tensor's name: content is made by hand here.
  std::vector<TestTensor> tensors = {{"embed", {300, 10}, 2, 0, 0}, {"head", {300, 10}, 2, 0, 0}};
  const TestLayout tied{.tp = 2, .ties = {{"embed", "head"}}};
  const manifest::PlacementPtr source = MakeLayout(identity, tied, tensors);
  const auto content = [&](const manifest::PlacementFragment& fragment) {
    return reshard::CutBox(*manifest::FindTensor(source->tensors, "embed"), fragment.global_offset,
                           fragment.local_shape);
  };
  const auto client = cluster.NewClient();
  const auto publish = [&](const model::WeightIdentity& id, const manifest::PlacementPtr& placement,
                           bool equal) {
    auto importer = client->BeginImport({id, placement, {}, {}});
    ASSERT_TRUE(importer.ok()) << importer.status().ToString();
    for (const std::string& rank : RanksOf(*placement)) {
      for (const auto& fragment : manifest::FindPart(*placement, rank)->fragments) {
        reshard::Bytes bytes = content(fragment);
        if (!equal && fragment.tensor_id == "head") bytes[7] ^= 1;
        ASSERT_TRUE((*importer)
                        ->PutFragment(rank, fragment.placement_fragment_id,
                                      {bytes.data(), bytes.size(), {}})
                        .ok());
      }
    }
    const auto report = (*importer)->Finish();
    ASSERT_TRUE(report.ok()) << report.status().ToString();
  };
  publish(identity, source, true);

  // A target that ties them too: one buffer, two names.
  const manifest::PlacementPtr target = MakeLayout(identity, {.ties = tied.ties}, tensors);
  const manifest::PlacementPart& part = target->parts[0];
  reshard::BoundMemory memory = reshard::BindMemory(*target, part);
  manifest::RuntimeBinding binding = *memory.binding;
  for (auto& fragment : binding.fragments) {
    fragment.address = binding.fragments[0].address;
    fragment.storage_address = binding.fragments[0].storage_address;
  }
  const auto shared = manifest::MakeRuntimeBinding(binding);
  ASSERT_TRUE(shared.ok()) << shared.status().ToString();
  const auto report = client->Load(identity, {{target, *shared}});
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->tensors, 2u);
  EXPECT_EQ(report->bytes_moved, 6000u);
  EXPECT_EQ(memory.buffers[0], content(part.fragments[0]));

  // A target that ties what is stored as two different tensors is told so.
  const model::WeightIdentity untied = TestIdentity(2);
  publish(untied, MakeLayout(untied, {.tp = 2}, tensors), false);
  const manifest::PlacementPtr target2 = MakeLayout(untied, {.ties = tied.ties}, tensors);
  reshard::BoundMemory memory2 = reshard::BindMemory(*target2, target2->parts[0]);
  manifest::RuntimeBinding binding2 = *memory2.binding;
  for (auto& fragment : binding2.fragments) {
    fragment.address = binding2.fragments[0].address;
    fragment.storage_address = binding2.fragments[0].storage_address;
  }
  const Status differ =
      client->Load(untied, {{target2, *manifest::MakeRuntimeBinding(binding2)}}).status();
  EXPECT_EQ(differ.code(), Code::kInvalidArgument) << differ.ToString();
  EXPECT_THAT(differ.message(), HasSubstr("alias"));
}

TEST(PublishLoadTest, TheSamePublishTwiceIsRecognised) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, kSource);
  const auto first_client = cluster.NewClient();
  const auto first = Publish(*first_client, identity, source);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_FALSE(first->already_published);
  const uint64_t charged = cluster.ChargedBytes();

  for (const bool restart : {false, true}) {
    if (restart) {
      cluster.master().Kill();
      cluster.master().Start();
    }
    const auto client = cluster.NewClient();
    const auto again = Publish(*client, identity, source);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_TRUE(again->already_published);
    EXPECT_EQ(again->bytes_uploaded, 0u);
    EXPECT_EQ(again->bytes_compared, first->bytes_uploaded + first->bytes_compared);
    EXPECT_EQ(again->metadata.import_id, first->metadata.import_id);
    EXPECT_EQ(again->metadata.manifest_sha256, first->metadata.manifest_sha256);
    EXPECT_EQ(again->metadata.created_at, first->metadata.created_at);

    const auto other = Publish(*client, identity, source, {.flavour = 1});
    EXPECT_EQ(other.status().code(), Code::kConflict) << other.status().ToString();
    const auto layout = Publish(*client, identity, MakeLayout(identity, {.tp = 2}));
    EXPECT_EQ(layout.status().code(), Code::kConflict) << layout.status().ToString();
  }
  EXPECT_TRUE(TestCluster::Eventually([&] { return cluster.ChargedBytes() == charged; }));
  LoadEveryRank(*first_client, identity, MakeLayout(identity, {.tp = 2}));
}

TEST(PublishLoadTest, TwoPublishersRaceAndNeverBlend) {
  for (const bool equal : {true, false}) {
    TestCluster cluster;
    const model::WeightIdentity identity = TestIdentity();
    const manifest::PlacementPtr source = MakeLayout(identity, kSource);
    Result<client::ImportReport> reports[2] = {Internal("-"), Internal("-")};
    {
      std::vector<std::jthread> publishers;
      publishers.reserve(2);
      for (int i = 0; i < 2; ++i) {
        publishers.emplace_back([&, i] {
          const auto client = cluster.NewClient();
          reports[i] = Publish(*client, identity, source,
                               {.threads = 2, .flavour = static_cast<uint8_t>(equal ? 0 : i)});
        });
      }
    }
    const auto client = cluster.NewClient();
    if (equal) {
      for (const auto& report : reports) EXPECT_TRUE(report.ok()) << report.status().ToString();
      LoadEveryRank(*client, identity, MakeLayout(identity, {.tp = 2}));
      continue;
    }
    ASSERT_NE(reports[0].ok(), reports[1].ok());
    const int winner = reports[0].ok() ? 0 : 1;
    EXPECT_EQ(reports[1 - winner].status().code(), Code::kConflict)
        << reports[1 - winner].status().ToString();
    LoadEveryRank(*client, identity, MakeLayout(identity, {.tp = 2}), static_cast<uint8_t>(winner));
  }
}

// Two importers of one client on the same participants are two publishers all the same.
TEST(PublishLoadTest, ImportersOfOneClientDoNotBlend) {
  TestCluster cluster;
  const model::WeightIdentity identity = TestIdentity();
  const manifest::PlacementPtr source = MakeLayout(identity, {.tp = 2});
  const auto client = cluster.NewClient();
  auto first = client->BeginImport({identity, source, {}, {}});
  auto second = client->BeginImport({identity, source, {}, {}});
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(PutAll(**second, *source, RanksOf(*source), 1, 1).ok());
  ASSERT_TRUE(PutAll(**first, *source, RanksOf(*source), 1, 0).ok());
  ASSERT_TRUE((*first)->Finish().ok());
  EXPECT_EQ((*second)->Finish().status().code(), Code::kConflict);
  LoadEveryRank(*client, identity, source);
}

TEST(PublishLoadTest, DiscoveryShowsWhatIsReady) {
  TestCluster cluster;
  const auto client = cluster.NewClient();
  for (const uint64_t generation : {1, 2, 3}) {
    const model::WeightIdentity identity = TestIdentity(generation);
    const manifest::PlacementPtr source = MakeLayout(identity, {.tp = 2});
    auto importer = client->BeginImport({identity, source, {}, {}});
    ASSERT_TRUE(importer.ok());
    // Half-way: nothing is discoverable.
    ASSERT_TRUE(PutAll(**importer, *source, {"d0p0t0"}).ok());
    EXPECT_FALSE(*client->Exists(identity));
    EXPECT_EQ(client->List({})->revisions.size(), generation - 1);
    const Code early =
        client->Load(identity, {TargetMemory(source, "d0p0t0").target()}).status().code();
    EXPECT_TRUE(early == Code::kNotReady || early == Code::kNotFound);
    ASSERT_TRUE(PutAll(**importer, *source, {"d0p0t1"}).ok());
    const auto report = (*importer)->Finish();
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(*client->Exists(identity));
    EXPECT_EQ(*client->GetSize(identity), report->metadata.logical_payload_bytes);
    const auto view = client->GetMetadata(identity);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->metadata.identity, identity);
    EXPECT_GE(view->physical_bytes, view->metadata.logical_payload_bytes);
    const auto manifest = client->ReadManifest(identity);
    ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
    EXPECT_EQ((*manifest)->manifest_digest, ToHex(view->metadata.manifest_sha256));
  }
  client::ListRequest request;
  request.page_size = 2;
  const auto page = client->List(request);
  ASSERT_TRUE(page.ok());
  ASSERT_EQ(page->revisions.size(), 2u);
  request.page_token = page->next_page_token;
  const auto rest = client->List(request);
  ASSERT_TRUE(rest.ok());
  ASSERT_EQ(rest->revisions.size(), 1u);
  EXPECT_EQ(rest->next_page_token, "");
  EXPECT_EQ(rest->revisions[0].metadata.identity, TestIdentity(3));
  EXPECT_EQ(client->GetSize(TestIdentity(4)).status().code(), Code::kNotFound);
  EXPECT_FALSE(*client->Exists(TestIdentity(4)));
}

TEST(PublishLoadTest, ManyLoadsAtOnceNeverMix) {
  TestCluster cluster;
  const auto publisher = cluster.NewClient();
  for (const uint64_t generation : {1, 2, 3}) {
    const model::WeightIdentity identity = TestIdentity(generation);
    ASSERT_TRUE(Publish(*publisher, identity, MakeLayout(identity, {.tp = 2}),
                        {.flavour = static_cast<uint8_t>(generation)})
                    .ok());
  }
  const auto shared = cluster.NewClient();
  std::vector<std::jthread> readers;
  readers.reserve(6);
  for (int t = 0; t < 6; ++t) {
    readers.emplace_back([&, t] {
      for (int round = 0; round < 4; ++round) {
        const uint64_t generation = 1 + (t + round) % 3;
        const model::WeightIdentity identity = TestIdentity(generation);
        LoadEveryRank(*shared, identity, MakeLayout(identity, {.tp = 3}),
                      static_cast<uint8_t>(generation));
      }
    });
  }
  readers.clear();
  EXPECT_EQ(cluster.Status().active_leases(), 0u);
}

}  // namespace
}  // namespace mooncake::cluster
