// What a crash of the Master leaves of ordinary objects.

#include "master/test_objects.h"

namespace mooncake::master {
namespace {

TEST_F(ObjectsTest, AnAcknowledgedPutSurvivesARelaxedOneMayNot) {
  Put("durable", 100);
  const size_t records = world_.log().size();
  Put(Starting({{"relaxed", 100}}), /*relaxed=*/true);
  EXPECT_EQ(CodeOfKey("relaxed"), Code::kOk);
  EXPECT_EQ(world_.log().size(), records);  // told before it was written
  const uint64_t lost_id = Look("relaxed").object_id();
  world_.RestartMaster();
  world_.Report();
  EXPECT_EQ(CodeOfKey("durable"), Code::kOk);
  EXPECT_EQ(CodeOfKey("relaxed"), Code::kNotFound);
  // Its id is never given again: the bytes in the slab may still be its own.
  EXPECT_GT(Put("next", 100).entries(0).object_id(), lost_id);
}

TEST_F(ObjectsTest, WhatIsDurableTakesTheRelaxedBeforeItAlong) {
  Put(Starting({{"relaxed", 100}}), /*relaxed=*/true);
  Put("durable", 100);
  world_.RestartMaster();
  world_.Report();
  EXPECT_EQ(CodeOfKey("relaxed"), Code::kOk);
  EXPECT_EQ(CodeOfKey("durable"), Code::kOk);
}

TEST_F(ObjectsTest, AnOrderlyStopWritesWhatIsRelaxed) {
  Put("first", 100);
  Put(Starting({{"relaxed", 100}}), /*relaxed=*/true);
  world_.master().Stop();
  world_.RestartMaster();
  world_.Report();
  EXPECT_EQ(CodeOfKey("relaxed"), Code::kOk);
}

TEST_F(ObjectsTest, AFailedAppendForgetsTheRelaxedAndSaysSoOfTheDurable) {
  Put("kept", 100);
  Put(Starting({{"relaxed", 100}}), /*relaxed=*/true);
  const v1::PutStartRequest request = Starting({{"failed", 100}});
  const v1::PutStartReply started = world_.api().PutStart(request);
  Fill(started);
  world_.log().FailAppends(oplog::MemoryLog::AppendFault::kLost);
  const v1::PutEndReply ended = world_.api().PutEnd(Ending(started, request));
  EXPECT_EQ(CodeOf(ended.status()), Code::kUnavailable);
  world_.Report();
  EXPECT_EQ(CodeOfKey("kept"), Code::kOk);
  EXPECT_EQ(CodeOfKey("relaxed"), Code::kNotFound);
  EXPECT_EQ(CodeOf(world_.api().PutEnd(Ending(started, request)).results(0)), Code::kNotFound);
}

TEST_F(ObjectsTest, LeasesFromBeforeARestartAreHonoured) {
  Put("k", 100);
  Look("k", true);
  world_.RestartMaster();
  world_.Report();
  EXPECT_EQ(CodeOf(Remove("k").results(0)), Code::kBusy);
  world_.Pass(1'000);
  EXPECT_EQ(CodeOf(Remove("k").results(0)), Code::kOk);
}

TEST_F(ObjectsTest, EveryCutOfTheLogIsAStateThatAgreesWithItself) {
  for (int i = 0; i < 6; ++i) {
    v1::PutStartRequest request =
        Starting({{"a" + std::to_string(i), 20'000}, {"b" + std::to_string(i % 2), 30'000}});
    request.set_upsert(true);
    request.add_group_ids("g");
    request.add_group_ids("h");
    Put(request, i % 3 == 0);
    if (i == 3) Remove("a1");
  }
  const size_t records = world_.log().size();
  for (size_t cut = 1; cut <= records; ++cut) {
    TestWorld copy(ObjectOptions());
    auto log = oplog::MemoryLog::CopyOf(world_.log(), cut);
    env::ManualClock clock;
    env::SeededRandom random(2);
    auto master = Master::Open(ObjectOptions(), {*log, clock, random});
    ASSERT_TRUE(master.ok()) << master.status().ToString();
    ASSERT_TRUE((*master)->state().CheckInvariants().ok());
  }
}

TEST_F(ObjectsTest, SnapshotsHoldThem) {
  Put("k", 100);
  world_.api().PutStart(Starting({{"unfinished", 100}}));
  Put("flush", 10);
  const Sha256Digest before = world_.master().state().pool.Digest();
  ASSERT_TRUE(world_.master().TakeSnapshot().ok());
  world_.RestartMaster();
  EXPECT_EQ(world_.master().state().pool.Digest(), before);
  world_.Report();
  EXPECT_EQ(CodeOfKey("k"), Code::kOk);
  EXPECT_EQ(CodeOfKey("unfinished"), Code::kNotReady);
}

}  // namespace
}  // namespace mooncake::master
