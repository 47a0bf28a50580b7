// file:// stores: one folder, one process, everything there again after reopening; and damage to
// it.
#include "cluster/embedded_store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "cluster/test_publish.h"
#include "env/clock.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/test_folder.h"
#include "env/test_small_disk.h"
#include "env/unique_fd.h"
#include "oplog/sqlite_log.h"

namespace mooncake::cluster {
namespace {

using testing::HasSubstr;

class EmbeddedStoreTest : public testing::Test {
 protected:
  std::unique_ptr<OpenedStore> Open() {
    OpenOptions options;
    options.capacity_bytes = 64 << 20;
    auto store = OpenStore("file://" + folder_.path() + "/store", options);
    if (!store.ok()) ADD_FAILURE() << store.status().ToString();
    return *std::move(store);
  }
  // Every arena file of the store, also while it is dropping some: a folder that goes while it is
  // listed begins the list anew.
  std::vector<std::string> ArenaFiles() {
    namespace fs = std::filesystem;
    std::vector<std::string> files;
    std::error_code error;
    const env::Deadline deadline = env::Deadline::AfterMs(20'000);
    do {
      files.clear();
      fs::recursive_directory_iterator at(folder_.path() + "/store/node/arenas", error);
      while (!error && at != fs::recursive_directory_iterator()) {
        if (at->is_regular_file(error)) files.push_back(at->path());
        if (!error) at.increment(error);
      }
    } while (error == std::errc::no_such_file_or_directory && !deadline.Expired());
    EXPECT_FALSE(error) << error.message();
    std::sort(files.begin(), files.end());
    return files;
  }
  std::string MetadataFile(const std::string& file_name) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder_.path() + "/store/node/metadata")) {
      if (entry.path().filename() == file_name) return entry.path();
    }
    ADD_FAILURE() << "no " << file_name;
    return "";
  }

  const env::TestFolder folder_;
  const model::WeightIdentity identity_ = TestIdentity();
  const manifest::PlacementPtr source_ = MakeLayout(identity_, {.tp = 2});
};

TEST_F(EmbeddedStoreTest, WhatIsPublishedIsThereAfterReopening) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
    LoadEveryRank(store->client(), identity_, MakeLayout(identity_, {.tp = 3}));
  }
  for (int round = 0; round < 2; ++round) {
    const auto store = Open();
    EXPECT_TRUE(*store->client().Exists(identity_));
    LoadEveryRank(store->client(), identity_, MakeLayout(identity_, {.pp = 2}));
    const auto again = Publish(store->client(), identity_, source_);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_TRUE(again->already_published);
    EXPECT_EQ(Publish(store->client(), identity_, source_, {.flavour = 3}).status().code(),
              Code::kConflict);
  }
  const auto store = Open();
  ASSERT_TRUE(store->client().Remove(identity_).ok());
  const env::Deadline deadline = env::Deadline::AfterMs(20'000);
  while (!ArenaFiles().empty() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_TRUE(ArenaFiles().empty());
}

TEST_F(EmbeddedStoreTest, OneOwnerAtATime) {
  const auto store = Open();
  const Status second = OpenStore("file://" + folder_.path() + "/store", {}).status();
  EXPECT_EQ(second.code(), Code::kUnavailable);
  EXPECT_THAT(second.message(), HasSubstr(folder_.path() + "/store"));
  EXPECT_THAT(second.message(), HasSubstr(std::to_string(::getpid())));
}

TEST_F(EmbeddedStoreTest, AnUnfinishedImportIsGoneAfterReopening) {
  {
    const auto store = Open();
    client::ImportRequest request{identity_, source_, {"d0p0t0"}, {}};
    auto importer = store->client().BeginImport(request);
    ASSERT_TRUE(importer.ok());
    ASSERT_TRUE(PutAll(**importer, *source_, {"d0p0t0"}).ok());
    importer->reset();
  }
  const auto store = Open();
  EXPECT_FALSE(*store->client().Exists(identity_));
  ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  LoadEveryRank(store->client(), identity_, source_);
}

// One bit of every block of every arena, in turn: found by whoever touches the block, named, and by
// nobody else.
TEST_F(EmbeddedStoreTest, AFlippedByteIsFoundByTheLoadThatTouchesItsBlock) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  const manifest::PlacementPtr target = MakeLayout(identity_, {.tp = 4});
  const std::vector<std::string> files = ArenaFiles();
  ASSERT_FALSE(files.empty());
  int found = 0;
  int passed = 0;
  for (const std::string& file : files) {
    const uint64_t bytes = std::filesystem::file_size(file);
    for (uint64_t at = 777; at < bytes; at += 300'000) {
      const auto flip = [&] {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(at));
        const char byte = static_cast<char>(stream.get() ^ 0x10);
        stream.seekp(static_cast<std::streamoff>(at));
        stream.put(byte);
      };
      flip();
      const auto store = Open();
      for (const std::string& rank : RanksOf(*target)) {
        const TargetMemory memory(target, rank);
        const auto report = store->client().Load(identity_, {memory.target()});
        if (report.ok()) {
          EXPECT_EQ(memory.WhatIsWrong(), "") << file << " byte " << at;
          ++passed;
          continue;
        }
        ++found;
        EXPECT_EQ(report.status().code(), Code::kCorrupt) << report.status().ToString();
        EXPECT_THAT(report.status().message(), HasSubstr("block"));
        EXPECT_THAT(report.status().message(), HasSubstr("of participant d0p0t"));
        EXPECT_THAT(report.status().message(), HasSubstr("the targets are invalid"));
      }
      flip();
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_GT(passed, 0);
  const auto store = Open();
  LoadEveryRank(store->client(), identity_, target);
}

TEST_F(EmbeddedStoreTest, WithoutItsEvidenceARevisionIsDegraded) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  const auto expect_degraded = [&] {
    const auto store = Open();
    const TargetMemory memory(MakeLayout(identity_, {}), "d0p0t0");
    const Status status = store->client().Load(identity_, {memory.target()}).status();
    EXPECT_EQ(status.code(), Code::kNotReady) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("no longer holds 1 METADATA objects"));
    EXPECT_THAT(status.message(), HasSubstr("no byte of a target was written"));
    EXPECT_TRUE(memory.Untouched());
    EXPECT_FALSE(*store->client().Exists(identity_));
  };
  for (const std::string name : {"digests%2Fd0p0t1", "manifest", "affinity"}) {
    SCOPED_TRACE(name);
    const std::string file = MetadataFile(name);
    const std::string bytes = *env::ReadFile(file);
    ASSERT_TRUE(env::RemoveFile(file).ok());
    expect_degraded();
    // Torn, and flipped: quarantined at start, and gone for good after that.
    ASSERT_TRUE(env::WriteFileDurably(file, bytes.substr(0, bytes.size() / 2)).ok());
    expect_degraded();
    expect_degraded();
    std::string flipped = bytes;
    flipped[flipped.size() - 3] = static_cast<char>(flipped[flipped.size() - 3] ^ 1);
    ASSERT_TRUE(env::WriteFileDurably(file, flipped).ok());
    expect_degraded();
    // An operator's copy makes it whole again.
    ASSERT_TRUE(env::WriteFileDurably(file, bytes).ok());
    const auto store = Open();
    LoadEveryRank(store->client(), identity_, MakeLayout(identity_, {}));
  }
}

