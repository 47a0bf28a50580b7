// A snapshot is the state: written, read and continued at any moment, damaged in any way.
#include "master/snapshot.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "master/recovery.h"
#include "master/test_world.h"
#include "oplog/snapshot_frames.h"

namespace mooncake::master {
namespace {

using testing::HasSubstr;

// A bit of everything: committed, half removed, open and aborted imports, leases, lost memory.
void Live(TestWorld& world) {
  BookClient one(world.api(), 1);
  BookClient two(world.api(), 2);
  EXPECT_TRUE(world.Publish(one, BookClient::Plan(BookClient::Identity(1), 2, 3, 5'000)).ok());
  const auto removed = BookClient::Plan(BookClient::Identity(2), 1, 5, 9'000);
  EXPECT_TRUE(world.Publish(two, removed).ok());
  EXPECT_NE(world.Open(one, BookClient::Identity(1), 60'000).lease_id(), 0u);
  EXPECT_EQ(world.Remove(two, removed.identity()).status().code(), 0u);  // not settled
  const auto open = BookClient::Plan(BookClient::Identity(3), 2, 2, 3'000);
  const auto begun = world.api().BeginImport(one.Numbered(open));
  EXPECT_TRUE(world.WritePayloads(one, open, begun.import_id()).ok());
  const auto aborted =
      world.api().BeginImport(two.Numbered(BookClient::Plan(BookClient::Identity(4), 1, 1, 100)));
  v1::AbortImportRequest abort;
  abort.set_import_id(aborted.import_id());
  abort.set_reason("for the test");
  abort.set_code(static_cast<uint32_t>(Code::kConflict));
  EXPECT_EQ(world.api().AbortImport(two.Numbered(abort)).status().code(), 0u);
  world.node("n1").Restart();
  world.Report();
}

void ExpectFixedPoint(const ReplicatedState& state) {
  const std::string file = EncodeSnapshot(state, "cluster");
  const auto decoded = DecodeSnapshot(file);
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(ToHex(decoded->state.Digest()), ToHex(state.Digest()));
  EXPECT_TRUE(EncodeSnapshot(decoded->state, "cluster") == file);
}

TEST(Snapshot, SavedAndRestoredItIsTheSameBytes) {
  ExpectFixedPoint(ReplicatedState());
  TestWorld world;
  Live(world);
  // After every record of a life.
  for (size_t records = 1; records <= world.log().size(); ++records) {
    SCOPED_TRACE(testing::Message() << "after record " << records);
    const auto state = Replay(*oplog::MemoryLog::CopyOf(world.log(), records));
    ASSERT_TRUE(state.ok());
    ExpectFixedPoint(*state);
  }
}

// A snapshot at every moment, a restart at every later one: nothing differs from the whole log.
TEST(Snapshot, WithTheLogAfterItItIsTheWholeLog) {
  TestWorld world;
  Live(world);
  const size_t all = world.log().size();
  for (size_t taken = 1; taken <= all; taken += 3) {
    oplog::MemorySnapshots snapshots;
    const auto at = Replay(*oplog::MemoryLog::CopyOf(world.log(), taken));
    ASSERT_TRUE(at.ok());
    const std::string cluster_id = world.master().cluster_id();
    ASSERT_TRUE(snapshots.Write(at->sequence, EncodeSnapshot(*at, cluster_id)).ok());
    for (size_t records = taken; records <= all; ++records) {
      const auto log = oplog::MemoryLog::CopyOf(world.log(), records);
      const auto whole = Replay(*log);
      ASSERT_TRUE(log->DropBefore(taken + 1, 1'000).ok());
      const auto resumed = Replay(*log, &snapshots);
      ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
      EXPECT_EQ(ToHex(resumed->Digest()), ToHex(whole->Digest()));
      EXPECT_EQ(resumed->term, whole->term);
    }
  }
}

TEST(Snapshot, TheMasterGoesOnFromItAndShortensItsLog) {
  TestWorld world;
  Live(world);
  const uint64_t first = world.master().TakeSnapshot().value();
  EXPECT_EQ(world.master().TakeSnapshot().value(), first) << "nothing new";
  world.Pass(1'000);
  EXPECT_EQ(world.log().FirstSequence().value(), 1u) << "one snapshot alone frees nothing";
  BookClient client(world.api(), 7);
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(5), 1, 2, 10)).ok());
  const uint64_t second = world.master().TakeSnapshot().value();
  ASSERT_GT(second, first);
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(6), 1, 2, 10)).ok());
  world.Settle();
  EXPECT_EQ(world.log().FirstSequence().value(), first + 1);
  const Sha256Digest before = world.master().state().objects.Digest();
  world.RestartMaster();
  EXPECT_EQ(world.master().state().objects.Digest(), before);
  world.Report();
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(7), 1, 2, 10)).ok());
  // The same command after two snapshots and a restart: its first answer.
  auto plan = BookClient::Plan(BookClient::Identity(8), 1, 1, 10);
  const auto numbered = client.Numbered(plan);
  const auto answer = world.api().BeginImport(numbered);
  ASSERT_TRUE(world.master().TakeSnapshot().ok());
  world.RestartMaster();
  EXPECT_EQ(world.api().BeginImport(numbered).SerializeAsString(), answer.SerializeAsString());
  EXPECT_EQ(world.snapshots().List()->size(), 2u);
}

TEST(Snapshot, OneThatWasDamagedIsPassedOverWhileTheLogHoldsTheRest) {
  TestWorld world;
  Live(world);
  const uint64_t first = world.master().TakeSnapshot().value();
  BookClient client(world.api(), 7);
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(5), 1, 2, 10)).ok());
  const uint64_t second = world.master().TakeSnapshot().value();
  world.Settle();
  ASSERT_EQ(world.log().FirstSequence().value(), first + 1);
  std::string file = world.snapshots().Read(second).value();
  file[file.size() / 2] = static_cast<char>(file[file.size() / 2] ^ 1);
  world.snapshots().Damage(second, file);
  world.RestartMaster();
  world.Report();
  EXPECT_EQ(world.AvailabilityOf(BookClient::Identity(5)), v1::AVAILABILITY_READY);
  // The next one takes its place; the log stays behind two good ones.
  const uint64_t third = world.master().TakeSnapshot().value();
  EXPECT_EQ(*world.snapshots().List(), (std::vector<uint64_t>{first, second, third}));
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(6), 1, 2, 10)).ok());
  const uint64_t fourth = world.master().TakeSnapshot().value();
  EXPECT_EQ(*world.snapshots().List(), (std::vector<uint64_t>{third, fourth}));

  // Both damaged: what came before is nowhere.
  world.Settle();
  for (const uint64_t sequence : {third, fourth}) world.snapshots().Damage(sequence, "MCWSNAP1");
  const Status refused = Replay(world.log(), &world.snapshots()).status();
  EXPECT_EQ(refused.code(), Code::kCorrupt);
  EXPECT_THAT(refused.message(),
              HasSubstr("the log begins at sequence " + std::to_string(third + 1)));
}

