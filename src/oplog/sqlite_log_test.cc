// What is particular to SqliteLog: damage, locks, failed writes, read-only use, a killed writer.
#include "oplog/sqlite_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "env/file.h"
#include "env/test_small_disk.h"

namespace mooncake::oplog {
namespace {

using testing::HasSubstr;

std::string PayloadOf(uint64_t sequence) {
  std::string payload = "record " + std::to_string(sequence) + " ";
  while (payload.size() < 100 + sequence % 50) payload += static_cast<char>('a' + sequence % 26);
  return payload;
}

class SqliteLogTest : public testing::Test {
 protected:
  SqliteLogTest() {
    std::string name = testing::TempDir() + "sqlite-log-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    path_ = folder_ + "/log.db";
  }
  ~SqliteLogTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SqliteLog> MustOpen(SqliteLogOptions options = {}) {
    auto log = SqliteLog::Open(path_, options);
    EXPECT_TRUE(log.ok()) << log.status().ToString();
    return log.ok() ? *std::move(log) : nullptr;
  }
  void Fill(uint64_t records) {
    auto log = MustOpen();
    for (uint64_t sequence = 1; sequence <= records; ++sequence) {
      ASSERT_TRUE(log->Append({sequence, 1, int64_t(sequence), PayloadOf(sequence)}).ok());
    }
  }
  void Sql(const std::string& sql) {
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &handle), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(handle);
    sqlite3_close(handle);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(SqliteLogTest, DamageAnywhereIsCorruptAndNamesTheSequence) {
  struct Case {
    const char* sql;
    const char* message;
  };
  for (const Case& c : {
           Case{"UPDATE log SET payload = x'78' WHERE sequence = 3", "log sequence 3 is damaged"},
           Case{"UPDATE log SET payload = x'78' WHERE sequence = 5", "log sequence 5 is damaged"},
           Case{"UPDATE log SET term = 0 WHERE sequence = 2", "log sequence 2 is damaged"},
           Case{"UPDATE log SET time_ms = 7 WHERE sequence = 4", "log sequence 4 is damaged"},
           Case{"UPDATE log SET checksum = x'00' WHERE sequence = 1", "log sequence 1 is damaged"},
           Case{"DELETE FROM log WHERE sequence = 3", "expected sequence 3, got 4"},
           Case{"DELETE FROM log WHERE sequence = 1", "expected sequence 1, got 2"},
           Case{"UPDATE log SET sequence = 6 WHERE sequence = 5", "expected sequence 5, got 6"},
       }) {
    SCOPED_TRACE(c.sql);
    std::filesystem::remove(path_);
    Fill(5);
    Sql(c.sql);
    for (bool read_only : {false, true}) {
      auto log = SqliteLog::Open(path_, {.read_only = read_only});
      ASSERT_FALSE(log.ok());
      EXPECT_EQ(log.status().code(), Code::kCorrupt);
      EXPECT_THAT(log.status().message(), HasSubstr(c.message));
      EXPECT_THAT(log.status().message(), HasSubstr(path_));
    }
  }
}

// The write-ahead file of a killed Master, flipped in any byte: what is behind the damage must not
// go without a word. Only the last two commits cannot be told from a write that was cut.
TEST_F(SqliteLogTest, DamageInTheWriteAheadFileIsRefusedOrCutsTheEnd) {
  constexpr uint64_t kRecords = 12;
  const auto log = SqliteLog::Open(path_).value();
  for (uint64_t n = 1; n <= kRecords; ++n) {
    ASSERT_TRUE(log->Append({n, 1, static_cast<int64_t>(n), "record " + std::to_string(n)}).ok());
  }
  // As a kill leaves them.
  const std::string main = env::ReadFile(path_).value();
  const std::string ahead = env::ReadFile(path_ + "-wal").value();
  const std::string copy = folder_ + "/copy.db";
  const auto open_with = [&](const std::string& write_ahead) {
    for (const char* end : {"", "-wal", "-shm", "-reserve"}) std::filesystem::remove(copy + end);
    std::ofstream(copy, std::ios::binary) << main;
    std::ofstream(copy + "-wal", std::ios::binary) << write_ahead;
    return SqliteLog::Open(copy, {.reserve_bytes = 0});
  };
  ASSERT_EQ(open_with(ahead).value()->LastSequence().value(), kRecords);
  // Cut anywhere it is no damage.
  for (size_t bytes = ahead.size(); bytes > 0; bytes -= std::min<size_t>(bytes, 1'999)) {
    const auto cut = open_with(ahead.substr(0, bytes));
    EXPECT_NE(cut.status().code(), Code::kCorrupt) << cut.status().ToString();
  }
  int refused = 0;
  for (size_t at = 0; at < ahead.size(); at += at % 4'120 < 64 ? 1 : 509) {
    std::string bad = ahead;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const auto opened = open_with(bad);
    if (!opened.ok()) {
      ++refused;
      EXPECT_EQ(opened.status().code(), Code::kCorrupt) << opened.status().ToString();
      continue;
    }
    EXPECT_GE((*opened)->LastSequence().value(), kRecords - 2) << "byte " << at;
  }
  EXPECT_GT(refused, 100);
}

// Every byte of a closed log, one at a time: the log is refused, or reads exactly as before
// (SQLite's file has bytes that mean nothing).
TEST_F(SqliteLogTest, AFlippedByteNeverChangesWhatIsRead) {
  Fill(8);
  const std::string good = env::ReadFile(path_).value();
  int refused = 0;
  for (size_t at = 0; at < good.size(); at += at < 200 ? 1 : 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bad;
    auto log = SqliteLog::Open(path_, {.read_only = true});
    if (!log.ok()) {
      ++refused;
      EXPECT_NE(log.status().message().find(path_), std::string::npos) << log.status().ToString();
      continue;
    }
    uint64_t sequence = 0;
    Status status = (*log)->Scan(1, [&](const LogRecordView& record) {
      ++sequence;
      EXPECT_EQ(record.sequence, sequence) << "byte " << at;
      EXPECT_EQ(record.payload, PayloadOf(sequence)) << "byte " << at;
      return OkStatus();
    });
    EXPECT_TRUE(status.ok()) << "byte " << at << ": " << status.ToString();
    EXPECT_EQ(sequence, 8u) << "byte " << at;
  }
  EXPECT_GT(refused, 100);
}

TEST_F(SqliteLogTest, RefusesFilesOfOthers) {
  Sql("CREATE TABLE t (a); PRAGMA application_id = 77;");
  const std::string before = env::ReadFile(path_).value();
  auto log = SqliteLog::Open(path_);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(log.status().message(), HasSubstr("expected application id 1296258892, got 77"));
  EXPECT_EQ(env::ReadFile(path_).value(), before);

  std::ofstream(path_, std::ios::trunc) << std::string(8192, 'z');
  log = SqliteLog::Open(path_);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), Code::kCorrupt);
  EXPECT_THAT(log.status().message(), HasSubstr("SQLITE_NOTADB"));
}

TEST_F(SqliteLogTest, RefusesANewerSchema) {
  Fill(1);
  Sql("UPDATE meta SET value = CAST('2' AS BLOB) WHERE key = 'schema_version'");
  auto log = SqliteLog::Open(path_);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.status().code(), Code::kUnsupported);
  EXPECT_THAT(log.status().message(), HasSubstr("expected schema version 1, got 2"));
}

TEST_F(SqliteLogTest, ALockedFileFailsTheAppendAndHeals) {
  auto log = MustOpen({.busy_timeout_ms = 20});
  ASSERT_TRUE(log->Append({1, 1, 1, "a"}).ok());
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  Status status = log->Append({2, 1, 2, "b"});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("append of log sequence 2"));
  EXPECT_THAT(status.message(), HasSubstr("SQLITE_BUSY 5"));
  EXPECT_THAT(status.message(), HasSubstr(path_));
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  EXPECT_EQ(log->LastSequence().value(), 1u);
  EXPECT_TRUE(log->Append({2, 1, 2, "b"}).ok());
}