TEST_F(EmbeddedStoreTest, AnArenaFileThatIsGoneOrCutIsNeverServed) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  const std::vector<std::string> files = ArenaFiles();
  ASSERT_FALSE(files.empty());
  const std::string kept = *env::ReadFile(files[0]);
  // Cut short and extended again: the right size, and zeros.
  std::filesystem::resize_file(files[0], kept.size() / 2);
  std::filesystem::resize_file(files[0], kept.size());
  {
    const auto store = Open();
    const TargetMemory memory(MakeLayout(identity_, {}), "d0p0t0");
    const Status status = store->client().Load(identity_, {memory.target()}).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
  }
  std::filesystem::resize_file(files[0], kept.size() / 2);
  {
    const auto store = Open();
    const TargetMemory memory(MakeLayout(identity_, {}), "d0p0t0");
    const Status status = store->client().Load(identity_, {memory.target()}).status();
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(memory.Untouched() || status.message().find("invalid") != std::string::npos);
  }
  std::filesystem::remove(files[0]);
  const auto store = Open();
  const TargetMemory memory(MakeLayout(identity_, {}), "d0p0t0");
  const Status status = store->client().Load(identity_, {memory.target()}).status();
  EXPECT_EQ(status.code(), Code::kNotReady) << status.ToString();
  EXPECT_EQ(store->client().GetMetadata(identity_)->metadata.availability,
            model::Availability::kDegraded);
}

// Every file below the folder and its content.
std::map<std::string, std::string> Snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path();
    files[path] = entry.is_regular_file() ? *env::ReadFile(path) : "(folder)";
  }
  return files;
}

