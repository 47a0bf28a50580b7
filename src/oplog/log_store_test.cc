// What every LogStore must do, run on each of them.
#include "oplog/log_store.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "oplog/memory_log.h"
#include "oplog/sqlite_log.h"

namespace mooncake::oplog {
namespace {

struct Stored {
  uint64_t sequence;
  uint64_t term;
  int64_t time_ms;
  std::string payload;
  friend bool operator==(const Stored&, const Stored&) = default;
};

// One backend: makes a log, and shows it as it is after a restart.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual LogStore& log() = 0;
  virtual void Restart() = 0;
};

class MemoryBackend final : public Backend {
 public:
  LogStore& log() override { return *log_; }
  void Restart() override { log_ = MemoryLog::CopyOf(*log_, log_->size()); }

 private:
  std::unique_ptr<MemoryLog> log_ = std::make_unique<MemoryLog>();
};

class SqliteBackend final : public Backend {
 public:
  SqliteBackend() {
    std::string name = testing::TempDir() + "oplog-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    Restart();
  }
  ~SqliteBackend() override {
    log_.reset();
    std::filesystem::remove_all(folder_);
  }
  LogStore& log() override { return *log_; }
  void Restart() override {
    if (log_ != nullptr) {
      EXPECT_TRUE(log_->Close().ok());
    }
    log_.reset();
    auto opened = SqliteLog::Open(folder_ + "/log.db");
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    log_ = *std::move(opened);
  }

 private:
  std::string folder_;
  std::unique_ptr<SqliteLog> log_;
};

using MakeBackend = std::function<std::unique_ptr<Backend>()>;

class LogStoreTest : public testing::TestWithParam<std::pair<const char*, MakeBackend>> {
 protected:
  LogStoreTest() : backend_(GetParam().second()) {}