TEST(Snapshot, OneThatCannotBeWrittenLosesNothing) {
  TestWorld world;
  Live(world);
  world.snapshots().FailWrite(Exhausted("no space"));
  EXPECT_EQ(world.master().TakeSnapshot().status().code(), Code::kExhausted);
  EXPECT_TRUE(world.snapshots().List()->empty());
  world.Settle();
  EXPECT_EQ(world.log().FirstSequence().value(), 1u);
  EXPECT_TRUE(world.master().TakeSnapshot().ok());
}

// One is due all the time and none can be made: the end must not wait for it.
TEST(Snapshot, OneThatIsNeverMadeKeepsNobodyFromStopping) {
  oplog::MemorySnapshots snapshots;
  std::atomic<int> tried{0};
  Snapshotter snapshotter({.snapshots = &snapshots,
                           .open_log = [&]() -> Result<std::unique_ptr<oplog::LogStore>> {
                             ++tried;
                             tried.notify_all();
                             return Unavailable("for the test");
                           }},
                          {.records = 1}, "cluster");
  snapshotter.Start(5);
  tried.wait(0);
  snapshotter.Stop();
  EXPECT_GE(tried, 1);
}

TEST(Snapshot, ALogThatDoesNotContinueItIsRefused) {
  TestWorld world;
  Live(world);
  const uint64_t taken = world.master().TakeSnapshot().value();
  const auto shorter = oplog::MemoryLog::CopyOf(world.log(), taken - 1);
  Status status = Replay(*shorter, &world.snapshots()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(),
              HasSubstr("the log ends at sequence " + std::to_string(taken - 1) +
                        ", the snapshot was taken after " + std::to_string(taken)));
  TestWorld other;
  Live(other);
  ASSERT_TRUE(other.log().WriteMeta(kClusterIdKey, "another").ok());
  status = Replay(other.log(), &world.snapshots()).status();
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("the log is cluster another's"));
}

