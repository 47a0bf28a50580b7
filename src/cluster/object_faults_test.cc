// Ordinary objects when something fails in the middle: a node, the Master, a reply, a byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/put_keeper.h"
#include "cluster/test_cluster.h"
#include "cluster/test_objects.h"

namespace mooncake::cluster {
namespace {

using client::ObjectClient;
using client::ObjectClientOptions;
using client::PutItem;
using client::PutOptions;
using client::PutResult;
using client::ReadResult;
using testing::AnyOf;
using testing::HasSubstr;

PutOptions Replicas(uint32_t count) {
  PutOptions options;
  options.config.set_replica_num(count);
  return options;
}

ObjectClientOptions Chunks() {
  ObjectClientOptions options;
  options.share_memory = false;
  options.chunk_bytes = 1000;
  return options;
}

// Everything of ordinary objects that the Master charges.
uint64_t ObjectBytes(TestCluster& cluster) {
  uint64_t bytes = 0;
  const v1::ListTenantsReply tenants = cluster.api()->ListTenants({});
  for (const v1::TenantStatus& tenant : tenants.tenants()) bytes += tenant.object_bytes();
  return bytes;
}

TEST(ObjectFaultsTest, AReplicaThatFailsFailsThePutAndNothingStays) {
  TestCluster cluster;
  const auto client = cluster.NewObjectClient(Chunks());
  const std::string good = Payload(1, 5000);
  ASSERT_TRUE(PutOne(*client, "before", good).status.ok());
  const uint64_t bytes = ObjectBytes(cluster);
  int calls = 0;
  cluster.on_write_extents = [&calls](const std::string& node_id, const v1::WriteExtents&) {
    return node_id == "n1" && ++calls == 3 ? Internal("the disk is on fire") : OkStatus();
  };
  const PutResult failed = PutOne(*client, "key", Payload(2, 50'000), Replicas(2));
  EXPECT_EQ(failed.status.code(), Code::kInternal);
  EXPECT_TRUE(failed.of_transfer);
  EXPECT_THAT(failed.status.message(), HasSubstr("\"key\""));
  EXPECT_THAT(failed.status.message(), HasSubstr("node n1: the disk is on fire"));
  cluster.on_write_extents = nullptr;
  EXPECT_EQ(CodeOfGet(*client, "key"), Code::kNotFound);
  EXPECT_EQ(ObjectBytes(cluster), bytes);
  ExpectObject(*client, "before", good);
  ASSERT_TRUE(PutOne(*client, "key", good, Replicas(2)).status.ok());
  ExpectObject(*client, "key", good);
}

TEST(ObjectFaultsTest, TogetherOrNotAtAll) {
  TestCluster cluster;
  const auto client = cluster.NewObjectClient(Chunks());
  const std::string payload = Payload(1, 3000);
  const std::vector<PutItem> items = {ItemOf("a", payload), ItemOf("b", payload),
                                      ItemOf("c", payload)};
  PutOptions together;
  together.all_or_nothing = true;
  int writes = 0;
  cluster.on_write_extents = [&writes](const std::string&, const v1::WriteExtents&) {
    return ++writes == 4 ? Internal("no more") : OkStatus();
  };
  for (const PutResult& result : client->Put(items, together)) {
    EXPECT_EQ(result.status.code(), Code::kInternal) << result.status.ToString();
  }
  cluster.on_write_extents = nullptr;
  for (const char* key : {"a", "b", "c"}) EXPECT_EQ(CodeOfGet(*client, key), Code::kNotFound);
  EXPECT_EQ(ObjectBytes(cluster), 0u);
  for (const PutResult& result : client->Put(items, together)) EXPECT_TRUE(result.status.ok());
  for (const char* key : {"a", "b", "c"}) ExpectObject(*client, key, payload);
}

// A reader that the kernel stalls keeps the extent that a put is to reuse; the put waits for it,
// and what else it has to write does not.
TEST(ObjectFaultsTest, AWriteOfABusyExtentIsRepeated) {
  for (const bool share_memory : {true, false}) {
    TestCluster cluster;
    ObjectClientOptions options = Chunks();
    options.share_memory = share_memory;
    const auto client = cluster.NewObjectClient(options);
    std::vector<std::string> payloads;
    std::vector<std::string> keys;
    for (uint64_t i = 0; i < 20; ++i) {
      payloads.push_back(Payload(i, i % 3 == 0 ? 20'001 : 300 + i));
      keys.push_back("key" + std::to_string(i));
    }
    std::vector<PutItem> items;
    for (size_t i = 0; i < keys.size(); ++i) items.push_back(ItemOf(keys[i], payloads[i]));
    // Every fifth write, also of what goes on in a later request, and each such write twice.
    int writes = 0;
    std::map<std::string, int> refused;
    cluster.extent_is_busy = [&](const std::string& node_id, const v1::ExtentWrite& write) {
      const std::string which = node_id + "/" + std::to_string(write.permit().offset()) + "/" +
                                (write.pieces_size() == 0 ? "" : write.pieces(0).DebugString());
      if (refused.contains(which)) return ++refused[which] == 2;
      if (++writes % 5 != 0) return false;
      refused[which] = 1;
      return true;
    };
    for (const PutResult& put : client->Put(items, Replicas(2))) {
      EXPECT_TRUE(put.status.ok()) << put.status.ToString();
    }
    EXPECT_FALSE(refused.empty());
    for (const auto& [which, times] : refused) EXPECT_GE(times, 2) << which;
    for (size_t i = 0; i < keys.size(); ++i) ExpectObject(*client, keys[i], payloads[i]);
  }
}

TEST(ObjectFaultsTest, AnExtentThatStaysBusyFailsItsPutAlone) {
  TestCluster cluster;
  ObjectClientOptions options = Chunks();
  options.retry_ms = 100;
  const auto client = cluster.NewObjectClient(options);
  const std::string payload = Payload(1, 3000);
  const std::vector<PutItem> items = {ItemOf("a", payload), ItemOf("b", payload),
                                      ItemOf("c", payload)};
  std::optional<uint64_t> offset;
  cluster.extent_is_busy = [&offset](const std::string&, const v1::ExtentWrite& write) {
    if (!offset) offset = write.permit().offset();
    return write.permit().offset() == *offset;
  };
  const std::vector<PutResult> puts = client->Put(items);
  EXPECT_EQ(puts[0].status.code(), Code::kBusy) << puts[0].status.ToString();
  EXPECT_TRUE(puts[0].of_transfer);
  EXPECT_EQ(CodeOfGet(*client, "a"), Code::kNotFound);
  for (const char* key : {"b", "c"}) ExpectObject(*client, key, payload);
}

// Memory that this process can use and another may not read, as of devices; and a node that cannot
// read its clients at all.
TEST(ObjectFaultsTest, WhatCannotBeFetchedIsSent) {
  for (const Code refusal : {Code::kInvalidArgument, Code::kUnsupported}) {
    TestCluster cluster;
    ObjectClientOptions options;
    options.chunk_bytes = 7000;
    const auto client = cluster.NewObjectClient(options);
    int fetched = 0;
    int sent = 0;
    cluster.on_write_extents = [&](const std::string&, const v1::WriteExtents& request) {
      ++(request.pull() ? fetched : sent);
      if (!request.pull()) return OkStatus();
      return Status(refusal, "of a device");
    };
    const std::string payload = Payload(1, 100'000);
    for (const char* key : {"a", "b"}) {
      const PutResult put = PutOne(*client, key, payload);
      ASSERT_TRUE(put.status.ok()) << put.status.ToString();
      ExpectObject(*client, key, payload);
    }
    EXPECT_EQ(fetched, refusal == Code::kUnsupported ? 1 : 2);
    EXPECT_EQ(sent, 2 * 15);
  }
}

// Each reply of a put is lost once, and each request.
TEST(ObjectFaultsTest, LostRequestsAndReplies) {
  TestCluster cluster;
  HookedMaster* hooks = nullptr;
  const auto client = cluster.NewObjectClient({}, &hooks);
  uint64_t number = 0;
  for (const char* method : {"PutStart", "PutEnd", "LookupObjects", "RemoveObjects"}) {
    for (const bool before : {true, false}) {
      int left = 2;
      auto& hook = before ? hooks->before : hooks->after;
      hook = [&left, method](std::string_view called) {
        return called == method && left-- > 0 ? Unavailable("lost") : OkStatus();
      };
      const std::string key = "key" + std::to_string(++number);
      const std::string payload = Payload(number, 10'000);
      const PutResult put = PutOne(*client, key, payload);
      ASSERT_TRUE(put.status.ok()) << method << " " << put.status.ToString();
      ExpectObject(*client, key, payload);
      const std::string_view view = key;
      EXPECT_TRUE(client->Remove({&view, 1}, /*force=*/true)[0].ok());
      EXPECT_LE(left, 0) << method;
      hook = [](std::string_view) { return OkStatus(); };
    }
  }
}

TEST(ObjectFaultsTest, TheMasterRestartsInTheMiddleOfAPut) {
  for (const std::string_view at : {"PutStart", "write", "PutEnd"}) {
    TestCluster cluster;
    HookedMaster* hooks = nullptr;
    const auto client = cluster.NewObjectClient({}, &hooks);
    bool done = false;
    const auto restart = [&] {
      if (std::exchange(done, true)) return;
      cluster.master().Kill();
      cluster.master().Start();
    };
    hooks->before = [&](std::string_view method) {
      if (method == at) restart();
      return OkStatus();
    };
    cluster.on_write_extents = [&](const std::string&, const v1::WriteExtents&) {
      if (at == "write") restart();
      return OkStatus();
    };
    const std::string payload = Payload(1, 100'000);
    const PutResult put = PutOne(*client, "key", payload);
    EXPECT_TRUE(done);
    cluster.on_write_extents = nullptr;
    if (put.status.ok()) {
      // Until the node has found the new Master, nobody can read.
      EXPECT_TRUE(
          TestCluster::Eventually([&] { return CodeOfGet(*client, "key") != Code::kUnavailable; }));
      ExpectObject(*client, "key", payload);
    } else {
      // It was told so, by name, and may put again.
      EXPECT_THAT(put.status.message(), HasSubstr("\"key\""));
      EXPECT_THAT(CodeOfGet(*client, "key"), AnyOf(Code::kNotFound, Code::kNotReady));
    }
    EXPECT_TRUE(TestCluster::Eventually([&] {
      return PutOne(*client, "next", payload).status.ok() &&
             CodeOfGet(*client, "next") == Code::kOk;
    }));
  }
}

TEST(ObjectFaultsTest, APutThatIsOvertakenSaysSo) {
  TestCluster cluster;
  const auto client = cluster.NewObjectClient();
  const auto other = cluster.NewObjectClient();
  const std::string theirs = Payload(2, 777);
  bool once = false;
  cluster.on_write_extents = [&](const std::string&, const v1::WriteExtents&) {
    if (!std::exchange(once, true)) {
      EXPECT_TRUE(PutOne(*other, "key", theirs, {.config = {}, .upsert = true}).status.ok());
    }
    return OkStatus();
  };
  const PutResult put = PutOne(*client, "key", Payload(1, 777));
  EXPECT_EQ(put.status.code(), Code::kNotFound) << put.status.ToString();
  EXPECT_THAT(put.status.message(), HasSubstr("\"key\""));
  ExpectObject(*client, "key", theirs);
}

TEST(ObjectFaultsTest, ADamagedReplicaIsNotReadAndForgotten) {
  TestCluster cluster;
  const auto client = cluster.NewObjectClient(Chunks());
  const std::string payload = Payload(1, 5000);
  ASSERT_TRUE(PutOne(*client, "two", payload, Replicas(2)).status.ok());
  ASSERT_TRUE(PutOne(*client, "one", payload).status.ok());
  int replies = 0;
  cluster.on_read_extents = [&replies](v1::NodeReply* reply) {
    if (++replies == 2) (*reply->mutable_content())[10] ^= 1;
  };
  ExpectObject(*client, "two", payload);
  const std::string_view two = "two";
  EXPECT_EQ(client->Describe({&two, 1})[0]->node_ids_size(), 1);
  cluster.on_read_extents = [](v1::NodeReply* reply) { (*reply->mutable_content())[10] ^= 1; };
  const std::string_view one = "one";
  std::string got(5000, '?');
  const client::GetItem item{.key = one, .pieces = {{got.data(), got.size()}}};
  const ReadResult read = client->Get({&item, 1}).front();
  EXPECT_EQ(read.status.code(), Code::kCorrupt) << read.status.ToString();
  EXPECT_TRUE(read.of_transfer);
  EXPECT_THAT(read.status.message(), HasSubstr("expected payload checksum"));
  cluster.on_read_extents = nullptr;
  EXPECT_EQ(CodeOfGet(*client, "one"), Code::kNotFound);  // it had no other
}

TEST(ObjectFaultsTest, AnotherReplicaIsReadWhenANodeIsAway) {
  for (const bool share : {true, false}) {
    TestCluster cluster;
    ObjectClientOptions options;
    options.share_memory = share;
    options.retry_ms = 2000;
    const auto client = cluster.NewObjectClient(options);
    const std::string payload = Payload(1, 100'000);
    ASSERT_TRUE(PutOne(*client, "two", payload, Replicas(2)).status.ok());
    // The Master has not noticed when it is read.
    cluster.KillNode(0);
    ExpectObject(*client, "two", payload);
  }
}

TEST(ObjectFaultsTest, ANodeThatComesBackIsAnotherLife) {
  TestCluster cluster({.nodes = 1});
  const auto client = cluster.NewObjectClient();
  const std::string first = Payload(1, 200'000);
  ASSERT_TRUE(PutOne(*client, "key", first).status.ok());
  ExpectObject(*client, "key", first);
  cluster.KillNode(0);
  cluster.StartNode(0);
  EXPECT_TRUE(
      TestCluster::Eventually([&] { return CodeOfGet(*client, "key") == Code::kNotFound; }));
  const std::string second = Payload(2, 200'000);
  EXPECT_TRUE(TestCluster::Eventually([&] { return PutOne(*client, "key", second).status.ok(); }));
  ExpectObject(*client, "key", second);
}

TEST(ObjectFaultsTest, AnObjectThatGoesUnderItsReader) {
  for (const bool share : {true, false}) {
    TestCluster cluster({.nodes = 1});
    ObjectClientOptions options;
    options.share_memory = share;
    HookedMaster* hooks = nullptr;
    const auto client = cluster.NewObjectClient(options, &hooks);
    const auto other = cluster.NewObjectClient();
    const std::string first = Payload(1, 100'000);
    const std::string second = Payload(2, 50'000);
    ASSERT_TRUE(PutOne(*client, "key", first).status.ok());
    // Between the Master's answer and the read: replaced, and its place taken by another.
    bool once = false;
    hooks->after = [&](std::string_view method) {
      if (method != "LookupObjects" || std::exchange(once, true)) return OkStatus();
      const std::string_view key = "key";
      EXPECT_TRUE(other->Remove({&key, 1}, /*force=*/true)[0].ok());
      EXPECT_TRUE(PutOne(*other, "key", second).status.ok());
      for (int i = 0; i < 4; ++i) {
        EXPECT_TRUE(PutOne(*other, "fill" + std::to_string(i), first).status.ok());
      }
      return OkStatus();
    };
    ExpectObject(*client, "key", second);
    hooks->after = [](std::string_view) { return OkStatus(); };

    // One that is wanted by its id alone is over.
    std::string got(10, '?');
    const client::RangeItem old{
        .key = "key", .from = 0, .target = {got.data(), 10}, .object_id = 1};
    EXPECT_EQ(client->GetRanges({&old, 1}).front().status.code(), Code::kLeaseExpired);
  }
}

TEST(ObjectFaultsTest, NoRoomIsSaidAtOnce) {
  TestCluster cluster({.nodes = 1, .capacity_bytes = uint64_t{16} << 20});
  const auto client = cluster.NewObjectClient();
  PutOptions at_once;
  at_once.no_eviction = true;
  const PutResult large = PutOne(*client, "large", Payload(1, 20 << 20), at_once);
  EXPECT_EQ(large.status.code(), Code::kExhausted) << large.status.ToString();
  EXPECT_EQ(large.refusal, v1::PUT_REFUSAL_NO_ROOM);
  TestCluster none({.nodes = 0});
  const PutResult nowhere = PutOne(*none.NewObjectClient({.retry_ms = 10}), "k", Payload(1, 10));
  EXPECT_EQ(nowhere.refusal, v1::PUT_REFUSAL_NO_NODE) << nowhere.status.ToString();
}

TEST(ObjectFaultsTest, AMasterThatIsAwayIsToldApart) {
  TestCluster cluster;
  const auto client = cluster.NewObjectClient({.retry_ms = 20});
  ASSERT_TRUE(PutOne(*client, "key", Payload(1, 10)).status.ok());
  cluster.master().Kill();
  const PutResult put = PutOne(*client, "other", Payload(1, 10));
  EXPECT_EQ(put.status.code(), Code::kUnavailable);
  EXPECT_FALSE(put.of_transfer);
  EXPECT_EQ(CodeOfGet(*client, "key"), Code::kUnavailable);
  const std::string_view key = "key";
  EXPECT_EQ(client->Exists({&key, 1})[0].status().code(), Code::kUnavailable);
  cluster.master().Start();
}

TEST(PutKeeperTest, TellsOnlyOfPutsThatTakeLong) {
  TestCluster cluster;
  auto hooked = std::make_shared<HookedMaster>(cluster.api());
  std::atomic<int> kept = 0;
  std::atomic<bool> refuse = true;
  hooked->before = [&](std::string_view method) {
    if (method == "KeepPuts") ++kept;
    return refuse ? Unavailable("away") : OkStatus();
  };
  client::PutKeeper keeper(hooked, std::string(32, 'a'), /*interval_ms=*/30);
  {
    const client::PutKeeper::Hold first(keeper);
    const client::PutKeeper::Hold second(keeper);
    EXPECT_TRUE(TestCluster::Eventually([&] { return kept >= 2; }));
    refuse = false;
    const int before = kept;
    EXPECT_TRUE(TestCluster::Eventually([&] { return kept >= before + 2; }));
  }
  client::PutKeeper slow(hooked, std::string(32, 'b'), /*interval_ms=*/3'600'000);
  const int before = kept;
  for (int i = 0; i < 100; ++i) const client::PutKeeper::Hold hold(slow);
  EXPECT_LE(kept, before + 1);  // at most one that was under way
}

}  // namespace
}  // namespace mooncake::cluster
