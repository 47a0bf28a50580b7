#include "node/metadata_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/url_encode.h"
#include "env/file.h"
#include "env/test_folder.h"
#include "node/metadata_file.h"

namespace mooncake::node {
namespace {

using testing::HasSubstr;

std::unique_ptr<MetadataStore> OpenIn(const env::TestFolder& folder) {
  auto store = MetadataStore::Open(folder / "metadata", folder / "quarantine");
  MC_CHECK(store.ok());
  return *std::move(store);
}

Status Put(MetadataStore& store, uint64_t import_id, std::string_view name,
           std::string_view content) {
  return store.Write(import_id, name, content, Sha256Of(content));
}

std::string MustRead(const MetadataStore& store, uint64_t import_id, std::string_view name) {
  const auto content = store.Read(import_id, name);
  return content.ok() ? **content : content.status().ToString();
}

TEST(MetadataFileTest, RoundTripOfEveryKindOfName) {
  for (const std::string& name :
       {std::string("manifest"), std::string("affinity"), "digests/" + UrlEncode("w 0/ä%"),
        "digests/" + std::string(255, 'p'), "digests/" + std::string(600, 'p')}) {
    ASSERT_TRUE(ValidateMetadataName(name).ok()) << name;
    const std::string content = "content of " + name;
    const std::string file_name = MetadataFileName(name);
    EXPECT_LE(file_name.size(), 255u);
    const auto file =
        DecodeMetadataFile(file_name, EncodeMetadataFile(name, content, Sha256Of(content)));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(file->name, name);
    EXPECT_EQ(file->content, content);
  }
}

TEST(MetadataFileTest, NamesThatAreRefused) {
  const std::string nul("digests/a\0b", 11);
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../../etc/passwd"),
        std::string("/manifest"), std::string("manifest/"), std::string("digests/"),
        std::string("digests/.."), std::string("digests/../x"), std::string("digests/a/b"),
        std::string("digests/%zz"), std::string("digests/%2"), std::string("digests/a%2fb"),
        std::string(".sealed"), std::string("digests/ä"), nul, "digests/" + std::string(5000, 'a'),
        std::string("payload/x")}) {
    const Status status = ValidateMetadataName(name);
    // A participant may be called ".."; its object's file name is one flat word all the same.
    if (name == "digests/..") {
      EXPECT_TRUE(status.ok());
      EXPECT_EQ(MetadataFileName(name), "digests%2F..");
      continue;
    }
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
  }
}

TEST(MetadataFileTest, AnyFlippedBitOrCutIsFound) {
  const std::string content = "0123456789";
  const std::string good = EncodeMetadataFile("manifest", content, Sha256Of(content));
  for (size_t byte = 0; byte < good.size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[byte] = static_cast<char>(bad[byte] ^ (1 << bit));
      const auto file = DecodeMetadataFile("manifest", bad);
      EXPECT_EQ(file.status().code(), Code::kCorrupt) << "byte " << byte << " bit " << bit;
    }
  }
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_EQ(DecodeMetadataFile("manifest", good.substr(0, length)).status().code(),
              Code::kCorrupt);
  }
  EXPECT_EQ(DecodeMetadataFile("manifest", good + "x").status().code(), Code::kCorrupt);
  EXPECT_EQ(DecodeMetadataFile("affinity", good).status().code(), Code::kCorrupt);
}

TEST(MetadataFileTest, ArbitraryBytesNeverCrash) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  const std::string good = EncodeMetadataFile("manifest", "abc", Sha256Of("abc"));
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = round % 2 == 0 ? good : std::string(rng() % 200, '\0');
    if (round % 2 == 0) {
      for (int edits = 0; edits < 4; ++edits)
        bytes[rng() % bytes.size()] = static_cast<char>(rng());
      bytes.resize(rng() % (bytes.size() + 1));
    } else {
      for (char& c : bytes) c = static_cast<char>(rng());
    }
    const auto file = DecodeMetadataFile("manifest", bytes);
    if (file.ok()) {
      EXPECT_EQ(bytes, good);
    } else {
      EXPECT_EQ(file.status().code(), Code::kCorrupt);
    }
  }
}

