// file:// stores: one folder, one process, everything there again after reopening; and damage to
// it.
#include "cluster/embedded_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cluster/test_publish.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/test_folder.h"

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