TEST_F(EmbeddedStoreTest, WithoutItsLogTheDataIsKeptAndSaidSo) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  const std::string store = folder_.path() + "/store";
  const std::string log = store + "/master/log.db";
  const std::string bytes = *env::ReadFile(log);
  const std::string cluster_id = *env::ReadFile(store + "/node/cluster_id");
  ASSERT_EQ(cluster_id.size(), 33u);
  const auto expect_refused = [&](const std::string& why) {
    const auto before = Snapshot(store);
    const Status status = OpenStore("file://" + store, {}).status();
    EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(why));
    EXPECT_THAT(status.message(),
                HasSubstr("holds 1 imports of cluster " + cluster_id.substr(0, 32)));
    EXPECT_TRUE(Snapshot(store) == before) << why;
  };
  ASSERT_TRUE(env::WriteFileDurably(log, "").ok());
  expect_refused("the log " + log + " has 0 bytes");
  ASSERT_TRUE(env::RemoveFile(log).ok());
  expect_refused("there is no log " + log);
  ASSERT_TRUE(env::RemoveFolderTree(store + "/master").ok());
  expect_refused("there is no log " + log);
  EXPECT_FALSE(env::PathExists(store + "/master").value());

  // The log of another store: its Master would number imports anew.
  {
    auto other = OpenStore("file://" + folder_.path() + "/other", {});
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(Publish((*other)->client(), identity_, source_).ok());
  }
  ASSERT_TRUE(env::MakeFolders(store + "/master").ok());
  std::filesystem::copy(folder_.path() + "/other/master/log.db", log);
  const Status other = OpenStore("file://" + store, {}).status();
  EXPECT_EQ(other.code(), Code::kCorrupt) << other.ToString();
  EXPECT_THAT(other.message(), HasSubstr("is of cluster "));

  ASSERT_TRUE(env::WriteFileDurably(log, bytes).ok());
  const auto whole = Open();
  LoadEveryRank(whole->client(), identity_, MakeLayout(identity_, {.tp = 3}));
}

TEST_F(EmbeddedStoreTest, ALogWithoutRecordsIsNoLog) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  const std::string log = folder_.path() + "/store/master/log.db";
  ASSERT_TRUE(env::RemoveFile(log).ok());
  ASSERT_TRUE(oplog::SqliteLog::Open(log).ok());
  const Status status = OpenStore("file://" + folder_.path() + "/store", {}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("the log " + log + " has no records"));
  EXPECT_FALSE(ArenaFiles().empty());
}

TEST_F(EmbeddedStoreTest, AnOlderCopyOfTheLogIsRefused) {
  const std::string log = folder_.path() + "/store/master/log.db";
  { Open(); }
  const std::string older = *env::ReadFile(log);
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  ASSERT_TRUE(env::WriteFileDurably(log, older).ok());
  const Status status = OpenStore("file://" + folder_.path() + "/store", {}).status();
  EXPECT_EQ(status.code(), Code::kCorrupt) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("import 1 is held"));
  EXPECT_THAT(status.message(), HasSubstr("older copy of the log"));
  EXPECT_FALSE(ArenaFiles().empty());
}

// A store from before folders were marked: the log knows its node.
TEST_F(EmbeddedStoreTest, AFolderWithoutAMarkIsTakenInByItsOwnLog) {
  {
    const auto store = Open();
    ASSERT_TRUE(Publish(store->client(), identity_, source_).ok());
  }
  const std::string mark = folder_.path() + "/store/node/cluster_id";
  ASSERT_TRUE(env::RemoveFile(mark).ok());
  const auto store = Open();
  LoadEveryRank(store->client(), identity_, MakeLayout(identity_, {.tp = 3}));
  EXPECT_TRUE(env::PathExists(mark).value());
}

// As if the process had been killed: nothing of it says good-bye.
TEST_F(EmbeddedStoreTest, WhoDiedWithTheStoreHoldsNothingAfterwards) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto store = Open();
    if (!Publish(store->client(), identity_, source_).ok()) ::_exit(1);
    client::ImportRequest request{TestIdentity(2), MakeLayout(TestIdentity(2), {}), {}, {}};
    const auto importer = store->client().BeginImport(request);
    client::LoadOptions load;
    const TargetMemory memory(source_, "d0p0t0");
    load.progress = [](const client::LoadProgress&) -> bool { ::_exit(42); };
    (void)store->client().Load(identity_, {memory.target()}, load);
    ::_exit(importer.ok() ? 2 : 3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 42);
  const auto store = Open();
  const int64_t begin_ms = env::SystemClock::Instance().MonotonicMs();
  const auto removed = store->client().Remove(identity_);
  EXPECT_TRUE(removed.ok()) << removed.status().ToString();
  const auto published = Publish(store->client(), TestIdentity(2), MakeLayout(TestIdentity(2), {}));
  EXPECT_TRUE(published.ok()) << published.status().ToString();
  // Far from the TTLs of 10 s.
  EXPECT_LT(env::SystemClock::Instance().MonotonicMs() - begin_ms, 8'000);
}