// As a reader beside the Master sees it: longer at each look.
class GrowingLog final : public oplog::LogStore {
 public:
  explicit GrowingLog(oplog::MemoryLog& log) : log_(log) {}

  Result<uint64_t> LastSequence() override {
    MC_ASSIGN_OR_RETURN(const uint64_t last, log_.LastSequence());
    const oplog::MemoryLog::Record before = log_.At(last - 1);
    v1::LogBatch batch;
    batch.set_time_ms(before.time_ms);
    MC_RETURN_IF_ERROR(
        log_.Append({last + 1, before.term, before.time_ms, batch.SerializeAsString()}));
    return last;
  }
  Status AppendAll(std::span<const oplog::LogRecordView> records) override {
    return log_.AppendAll(records);
  }
  Status Scan(uint64_t sequence, const Visitor& visit) override {
    return log_.Scan(sequence, visit);
  }
  Result<uint64_t> FirstSequence() override { return log_.FirstSequence(); }
  Result<bool> DropBefore(uint64_t sequence, uint64_t records_max) override {
    return log_.DropBefore(sequence, records_max);
  }
  Result<std::optional<std::string>> ReadMeta(std::string_view key) override {
    return log_.ReadMeta(key);
  }
  Status WriteMeta(std::string_view key, std::string_view value) override {
    return log_.WriteMeta(key, value);
  }
  Status CheckSpace() override { return log_.CheckSpace(); }
  Status Close() override { return log_.Close(); }

 private:
  oplog::MemoryLog& log_;
};

TEST(Snapshot, TheLogMayGrowWhileItIsRead) {
  TestWorld world;
  Live(world);
  const auto log = oplog::MemoryLog::CopyOf(world.log(), world.log().size());
  GrowingLog growing(*log);
  const auto state = Replay(growing);
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  EXPECT_EQ(state->sequence, log->size());
  oplog::MemorySnapshots snapshots;
  const std::string cluster_id = world.master().cluster_id();
  ASSERT_TRUE(snapshots.Write(state->sequence, EncodeSnapshot(*state, cluster_id)).ok());
  EXPECT_TRUE(Replay(growing, &snapshots).ok());
}

// Whole files (every checksum right) that say something else than the state they claim.
class WrongSnapshot : public testing::Test {
 protected:
  WrongSnapshot() { Live(world_); }