TEST(MetadataStoreTest, WritesReadsAndSurvivesReopening) {
  const env::TestFolder folder;
  {
    const auto store = OpenIn(folder);
    EXPECT_TRUE(Put(*store, 7, "manifest", "the manifest").ok());
    EXPECT_TRUE(Put(*store, 7, "digests/w0", "d0").ok());
    EXPECT_TRUE(Put(*store, 8, "manifest", std::string(100'000, 'x')).ok());
    EXPECT_TRUE(store->Seal(7).ok());
    EXPECT_TRUE(store->Seal(9).ok());
    // What a crash in the middle of a write leaves.
    std::ofstream(folder / "metadata/7/" + std::string(env::kTemporaryPrefix) + "1-1") << "half";
  }
  const auto store = OpenIn(folder);
  EXPECT_EQ(MustRead(*store, 7, "manifest"), "the manifest");
  EXPECT_EQ(MustRead(*store, 7, "digests/w0"), "d0");
  EXPECT_EQ(MustRead(*store, 8, "manifest"), std::string(100'000, 'x'));
  EXPECT_EQ(store->Read(8, "affinity").status().code(), Code::kNotFound);
  EXPECT_EQ(store->Read(10, "manifest").status().code(), Code::kNotFound);
  EXPECT_TRUE(store->Sealed(7));
  EXPECT_FALSE(store->Sealed(8));
  EXPECT_TRUE(store->Sealed(9));
  ASSERT_EQ(store->Held().size(), 3u);
  EXPECT_EQ(store->Held()[0].objects, 2u);
  EXPECT_TRUE(store->quarantined().empty());
  EXPECT_EQ(env::ListFolder(folder / "metadata/7")->size(), 3u);  // two objects and the marker
}

TEST(MetadataStoreTest, AnObjectNeverChanges) {
  const env::TestFolder folder;
  const auto store = OpenIn(folder);
  EXPECT_TRUE(Put(*store, 1, "manifest", "a").ok());
  EXPECT_TRUE(Put(*store, 1, "manifest", "a").ok());
  const Status other = Put(*store, 1, "manifest", "b");
  EXPECT_EQ(other.code(), Code::kConflict);
  EXPECT_THAT(other.message(), HasSubstr(ToHex(Sha256Of("a"))));
  EXPECT_THAT(other.message(), HasSubstr(ToHex(Sha256Of("b"))));
  EXPECT_EQ(MustRead(*store, 1, "manifest"), "a");

  const Status wrong_digest = store->Write(1, "affinity", "x", Sha256Of("y"));
  EXPECT_EQ(wrong_digest.code(), Code::kInvalidArgument);
  EXPECT_EQ(store->Read(1, "affinity").status().code(), Code::kNotFound);

  EXPECT_TRUE(store->Seal(1).ok());
  EXPECT_TRUE(store->Seal(1).ok());
  EXPECT_TRUE(Put(*store, 1, "manifest", "a").ok());
  EXPECT_EQ(Put(*store, 1, "affinity", "x").code(), Code::kConflict);
}

TEST(MetadataStoreTest, ATornOrFlippedFileIsQuarantinedAndTheRestServed) {
  const env::TestFolder folder;
  {
    const auto store = OpenIn(folder);
    EXPECT_TRUE(Put(*store, 3, "manifest", "whole").ok());
    EXPECT_TRUE(Put(*store, 3, "affinity", "flipped").ok());
    EXPECT_TRUE(Put(*store, 3, "digests/w0", "torn").ok());
  }
  std::filesystem::resize_file(folder / "metadata/3/digests%2Fw0", 54);
  {
    std::fstream file(folder / "metadata/3/affinity", std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('X');
  }
  const auto store = OpenIn(folder);
  EXPECT_EQ(MustRead(*store, 3, "manifest"), "whole");
  const Status flipped = store->Read(3, "affinity").status();
  EXPECT_EQ(flipped.code(), Code::kCorrupt);
  EXPECT_THAT(flipped.message(), HasSubstr("affinity of import 3"));
  EXPECT_EQ(store->Read(3, "digests/w0").status().code(), Code::kCorrupt);
  EXPECT_EQ(store->quarantined().size(), 2u);
  EXPECT_EQ(store->Held()[0].objects, 1u);
  EXPECT_EQ(env::ListFolder(folder / "quarantine")->size(), 2u);
  // Its writer may bring it again.
  EXPECT_TRUE(Put(*store, 3, "affinity", "flipped").ok());
  EXPECT_EQ(MustRead(*store, 3, "affinity"), "flipped");
}

TEST(MetadataStoreTest, DropLeavesNothingBehind) {
  const env::TestFolder folder;
  {
    const auto store = OpenIn(folder);
    EXPECT_TRUE(Put(*store, 5, "manifest", "m").ok());
    EXPECT_TRUE(Put(*store, 6, "manifest", "m").ok());
    EXPECT_TRUE(store->Drop(5).ok());
    EXPECT_TRUE(store->Drop(5).ok());
    EXPECT_TRUE(store->Drop(77).ok());
    EXPECT_EQ(store->Read(5, "manifest").status().code(), Code::kNotFound);
    ASSERT_EQ(store->Held().size(), 1u);
    EXPECT_EQ(store->Held()[0].import_id, 6u);
  }
  EXPECT_EQ(*env::ListFolder(folder / "metadata"), std::vector<std::string>{"6"});
}

TEST(MetadataStoreTest, ManyWritersOfOneNameAgreeOnOneContent) {
  const env::TestFolder folder;
  const auto store = OpenIn(folder);
  std::vector<Status> results(8);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back(
          [&, i] { results[i] = Put(*store, 1, "manifest", "content " + std::to_string(i % 2)); });
    }
  }
  const std::string winner = MustRead(*store, 1, "manifest");
  for (int i = 0; i < 8; ++i) {
    const bool won = winner == "content " + std::to_string(i % 2);
    EXPECT_EQ(results[i].code(), won ? Code::kOk : Code::kConflict) << i;
  }
}

}  // namespace
}  // namespace mooncake::node