  LogStore& log() { return backend_->log(); }
  std::vector<Stored> ReadFrom(uint64_t sequence) {
    std::vector<Stored> all;
    Status status = log().Scan(sequence, [&all](const LogRecordView& record) {
      all.push_back({record.sequence, record.term, record.time_ms, std::string(record.payload)});
      return OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return all;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_P(LogStoreTest, EmptyLog) {
  EXPECT_EQ(log().LastSequence().value(), 0u);
  EXPECT_TRUE(ReadFrom(1).empty());
}

TEST_P(LogStoreTest, ReadsBackWhatWasAppendedAlsoAfterRestart) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 engine(seed);
  std::vector<Stored> expected;
  int64_t time_ms = 5;
  for (uint64_t sequence = 1; sequence <= 200; ++sequence) {
    std::string payload(sequence % 17 == 0 ? 0 : engine() % 9000, '\0');
    for (char& c : payload) c = static_cast<char>(engine());
    expected.push_back({sequence, sequence / 50, time_ms, payload});
    Status status = log().Append({sequence, sequence / 50, time_ms, payload});
    ASSERT_TRUE(status.ok()) << status.ToString();
    time_ms += engine() % 3;
    if (sequence % 60 == 0) backend_->Restart();
    EXPECT_EQ(log().LastSequence().value(), sequence);
  }
  EXPECT_EQ(ReadFrom(1), expected);
  backend_->Restart();
  EXPECT_EQ(ReadFrom(1), expected);
  EXPECT_EQ(ReadFrom(150), std::vector<Stored>(expected.begin() + 149, expected.end()));
  EXPECT_TRUE(ReadFrom(201).empty());
}

TEST_P(LogStoreTest, DropsFromTheFrontInStepsAndNeverTheLast) {
  EXPECT_EQ(log().FirstSequence().value(), 0u);
  EXPECT_FALSE(log().DropBefore(5, 10).value());
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    ASSERT_TRUE(log().Append({sequence, 1, 7, "record " + std::to_string(sequence)}).ok());
  }
  EXPECT_EQ(log().FirstSequence().value(), 1u);
  EXPECT_FALSE(log().DropBefore(1, 10).value());
  EXPECT_EQ(ReadFrom(1).size(), 10u);
  EXPECT_TRUE(log().DropBefore(7, 4).value()) << "more is to be dropped";
  EXPECT_EQ(log().FirstSequence().value(), 5u);
  EXPECT_FALSE(log().DropBefore(7, 4).value());
  for (const bool restarted : {false, true}) {
    if (restarted) backend_->Restart();
    EXPECT_EQ(log().FirstSequence().value(), 7u);
    EXPECT_EQ(log().LastSequence().value(), 10u);
    ASSERT_EQ(ReadFrom(7).size(), 4u);
    EXPECT_EQ(ReadFrom(7).front().payload, "record 7");
    const Status gone = log().Scan(6, [](const LogRecordView&) { return OkStatus(); });
    EXPECT_EQ(gone.code(), Code::kCorrupt) << gone.ToString();
  }
  EXPECT_FALSE(log().DropBefore(1'000, 100).value());
  EXPECT_EQ(log().FirstSequence().value(), 10u);
  backend_->Restart();
  EXPECT_EQ(log().LastSequence().value(), 10u);
  ASSERT_TRUE(log().Append({11, 1, 7, "after"}).ok());
  EXPECT_EQ(ReadFrom(10).size(), 2u);
}

TEST_P(LogStoreTest, ARecordLargerThanAPage) {
  std::string payload(5'000'003, 'x');
  for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i * 2654435761u >> 13);
  ASSERT_TRUE(log().Append({1, 1, 1, payload}).ok());
  backend_->Restart();
  EXPECT_EQ(ReadFrom(1).at(0).payload, payload);
}

TEST_P(LogStoreTest, RefusesAnotherSequenceThanTheNext) {
  ASSERT_TRUE(log().Append({1, 4, 10, "a"}).ok());
  for (uint64_t sequence : {uint64_t{1}, uint64_t{3}, uint64_t{0}}) {
    Status status = log().Append({sequence, 4, 10, "b"});
    EXPECT_EQ(status.code(), Code::kConflict);
    EXPECT_NE(status.message().find("expected sequence 2, got " + std::to_string(sequence)),
              std::string::npos)
        << status.message();
  }
  EXPECT_EQ(ReadFrom(1).size(), 1u);
  EXPECT_TRUE(log().Append({2, 4, 10, "b"}).ok());
}

TEST_P(LogStoreTest, RefusesTermAndTimeThatRunBack) {
  ASSERT_TRUE(log().Append({1, 4, 10, "a"}).ok());
  Status term = log().Append({2, 3, 10, "b"});
  EXPECT_EQ(term.code(), Code::kConflict);
  EXPECT_NE(term.message().find("expected term 4 or more, got 3"), std::string::npos);
  Status time = log().Append({2, 4, 9, "b"});
  EXPECT_EQ(time.code(), Code::kConflict);
  EXPECT_NE(time.message().find("expected time 10 ms or later, got 9"), std::string::npos);
  backend_->Restart();
  EXPECT_EQ(log().Append({2, 3, 10, "b"}).code(), Code::kConflict);
  EXPECT_EQ(log().Append({2, 4, 9, "b"}).code(), Code::kConflict);
  EXPECT_TRUE(log().Append({2, 4, 10, "b"}).ok());
}

TEST_P(LogStoreTest, AVisitorsErrorEndsTheScan) {
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    ASSERT_TRUE(log().Append({sequence, 1, 1, "p"}).ok());
  }
  int seen = 0;
  Status status = log().Scan(2, [&seen](const LogRecordView& record) {
    ++seen;
    return record.sequence == 3 ? Corrupt("stop at 3") : OkStatus();
  });
  EXPECT_EQ(status, Corrupt("stop at 3"));
  EXPECT_EQ(seen, 2);
}

TEST_P(LogStoreTest, Meta) {
  EXPECT_EQ(log().ReadMeta("cluster_id").value(), std::nullopt);
  ASSERT_TRUE(log().WriteMeta("cluster_id", "one").ok());
  ASSERT_TRUE(log().WriteMeta("empty", "").ok());
  ASSERT_TRUE(log().WriteMeta("cluster_id", std::string_view("t\0wo", 4)).ok());
  backend_->Restart();
  EXPECT_EQ(log().ReadMeta("cluster_id").value(), std::string("t\0wo", 4));
  EXPECT_EQ(log().ReadMeta("empty").value(), "");
  EXPECT_EQ(log().ReadMeta("other").value(), std::nullopt);
}

TEST_P(LogStoreTest, CloseIsIdempotent) {
  ASSERT_TRUE(log().Append({1, 1, 1, "p"}).ok());
  EXPECT_TRUE(log().Close().ok());
  EXPECT_TRUE(log().Close().ok());
}

INSTANTIATE_TEST_SUITE_P(
    All, LogStoreTest,
    testing::Values(
        std::pair<const char*, MakeBackend>("Memory",
                                            [] { return std::make_unique<MemoryBackend>(); }),
        std::pair<const char*, MakeBackend>("Sqlite",
                                            [] { return std::make_unique<SqliteBackend>(); })),
    [](const auto& info) { return std::string(info.param.first); });

TEST(MemoryLog, ALostAppendIsNotThere) {
  MemoryLog log;
  ASSERT_TRUE(log.Append({1, 1, 1, "a"}).ok());
  log.FailAppends(MemoryLog::AppendFault::kLost);
  EXPECT_EQ(log.Append({2, 1, 1, "b"}).code(), Code::kUnavailable);
  EXPECT_EQ(log.LastSequence().value(), 1u);
  EXPECT_TRUE(log.Append({2, 1, 1, "c"}).ok());
  EXPECT_EQ(log.At(1).payload, "c");
}

TEST(MemoryLog, AnUnclearAppendIsThere) {
  MemoryLog log;
  log.FailAppends(MemoryLog::AppendFault::kDurableButUnclear, 2);
  EXPECT_EQ(log.Append({1, 1, 1, "a"}).code(), Code::kUnavailable);
  EXPECT_EQ(log.Append({2, 1, 1, "b"}).code(), Code::kUnavailable);
  EXPECT_EQ(log.LastSequence().value(), 2u);
  EXPECT_TRUE(log.Append({3, 1, 1, "c"}).ok());
}

}  // namespace
}  // namespace mooncake::oplog
