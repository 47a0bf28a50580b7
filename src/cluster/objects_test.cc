// Ordinary objects through a whole cluster: what was put is what is got, whatever the sizes, the
// pieces and the way the bytes take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cluster/open_store.h"
#include "cluster/test_cluster.h"
#include "cluster/test_objects.h"

namespace mooncake::cluster {
namespace {

using client::GetItem;
using client::ObjectClient;
using client::ObjectClientOptions;
using client::PutItem;
using client::PutResult;
using client::RangeItem;
using client::ReadResult;
using testing::ElementsAre;
using testing::HasSubstr;

// Through memory of the host, and through requests of a few bytes.
class ObjectsTest : public testing::TestWithParam<bool> {
 protected:
  ObjectClientOptions Options() const {
    ObjectClientOptions options;
    options.share_memory = GetParam();
    if (!GetParam()) options.chunk_bytes = 1000;
    return options;
  }

  TestCluster cluster_;
};

INSTANTIATE_TEST_SUITE_P(Ways, ObjectsTest, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Shared" : "Chunks"; });

TEST_P(ObjectsTest, WhatWasPutIsGot) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::vector<uint64_t> sizes = {1,    7,    8,      63,     64,        65,
                                       1000, 4096, 65'536, 65'537, 1'000'003, 5'000'011};
  std::vector<std::string> keys;
  std::vector<std::string> payloads;
  std::vector<PutItem> items;
  for (const uint64_t size : sizes) {
    keys.push_back("key/" + std::to_string(size) + std::string("\0\xff", 2));
    payloads.push_back(Payload(size, size));
  }
  for (size_t i = 0; i < keys.size(); ++i) items.push_back(ItemOf(keys[i], payloads[i]));
  for (const PutResult& result : client->Put(items)) {
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_FALSE(result.existed);
  }
  // By another client, and by the same.
  const auto other = cluster_.NewObjectClient(Options());
  for (size_t i = 0; i < keys.size(); ++i) {
    ExpectObject(*other, keys[i], payloads[i]);
    ExpectObject(*client, keys[i], payloads[i]);
  }
}

TEST_P(ObjectsTest, PiecesAreOneObject) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::string payload = Payload(3, 100'000);
  PutItem item{.key = "pieces", .pieces = {}};
  for (uint64_t at = 0, step = 1; at < payload.size(); at += step, step = step * 3 + 1) {
    step = std::min<uint64_t>(step, payload.size() - at);
    item.pieces.push_back({payload.data() + at, step});
    item.pieces.push_back({nullptr, 0});
  }
  ASSERT_TRUE(client->Put({&item, 1}).front().status.ok());
  ExpectObject(*client, "pieces", payload);

  std::string got(payload.size() + 100, '?');
  GetItem wanted{.key = "pieces", .pieces = {}};
  for (uint64_t at = 0; at < got.size(); at += 7001) {
    wanted.pieces.push_back({got.data() + at, std::min<uint64_t>(7001, got.size() - at)});
  }
  const ReadResult read = client->Get({&wanted, 1}).front();
  ASSERT_TRUE(read.status.ok()) << read.status.ToString();
  EXPECT_EQ(read.bytes, payload.size());
  EXPECT_TRUE(got == payload + std::string(100, '?'));  // the tail is left alone
  wanted.exact = true;
  const ReadResult refused = client->Get({&wanted, 1}).front();
  EXPECT_EQ(refused.status.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status.message(), HasSubstr("exactly 100000 bytes, got 100100"));
}

TEST_P(ObjectsTest, RangesOfManyObjects) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::string a = Payload(1, 50'000);
  const std::string b = Payload(2, 3'000'000);
  ASSERT_TRUE(PutOne(*client, "a", a).status.ok());
  ASSERT_TRUE(PutOne(*client, "b", b).status.ok());
  std::string got(5000, '?');
  const std::vector<RangeItem> items = {
      {.key = "a", .from = 49'990, .target = {got.data(), 10}},
      {.key = "b", .from = 1'234'567, .target = {got.data() + 10, 4000}},
      {.key = "a", .from = 0, .target = {got.data() + 4010, 1}},
      {.key = "a", .from = 50'000, .target = {got.data(), 0}},
      {.key = "a", .from = 49'999, .target = {got.data() + 4100, 2}},
      {.key = "none", .from = 0, .target = {got.data() + 4200, 1}},
      {.key = "a", .from = UINT64_MAX, .target = {got.data() + 4300, 2}},
      {.key = "a", .from = 0, .target = {nullptr, 2}},
  };
  const std::vector<ReadResult> read = client->GetRanges(items);
  std::vector<Code> codes;
  for (const ReadResult& result : read) codes.push_back(result.status.code());
  EXPECT_THAT(codes, ElementsAre(Code::kOk, Code::kOk, Code::kOk, Code::kOk, Code::kInvalidArgument,
                                 Code::kNotFound, Code::kInvalidArgument, Code::kInvalidArgument));
  EXPECT_EQ(read[1].bytes, 4000u);
  EXPECT_EQ(got.substr(0, 4011), a.substr(49'990) + b.substr(1'234'567, 4000) + a.substr(0, 1));
  EXPECT_EQ(got.substr(4011), std::string(989, '?'));
}

TEST_P(ObjectsTest, AnExistingKeyIsUnchangedUntilItIsUpserted) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::string first = Payload(1, 3000);
  ASSERT_TRUE(PutOne(*client, "key", first).status.ok());
  for (const uint64_t bytes : {3000u, 10u, 70'000u}) {
    const PutResult again = PutOne(*client, "key", Payload(2, bytes));
    EXPECT_TRUE(again.status.ok());
    EXPECT_TRUE(again.existed);
    ExpectObject(*client, "key", first);
  }
  for (const uint64_t bytes : {3000u, 10u, 700'000u}) {
    const std::string next = Payload(bytes, bytes);
    const PutResult replaced = PutOne(*client, "key", next, {.config = {}, .upsert = true});
    EXPECT_TRUE(replaced.status.ok()) << replaced.status.ToString();
    ExpectObject(*client, "key", next);
  }
}

TEST_P(ObjectsTest, AKeyThatIsNamedTwiceIsPutTwice) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::string one = Payload(1, 500);
  const std::string two = Payload(2, 500);
  const std::vector<PutItem> items = {ItemOf("k", one), ItemOf("other", one), ItemOf("k", two)};
  auto results = client->Put(items);
  EXPECT_FALSE(results[0].existed);
  EXPECT_TRUE(results[2].existed);
  ExpectObject(*client, "k", one);
  results = client->Put(items, {.config = {}, .upsert = true});
  for (const PutResult& result : results) EXPECT_TRUE(result.status.ok());
  ExpectObject(*client, "k", two);
  ExpectObject(*client, "other", one);
  results = client->Put(items, {.config = {}, .upsert = true, .all_or_nothing = true});
  for (const PutResult& result : results) {
    EXPECT_EQ(result.status.code(), Code::kInvalidArgument);
    EXPECT_THAT(result.status.message(), HasSubstr("named twice"));
  }
}

TEST_P(ObjectsTest, BadArgumentsAreRefusedAlone) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::string payload = Payload(1, 100);
  const std::vector<PutItem> items = {
      ItemOf("", payload),
      {.key = "empty", .pieces = {}},
      {.key = "null", .pieces = {{nullptr, 5}}},
      {.key = "huge", .pieces = {{payload.data(), UINT64_MAX}, {payload.data(), 2}}},
      ItemOf("good", payload)};
  const auto results = client->Put(items);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(results[i].status.code(), Code::kInvalidArgument) << i;
  }
  EXPECT_THAT(results[2].status.message(), HasSubstr("piece 0 of 5 bytes has address 0"));
  EXPECT_TRUE(results[4].status.ok());

  std::string got(100, '?');
  const std::vector<GetItem> wanted = {
      {.key = "good", .pieces = {{got.data(), 99}}},
      {.key = "good", .pieces = {{nullptr, 100}}},
      {.key = "good", .pieces = {}},
      {.key = "good", .pieces = {{got.data(), 60}, {got.data() + 60, 40}}, .exact = true}};
  const auto read = client->Get(wanted);
  EXPECT_THAT(read[0].status.message(), HasSubstr("100 bytes, got 99"));
  EXPECT_THAT(read[1].status.message(), HasSubstr("address 0"));
  EXPECT_THAT(read[2].status.message(), HasSubstr("100 bytes, got 0"));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(read[i].status.code(), Code::kInvalidArgument) << i;
  ASSERT_TRUE(read[3].status.ok());
  EXPECT_EQ(got, payload);
}

TEST_P(ObjectsTest, AddressesOfNothingAreErrors) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::string payload = Payload(1, 100'000);
  void* const nothing = reinterpret_cast<void*>(4096);
  const std::vector<PutItem> items = {
      {.key = "small", .pieces = {{nothing, 10}}},
      {.key = "large", .pieces = {{payload.data(), payload.size()}, {nothing, 1 << 20}}},
      ItemOf("good", payload)};
  const auto put = client->Put(items);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(put[i].status.code(), Code::kInvalidArgument);
    EXPECT_FALSE(put[i].of_transfer);
    EXPECT_THAT(put[i].status.message(), HasSubstr("at address 4096"));
  }
  EXPECT_TRUE(put[2].status.ok());
  const std::vector<GetItem> wanted = {{.key = "good", .pieces = {{nothing, payload.size()}}}};
  EXPECT_EQ(client->Get(wanted)[0].status.code(), Code::kInvalidArgument);
  const std::vector<RangeItem> ranges = {{.key = "good", .from = 5, .target = {nothing, 5}}};
  EXPECT_EQ(client->GetRanges(ranges)[0].status.code(), Code::kInvalidArgument);
  ExpectObject(*client, "good", payload);
}

TEST_P(ObjectsTest, LookingAndRemoving) {
  const auto client = cluster_.NewObjectClient(Options());
  const std::vector<std::string> keys = {"a/1", "a/2", "b/1"};
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(PutOne(*client, keys[i], Payload(i, 100 + i)).status.ok());
  }
  const std::vector<std::string_view> names = {"a/1", "none", "b/1"};
  const auto there = client->Exists(names);
  EXPECT_EQ(*there[0], true);
  EXPECT_EQ(*there[1], false);
  const auto sizes = client->Sizes(names);
  EXPECT_EQ(*sizes[2], 102u);
  EXPECT_EQ(sizes[1].status().code(), Code::kNotFound);
  EXPECT_THAT(sizes[1].status().message(), HasSubstr("none"));
  const auto described = client->Describe(names);
  EXPECT_EQ(described[0]->key(), "a/1");
  EXPECT_EQ(described[0]->node_ids_size(), 1);
  std::vector<std::string> listed;
  ASSERT_TRUE(client
                  ->List("a/",
                         [&](const v1::ObjectInfo& info) {
                           listed.push_back(info.key());
                           return true;
                         })
                  .ok());
  EXPECT_THAT(listed, ElementsAre("a/1", "a/2"));

  // A reader's lease protects; probes without one do not renew it.
  ASSERT_TRUE(client->Locate(names, /*renew=*/true)[0].ok());
  EXPECT_EQ(client->Remove(names)[0].code(), Code::kBusy);
  EXPECT_EQ(client->Remove(names)[1].code(), Code::kNotFound);
  EXPECT_TRUE(client->Remove(names, /*force=*/true)[0].ok());
  EXPECT_EQ(CodeOfGet(*client, "a/1"), Code::kNotFound);
  EXPECT_EQ(client->RemoveAll().value().removed, 1u);  // a/2, which nobody has read
}

TEST_P(ObjectsTest, RemovalByPattern) {
  const auto client = cluster_.NewObjectClient(Options());
  for (const char* key : {"layer.0.k", "layer.1.k", "layer.10.v", "other"}) {
    ASSERT_TRUE(PutOne(*client, key, Payload(1, 10)).status.ok());
  }
  for (const char* bad : {"(", "[z-a]", "a{2,1}", "*", "(a)\\1"}) {
    const auto refused = client->RemoveByRegex(bad);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument) << bad;
  }
  // Patterns that take others exponential time, or their stack.
  EXPECT_EQ(client->RemoveByRegex("(a*)*b").value().removed, 0u);
  EXPECT_EQ(client->RemoveByRegex(std::string(3000, '(')).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(client->RemoveByRegex("^layer\\.\\d\\.").value().removed, 2u);
  EXPECT_EQ(client->RemoveByRegex("yer").value().removed, 1u);  // found anywhere
  ExpectObject(*client, "other", Payload(1, 10));
  EXPECT_EQ(client->RemoveByRegex("other").value().skipped, 1u);  // it was read just now
  EXPECT_EQ(client->RemoveByRegex("other", /*force=*/true).value().removed, 1u);
}

TEST_P(ObjectsTest, ManyThreads) {
  const auto client = cluster_.NewObjectClient(Options());
  std::vector<std::jthread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&client, thread] {
      for (uint64_t i = 0; i < 20; ++i) {
        const uint64_t number = thread * 100 + i;
        const std::string key = "t" + std::to_string(number);
        const std::string payload = Payload(number, 1 + number * 37);
        EXPECT_TRUE(PutOne(*client, key, payload).status.ok());
        ExpectObject(*client, key, payload);
        // Whoever is overtaken by another is told so.
        const Status put =
            PutOne(*client, "shared", Payload(number, 5000), {.config = {}, .upsert = true}).status;
        EXPECT_TRUE(put.ok() || put.code() == Code::kNotFound) << put.ToString();
        const Result<std::string> shared = GetOne(*client, "shared");
        if (!shared.ok()) continue;
        // Whosever it is, it is one's alone.
        uint64_t whose = 0;
        std::memcpy(&whose, shared->data(), 8);
        EXPECT_TRUE(*shared == Payload(whose >> 40, 5000));
      }
    });
  }
}

TEST(EmbeddedObjectsTest, ObjectsOfAFolder) {
  const env::TestFolder folder;
  const auto store = OpenStore("file://" + folder.path(), {.capacity_bytes = 64 << 20});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  const std::string payload = Payload(9, 2'000'003);
  ASSERT_TRUE(PutOne((*store)->objects(), "key", payload).status.ok());
  ExpectObject((*store)->objects(), "key", payload);
}

TEST(ObjectOptionsTest, AreChecked) {
  EXPECT_TRUE(client::Validate(ObjectClientOptions()).ok());
  const Status chunk = client::Validate(ObjectClientOptions{.chunk_bytes = 0});
  EXPECT_EQ(chunk.message(), "chunk_bytes must be 1 to 67108864, got 0");
  EXPECT_EQ(client::Validate(ObjectClientOptions{.retry_ms = -1}).code(), Code::kInvalidArgument);
  EXPECT_EQ(client::Validate(ObjectClientOptions{.threads = -1}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace mooncake::cluster
