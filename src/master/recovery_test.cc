// The log alone determines the state: crashes at every batch boundary, damage, random histories.
#include "master/recovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "master/test_world.h"

namespace mooncake::master {
namespace {

using testing::HasSubstr;

// A life with a bit of everything in it; `observe` is called after each part.
void Live(TestWorld& world, const std::function<void()>& observe) {
  BookClient one(world.api(), 1);
  BookClient two(world.api(), 2);
  const auto kept = BookClient::Plan(BookClient::Identity(1), 2, 3, 5'000);
  EXPECT_TRUE(world.Publish(one, kept).ok());
  observe();
  const auto removed = BookClient::Plan(BookClient::Identity(2), 1, 5, 9'000);
  EXPECT_TRUE(world.Publish(two, removed).ok());
  const uint64_t lease = world.Open(one, removed.identity(), 1'000).lease_id();
  EXPECT_NE(lease, 0u);
  observe();
  EXPECT_EQ(CodeOf(world.Remove(two, removed.identity()).status()), Code::kBusy);
  world.Pass(1'500);
  EXPECT_EQ(world.Remove(two, removed.identity()).status().code(), 0u);
  observe();
  world.Settle();
  world.Report();
  const auto abandoned = BookClient::Plan(BookClient::Identity(3), 2, 2, 3'000);
  const auto begun = world.api().BeginImport(one.Numbered(abandoned));
  EXPECT_TRUE(world.WritePayloads(one, abandoned, begun.import_id()).ok());
  observe();
  world.node("n1").Restart();
  world.Pass(11'000);
  observe();
  world.Report();
}

TEST(Recovery, ACrashAfterAnyBatchComesBackExactly) {
  TestWorld world;
  std::map<size_t, Sha256Digest> digests;  // by number of records
  const auto note = [&] { digests[world.log().size()] = world.master().state().Digest(); };
  // After every record, from inside the append: the live state is complete but for the record's own
  // number and time, so it is noted when the next one begins and at the end.
  std::vector<std::pair<size_t, Sha256Digest>> objects_and_weights;
  world.log().OnAppend([&](size_t records) {
    model::StateDigest digest;
    digest.Hash(world.master().state().objects.Digest());
    digest.Hash(world.master().state().weights.Digest());
    world.master().state().commands.AddTo(&digest);
    objects_and_weights.emplace_back(records, digest.Finish());
  });
  Live(world, note);
  note();
  ASSERT_GE(objects_and_weights.size(), 20u);

  for (const auto& [records, live] : objects_and_weights) {
    SCOPED_TRACE(testing::Message() << "crash after record " << records);
    const auto log = oplog::MemoryLog::CopyOf(world.log(), records);
    const auto state = Replay(*log);
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    model::StateDigest digest;
    digest.Hash(state->objects.Digest());
    digest.Hash(state->weights.Digest());
    state->commands.AddTo(&digest);
    EXPECT_EQ(ToHex(digest.Finish()), ToHex(live));
    if (digests.contains(records)) {
      EXPECT_EQ(state->Digest(), digests[records]);
    }
  }
}

// From any crash on, the Master can be lived with: everything is settled, and all space accounted
// for.
TEST(Recovery, ServiceGoesOnFromAnyBatch) {
  TestWorld original;
  Live(original, [] {});
  const size_t all = original.log().size();
  for (size_t records = 3; records <= all; ++records) {
    SCOPED_TRACE(testing::Message() << "crash after record " << records);
    TestWorld world;
    Live(world, [] {});
    ASSERT_EQ(world.log().size(), all);
    // Only in memory: nodes of that time hold what they were told to hold, at most.
    world.RestartMaster(records);
    for (const size_t i : {0, 1}) {
      world.node(i).Restart();
      world.node(i).ForgetFrom(world.master().state().weights.next_import_id().value);
    }
    world.Report();
    world.Pass(25'000);
    EXPECT_EQ(world.api().GetCluster({}).open_imports(), 0u);
    EXPECT_EQ(world.api().GetCluster({}).active_leases(), 0u);
    BookClient client(world.api(), 9);
    v1::ListWeightsRequest list;
    list.set_tenant_id("default");
    const v1::ListWeightsReply listed = world.api().ListWeights(list);
    for (const auto& metadata : listed.revisions()) {
      EXPECT_EQ(world.Remove(client, metadata.identity()).status().code(), 0u);
    }
    world.Pass(2'000);
    EXPECT_EQ(world.Space(), (std::pair<uint64_t, uint64_t>{0, 0}));
    EXPECT_TRUE(
        world.Publish(client, BookClient::Plan(BookClient::Identity(50), 2, 2, 1'000)).ok());
    EXPECT_TRUE(world.master().state().CheckInvariants().ok());
  }
}

TEST(Recovery, CountersGoOnAboveEverythingGiven) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  for (uint64_t lease = 1; lease <= 8; ++lease) {
    EXPECT_EQ(world.Open(client, plan.identity(), 1'000).lease_id(), lease);
  }
  world.Pass(2'000);
  world.RestartMaster();
  world.Report();
  EXPECT_EQ(world.Open(client, plan.identity()).lease_id(), 9u);
  const auto begun = world.api().BeginImport(
      client.Numbered(BookClient::Plan(BookClient::Identity(2), 1, 1, 100)));
  EXPECT_EQ(begun.import_id(), 2u);
}

TEST(Recovery, EveryStartTakesTheNextTerm) {
  TestWorld world;
  EXPECT_EQ(world.log().At(0).term, 1u);
  world.RestartMaster();
  world.RestartMaster();
  EXPECT_EQ(world.log().At(world.log().size() - 1).term, 3u);
  const std::string cluster_id = world.master().cluster_id();
  EXPECT_EQ(cluster_id.size(), 32u);
  world.RestartMaster();
  EXPECT_EQ(world.master().cluster_id(), cluster_id);
}

TEST(Recovery, LoggedTimeNeverRunsBack) {
  TestWorld world;
  BookClient client(world.api(), 1);
  world.clock().JumpWallMs(-1'000'000'000);
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(i), 1, 1, 100)).ok());
    world.clock().AdvanceMs(10);
    world.RestartMaster();
    world.Report();
  }
  for (size_t i = 1; i < world.log().size(); ++i) {
    EXPECT_GE(world.log().At(i).time_ms, world.log().At(i - 1).time_ms);
  }
}

TEST(Recovery, DamageAndTheFutureAreRefusedByName) {
  TestWorld world;
  BookClient client(world.api(), 1);
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(1), 1, 1, 100)).ok());
  env::ManualClock clock;
  env::SeededRandom random(1);
  // Record 4 is the begin: node joins are 2 and 3.
  const auto open_with = [&](const std::function<void(v1::LogBatch&)>& change) {
    const auto log = oplog::MemoryLog::CopyOf(world.log(), world.log().size());
    v1::LogBatch batch;
    EXPECT_TRUE(batch.ParseFromString(log->At(3).payload));
    change(batch);
    log->Damage(3, batch.SerializeAsString());
    return Master::Open(MasterOptions(), {*log, clock, random}).status();
  };
  EXPECT_TRUE(open_with([](v1::LogBatch&) {}).ok());
  Status status = open_with([](v1::LogBatch& batch) { batch.set_time_ms(batch.time_ms() + 1); });
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("log sequence 4"));
  status = open_with([](v1::LogBatch& batch) { batch.mutable_events()->DeleteSubrange(0, 1); });
  EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("log sequence"));
  status = open_with([](v1::LogBatch& batch) { batch.mutable_events(1)->set_oldest_reader(99); });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("log sequence 4, event 1"));
  status = open_with([](v1::LogBatch& batch) { batch.mutable_events(0)->set_kind(77); });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("77"));
  status = open_with([](v1::LogBatch& batch) { batch.mutable_events(0)->set_body("\xff\xff"); });
  EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
  const auto log = oplog::MemoryLog::CopyOf(world.log(), world.log().size());
  log->Damage(3, "\xff");
  status = Master::Open(MasterOptions(), {*log, clock, random}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("log sequence 4: 1 bytes that are no LogBatch"));
}

// Random histories, with failing appends and restarts in between; the world's options compare live
// and replayed state after every batch, and here every answer that was acknowledged must stand.
TEST(Recovery, RandomHistories) {
  const unsigned base = std::random_device()();
  for (unsigned seed = base; seed < base + 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    TestWorld world;
    std::vector<std::unique_ptr<BookClient>> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<BookClient>(world.api(), i));
    std::set<uint64_t> published, removed;  // acknowledged
    std::vector<uint64_t> leases;
    for (int step = 0; step < 120; ++step) {
      BookClient& client = *clients[engine() % clients.size()];
      const uint64_t generation = 1 + engine() % 12;
      const auto identity = BookClient::Identity(generation);
      switch (engine() % 10) {
        case 0:
        case 1:
        case 2: {
          const auto plan = BookClient::Plan(identity, 1 + static_cast<int>(generation % 3),
                                             1 + static_cast<int>(generation % 4), 7'000);
          if (world.Publish(client, plan).ok()) published.insert(generation);
          break;
        }
        case 3: {
          const auto opened = world.Open(client, identity, 1'000 + engine() % 5'000);
          if (opened.status().code() == 0) leases.push_back(opened.lease_id());
          break;
        }
        case 4:
          if (CodeOf(world.Remove(client, identity).status()) == Code::kOk) {
            removed.insert(generation);
          }
          break;
        case 5:
          world.log().FailAppends(engine() % 2 == 0
                                      ? oplog::MemoryLog::AppendFault::kLost
                                      : oplog::MemoryLog::AppendFault::kDurableButUnclear);
          break;
        case 6:
          world.RestartMaster();
          break;
        case 7:
          world.Pass(1 + engine() % 3'000);
          break;
        case 8:
          if (engine() % 4 == 0) world.node(engine() % 2).Restart();
          world.Report();
          break;
        default:
          (void)world.api().BeginImport(client.Numbered(BookClient::Plan(identity, 2, 1, 500)));
      }
      ASSERT_TRUE(world.master().state().CheckInvariants().ok())
          << world.master().state().CheckInvariants().ToString();
      const auto replayed = Replay(world.log());
      ASSERT_TRUE(replayed.ok()) << replayed.status().ToString();
      ASSERT_EQ(replayed->Digest(), world.master().state().Digest());
    }
    for (const uint64_t generation : published) {
      const v1::Availability availability = world.AvailabilityOf(BookClient::Identity(generation));
      if (removed.contains(generation)) {
        EXPECT_TRUE(availability == v1::AVAILABILITY_DELETING ||
                    availability == v1::AVAILABILITY_DELETED);
      } else {
        EXPECT_NE(availability, v1::AVAILABILITY_UNSPECIFIED) << "generation " << generation;
      }
    }
  }
}

}  // namespace
}  // namespace mooncake::master