TEST_F(EmbeddedStoreTest, TheDefaultCapacityDoesNotShrinkAsTheStoreFills) {
  const std::string path = folder_.path() + "/store";
  const auto capacity = [&] {
    const auto store = OpenStore("file://" + path, {});
    EXPECT_TRUE(store.ok());
    const std::string json = *(*store)->DescribeCluster();
    std::smatch found;
    EXPECT_TRUE(std::regex_search(json, found, std::regex("\"capacity_bytes\":\"([0-9]+)\"")));
    return std::stoull(found[1]);
  };
  const uint64_t empty = capacity();
  // What the store has taken, as far as the disk can tell: 5 GiB of which 2.5 would be missed.
  const std::string taken = path + "/node/arenas/taken";
  ASSERT_TRUE(env::WriteFileDurably(taken, "").ok());
  const env::UniqueFd fd(::open(taken.c_str(), O_RDWR | O_CLOEXEC));
  if (::posix_fallocate(fd.get(), 0, int64_t{5} << 30) != 0) GTEST_SKIP() << "needs 5 GiB of disk";
  const uint64_t filled = capacity();
  // Others write to this disk too.
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_GE(filled + kGiB, empty);
}

// On a disk of its own that is filled behind the store's back.
TEST(FullDiskTest, ReadsAndRemovalsGoOnAndAPublishIsRefusedBeforeAByteIsWritten) {
  constexpr uint64_t kMiB = 1 << 20;
  const model::WeightIdentity first = TestIdentity(1);
  const model::WeightIdentity second = TestIdentity(2);
  MC_ON_SMALL_DISK(128 * kMiB, [&](const std::string& folder) {
    const auto open = [&] {
      OpenOptions options;
      options.capacity_bytes = 1024 * kMiB;  // more than there is
      options.client.retry_ms = 2'000;
      auto store = OpenStore("file://" + folder + "/store", options);
      if (!store.ok()) ADD_FAILURE() << store.status().ToString();
      return *std::move(store);
    };
    const auto expect_refused = [&](client::StoreClient& client, const std::string& why) {
      client::ImportRequest request{second, MakeLayout(second, {.tp = 2}), {}, {}};
      const Status status = client.BeginImport(request).status();
      EXPECT_EQ(status.code(), Code::kExhausted) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr(why));
      EXPECT_FALSE(env::PathExists(folder + "/store/node/arenas/2").value());
    };
    {
      const auto store = open();
      ASSERT_TRUE(Publish(store->client(), first, MakeLayout(first, {.tp = 2})).ok());
    }
    const std::string filler = env::FillDisk(folder);
    for (int round = 0; round < 3; ++round) {
      const auto store = open();  // a restart, too
      for (int i = 0; i < 20; ++i) {
        LoadEveryRank(store->client(), first, MakeLayout(first, {.tp = 3}));
      }
      expect_refused(store->client(), "nothing new can be published: the disk of " + folder);
    }
    // Room for the log, and not for arenas.
    std::filesystem::resize_file(filler, std::filesystem::file_size(filler) - 32 * kMiB - 16'384);
    {
      const auto store = open();
      expect_refused(store->client(), "bytes are needed in 2 arenas: arena ");
      expect_refused(store->client(), "33554432 are kept for METADATA objects and the log");
      const auto removed = store->client().Remove(first);
      EXPECT_TRUE(removed.ok()) << removed.status().ToString();
    }
    env::FillDisk(folder);
    {
      const auto store = open();
      EXPECT_FALSE(*store->client().Exists(first));
    }
    ASSERT_TRUE(env::RemoveFile(filler).ok());
    const auto store = open();
    ASSERT_TRUE(Publish(store->client(), second, MakeLayout(second, {.tp = 2})).ok());
    LoadEveryRank(store->client(), second, MakeLayout(second, {.pp = 2}));
  });
}

TEST(OpenStoreTest, UrisThatAreRefusedAreNamed) {
  for (const std::string& uri :
       {std::string(), std::string("nonsense"), std::string("http://host:1"),
        std::string("mooncake://"), std::string("mooncake://host"), std::string("mooncake://host:"),
        std::string("mooncake://host:0"), std::string("mooncake://host:99999"),
        std::string("mooncake://host:12x"), std::string("file://relative/path"),
        std::string("file:///bad%zz")}) {
    const Status status = OpenStore(uri, {}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << uri;
    EXPECT_THAT(status.message(), HasSubstr("\"" + uri + "\""));
  }
}

TEST(OpenStoreTest, NobodyThereIsUnavailable) {
  OpenOptions options;
  options.client.retry_ms = 100;
  // Port 1 of this host: nothing listens there.
  const Status status = OpenStore("mooncake://127.0.0.1:1", options).status();
  EXPECT_EQ(status.code(), Code::kUnavailable) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace mooncake::cluster