  using Records = std::vector<std::pair<std::string, std::string>>;
  Records Split() {
    Records records;
    EXPECT_TRUE(oplog::ReadSnapshotFrames(EncodeSnapshot(world_.master().state(), "c"),
                                          [&](std::string_view section, std::string_view record) {
                                            records.emplace_back(section, record);
                                            return OkStatus();
                                          })
                    .ok());
    return records;
  }
  static Status Decode(const Records& records) {
    oplog::SnapshotBuilder builder;
    for (const auto& [section, record] : records) builder.Add(section, record);
    return DecodeSnapshot(builder.Finish()).status();
  }
  static Status WithHeader(Records records,
                           const std::function<void(v1::SnapshotHeader&)>& change) {
    v1::SnapshotHeader header;
    EXPECT_TRUE(header.ParseFromString(records[0].second));
    change(header);
    records[0].second = header.SerializeAsString();
    return Decode(records);
  }

  TestWorld world_;
};

TEST_F(WrongSnapshot, IsRefusedByName) {
  const Records good = Split();
  ASSERT_TRUE(Decode(good).ok());
  const auto expect = [](const Status& status, Code code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  expect(WithHeader(good, [](auto& header) { header.set_lease_count(9); }), Code::kCorrupt,
         "leases: the snapshot says 9, restored were 1");
  expect(WithHeader(good, [](auto& header) { header.mutable_state_sha256()->back() ^= 1; }),
         Code::kCorrupt, "expected a state with sha256");
  expect(WithHeader(good, [](auto& header) { header.set_oldest_reader(9); }), Code::kUnsupported,
         "needs a reader of version 9, this one has 1");
  Records records = good;
  records.emplace_back("later", "x");
  expect(Decode(records), Code::kUnsupported, "section later is not known here");
  records = good;
  records.erase(records.begin());
  expect(Decode(records), Code::kCorrupt, "before the header");
  expect(Decode({}), Code::kCorrupt, "it has no header");
  // Present but invalid weights.
  records = good;
  for (auto& [section, record] : records) {
    if (section == "weight_metadata") record = "\xff\xff";
  }
  expect(Decode(records), Code::kCorrupt, "weight_metadata: 2 bytes that are no WeightsRecord");
}

TEST_F(WrongSnapshot, AMissingRecordIsSeen) {
  const Records good = Split();
  for (size_t i = 0; i < good.size(); ++i) {
    Records records = good;
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(Decode(records).ok()) << "without record " << i << " of " << good[i].first;
    records = good;
    records.insert(records.begin() + static_cast<std::ptrdiff_t>(i), good[i]);
    EXPECT_FALSE(Decode(records).ok()) << "with record " << i << " twice";
  }
}

TEST_F(WrongSnapshot, RandomBytesNeverPassForTheState) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const Records good = Split();
  const google::protobuf::LogSilencer silence;
  for (int round = 0; round < 3'000; ++round) {
    Records records = good;
    std::string& record = records[random() % records.size()].second;
    if (record.empty()) continue;
    const size_t at = random() % record.size();
    const auto old = record[at];
    record[at] = static_cast<char>(random());
    if (random() % 4 == 0) record.resize(random() % record.size());
    const Status status = Decode(records);
    // The header's own term and cluster id are not part of the state's digest.
    if (status.ok()) {
      EXPECT_TRUE(&record == &records[0].second || record[at] == old) << round;
      continue;
    }
    EXPECT_TRUE(status.code() == Code::kCorrupt || status.code() == Code::kUnsupported)
        << status.ToString();
  }
}

TEST(SnapshotWithoutWeights, IsAStoreWithoutWeights) {
  TestWorld world;
  oplog::SnapshotBuilder builder;
  EXPECT_TRUE(oplog::ReadSnapshotFrames(EncodeSnapshot(world.master().state(), "c"),
                                        [&](std::string_view section, std::string_view record) {
                                          if (section != "weight_metadata")
                                            builder.Add(section, record);
                                          return OkStatus();
                                        })
                  .ok());
  const auto decoded = DecodeSnapshot(builder.Finish());
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(decoded->state.Digest(), world.master().state().Digest());
}

}  // namespace
}  // namespace mooncake::master