TEST_F(SqliteLogTest, AnotherWriterIsNoticed) {
  auto log = MustOpen();
  auto other = MustOpen();
  ASSERT_TRUE(log->Append({1, 1, 1, "a"}).ok());
  Status status = other->Append({1, 1, 1, "b"});
  EXPECT_EQ(status.code(), Code::kConflict) << status.ToString();
  EXPECT_EQ(other->LastSequence().value(), 1u);
}

// A write that the system refuses (here: a limit on the file's size, as a full disk would) fails
// the append; afterwards the log is whole, without the record, and goes on.
TEST_F(SqliteLogTest, AFailedWriteFailsTheAppendAndHeals) {
  auto log = MustOpen();
  ASSERT_TRUE(log->Append({1, 1, 1, "a"}).ok());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = 64 * 1024;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status status = log->Append({2, 1, 2, std::string(1 << 20, 'b')});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("append of log sequence 2"));
  EXPECT_EQ(log->LastSequence().value(), 1u);
  EXPECT_TRUE(log->Append({2, 1, 2, "c"}).ok());
  log.reset();
  log = MustOpen();
  EXPECT_EQ(log->LastSequence().value(), 2u);
}

TEST_F(SqliteLogTest, ReadOnlyChangesNothingAndFollowsTheWriter) {
  Fill(3);
  const auto names = env::ListFolder(folder_).value();
  const std::string before = env::ReadFile(path_).value();
  {
    auto reader = MustOpen({.read_only = true});
    EXPECT_EQ(reader->LastSequence().value(), 3u);
    EXPECT_EQ(reader->Append({4, 1, 9, "x"}).code(), Code::kInvalidArgument);
    EXPECT_EQ(reader->WriteMeta("k", "v").code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(env::ListFolder(folder_).value(), names);
  EXPECT_EQ(env::ReadFile(path_).value(), before);

  auto writer = MustOpen();
  auto reader = MustOpen({.read_only = true});
  ASSERT_TRUE(writer->Append({4, 1, 9, "four"}).ok());
  EXPECT_EQ(reader->LastSequence().value(), 4u);
  std::string seen;
  ASSERT_TRUE(reader
                  ->Scan(4,
                         [&seen](const LogRecordView& r) {
                           seen = r.payload;
                           return OkStatus();
                         })
                  .ok());
  EXPECT_EQ(seen, "four");
}

TEST_F(SqliteLogTest, ReadOnlyOfAFileThatIsNotThere) {
  auto log = SqliteLog::Open(path_, {.read_only = true});
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(log.status().message(), HasSubstr(path_));
  EXPECT_TRUE(env::ListFolder(folder_).value().empty());
}

// A writer killed at any moment loses nothing that it acknowledged.
TEST_F(SqliteLogTest, AKilledWriterLosesNothingAcknowledged) {
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    int acks[2];
    ASSERT_EQ(::pipe(acks), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(acks[0]);
      auto log = SqliteLog::Open(path_);
      if (!log.ok()) ::_exit(1);
      for (uint64_t sequence = (*log)->LastSequence().value() + 1;; ++sequence) {
        if (!(*log)->Append({sequence, 1, int64_t(sequence), PayloadOf(sequence)}).ok()) ::_exit(2);
        if (::write(acks[1], &sequence, sizeof(sequence)) != sizeof(sequence)) ::_exit(3);
      }
    }
    ::close(acks[1]);
    uint64_t acked = 0;
    const uint64_t enough = 40 + 13 * static_cast<uint64_t>(round);
    for (uint64_t got = 0; got < enough; ++got) {
      ASSERT_EQ(::read(acks[0], &acked, sizeof(acked)), ssize_t(sizeof(acked)));
    }
    ::kill(child, SIGKILL);
    int wait_status = 0;
    ::waitpid(child, &wait_status, 0);
    ASSERT_TRUE(WIFSIGNALED(wait_status));
    while (::read(acks[0], &acked, sizeof(acked)) == ssize_t(sizeof(acked))) {
    }
    ::close(acks[0]);

    // An inspector sees it before recovery as well.
    EXPECT_GE(MustOpen({.read_only = true})->LastSequence().value(), acked);
    auto log = MustOpen();
    EXPECT_GE(log->LastSequence().value(), acked);
    ASSERT_TRUE(log->Scan(1,
                          [](const LogRecordView& record) {
                            return record.payload == PayloadOf(record.sequence)
                                       ? OkStatus()
                                       : Corrupt("differs");
                          })
                    .ok());
  }
}

TEST_F(SqliteLogTest, ALogThatMustBeThereIsNotMade) {
  const SqliteLogOptions existing{.create = false};
  const auto refused = [&](const char* why) {
    const Status status = SqliteLog::Open(path_, existing).status();
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused("there is no log");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  std::ofstream(path_).close();
  refused("has 0 bytes");
  EXPECT_EQ(std::filesystem::file_size(path_), 0u);
  Sql("VACUUM");  // a database without tables
  ASSERT_GT(std::filesystem::file_size(path_), 0u);
  refused("has no tables");
  std::filesystem::remove(path_);
  Fill(3);
  EXPECT_EQ(MustOpen(existing)->LastSequence().value(), 3u);
}

// Also where it was full before the log was opened.
TEST(SqliteLogDiskTest, AFullDiskTakesWhatMustGoOn) {
  constexpr uint64_t kMiB = 1 << 20;
  MC_ON_SMALL_DISK(16 * kMiB, [](const std::string& folder) {
    const std::string path = folder + "/log.db";
    const SqliteLogOptions options{.reserve_bytes = 2 * kMiB};
    uint64_t sequence = 0;
    const auto append = [&](SqliteLog& log) {
      ++sequence;
      return log.Append({sequence, 1, 1, PayloadOf(sequence)});
    };
    {
      const auto log = SqliteLog::Open(path, options);
      ASSERT_TRUE(log.ok());
      ASSERT_TRUE(append(**log).ok());
      EXPECT_TRUE((*log)->CheckSpace().ok());
      env::FillDisk(folder);
      for (int i = 0; i < 200; ++i) {
        const Status status = append(**log);
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
      const Status space = (*log)->CheckSpace();
      EXPECT_EQ(space.code(), Code::kExhausted);
      EXPECT_THAT(space.message(), HasSubstr("the disk of " + path + "-reserve is full"));
      ASSERT_TRUE((*log)->WriteMeta("key", "value").ok());
    }
    env::FillDisk(folder);
    {
      const auto log = SqliteLog::Open(path, options);
      EXPECT_FALSE(log.ok());  // the reserve is gone, and something took its place
      EXPECT_EQ(log.status().code(), Code::kExhausted) << log.status().ToString();
      ASSERT_TRUE(env::RemoveFile(folder + "/filler").ok());
    }
    {
      const auto log = SqliteLog::Open(path, options);
      ASSERT_TRUE(log.ok()) << log.status().ToString();
      EXPECT_TRUE((*log)->CheckSpace().ok());
      EXPECT_EQ((*log)->LastSequence().value(), sequence);
      EXPECT_EQ((*log)->ReadMeta("key").value(), "value");
    }
    env::FillDisk(folder);
    const auto log = SqliteLog::Open(path, options);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    EXPECT_TRUE(append(**log).ok());
    uint64_t seen = 0;
    ASSERT_TRUE((*log)
                    ->Scan(1,
                           [&](const LogRecordView& record) {
                             EXPECT_EQ(record.payload, PayloadOf(record.sequence));
                             ++seen;
                             return OkStatus();
                           })
                    .ok());
    EXPECT_EQ(seen, sequence);
    // At the very end it fails as one, and what was acknowledged stays.
    env::FillDisk(folder);
    Status status;
    for (int i = 0; i < 100'000 && status.ok(); ++i) status = append(**log);
    EXPECT_EQ(status.code(), Code::kExhausted) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("full"));
    ASSERT_TRUE(env::RemoveFile(folder + "/filler").ok());
    EXPECT_EQ((*log)->LastSequence().value(), sequence - 1);
  });
}

}  // namespace
}  // namespace mooncake::oplog
