// Ordinary objects at the Master: the two phases of a put, lookups, leases, eviction, quotas,
// removal, nodes that come and go.

#include <gmock/gmock.h>

#include "master/test_objects.h"

namespace mooncake::master {
namespace {

using testing::HasSubstr;

TEST_F(ObjectsTest, APutIsReadableFromItsEndOn) {
  const v1::PutStartRequest request = Starting({{"k", 100}});
  const v1::PutStartReply started = world_.api().PutStart(request);
  ASSERT_EQ(started.entries_size(), 1);
  ASSERT_EQ(started.entries(0).permits_size(), 1);
  EXPECT_EQ(started.entries(0).permits(0).bytes(), 100u);
  EXPECT_EQ(started.nodes_size(), 1);
  EXPECT_EQ(CodeOfKey("k"), Code::kNotReady);
  Fill(started);
  const v1::PutEndRequest end = Ending(started, request);
  EXPECT_EQ(CodeOf(world_.api().PutEnd(end).results(0)), Code::kOk);
  const v1::ObjectEntry found = Look("k");
  EXPECT_EQ(found.bytes(), 100u);
  ASSERT_EQ(found.replicas_size(), 1);
  ASSERT_EQ(last_lookup_.grants_size(), 1);
  EXPECT_EQ(last_lookup_.grants(0).access(), v1::ACCESS_SLAB_READ);
  EXPECT_TRUE(world_.node(0).Honours(last_lookup_.grants(0)) ||
              world_.node(1).Honours(last_lookup_.grants(0)));
  // Both phases may be repeated.
  EXPECT_EQ(CodeOf(world_.api().PutEnd(end).results(0)), Code::kOk);
  EXPECT_EQ(world_.api().PutStart(request).entries(0).state(), v1::PUT_STATE_EXISTS);
  EXPECT_EQ(CodeOf(Look("k", false, "other").status()), Code::kNotFound);
}

TEST_F(ObjectsTest, ARepeatedStartGetsTheSameExtent) {
  const v1::PutStartRequest request = Starting({{"k", 100}, {"l", 200}});
  const v1::PutStartReply first = world_.api().PutStart(request);
  EXPECT_EQ(first.SerializeAsString(), world_.api().PutStart(request).SerializeAsString());
  // Another writer does not.
  v1::PutStartRequest other = request;
  other.set_client_id("other");
  const v1::PutStartReply refused = world_.api().PutStart(other);
  EXPECT_EQ(refused.entries(0).state(), v1::PUT_STATE_EXISTS);
  EXPECT_EQ(refused.entries(0).permits_size(), 0);
  // Nor can it end or revoke what is not its own.
  v1::PutEndRequest end = Ending(first, request);
  end.set_client_id("other");
  EXPECT_EQ(CodeOf(world_.api().PutEnd(end).results(0)), Code::kNotFound);
  v1::PutRevokeRequest revoke;
  revoke.set_client_id("other");
  revoke.set_tenant_id("t");
  for (const uint64_t id : end.object_ids()) revoke.add_object_ids(id);
  EXPECT_EQ(CodeOf(world_.api().PutRevoke(revoke).status()), Code::kOk);
  EXPECT_EQ(CodeOfKey("k"), Code::kNotReady);
  revoke.set_client_id("writer");
  EXPECT_EQ(CodeOf(world_.api().PutRevoke(revoke).status()), Code::kOk);
  EXPECT_EQ(CodeOfKey("k"), Code::kNotFound);
  EXPECT_EQ(TenantOf("t").object_bytes(), 0u);
}

TEST_F(ObjectsTest, BadRequestsNameWhatIsWrong) {
  const auto message = [&](const v1::PutStartRequest& request) {
    const v1::PutStartReply reply = world_.api().PutStart(request);
    return reply.entries_size() > 0 ? reply.entries(0).status().message()
                                    : reply.status().message();
  };
  EXPECT_THAT(message(Starting({{"", 1}})), HasSubstr("key must not be empty"));
  EXPECT_THAT(message(Starting({{"k", 0}})), HasSubstr("1 to 70368744177664 bytes, got 0"));
  EXPECT_THAT(message(Starting({{std::string(65'537, 'k'), 1}})), HasSubstr("65536 bytes, got"));
  v1::PutStartRequest request = Starting({{"k", 1}});
  request.add_sizes(1);
  EXPECT_THAT(message(request), HasSubstr("1 keys have 2 sizes"));
  request = Starting({{"k", 1}});
  request.set_put_id(0);
  EXPECT_THAT(message(request), HasSubstr("put_id"));
  request = Starting({{"k", 1}});
  request.mutable_config()->set_soft_pin_ttl_ms(5);
  EXPECT_THAT(message(request), HasSubstr("without SOFT_PIN_ENABLE"));
  request.mutable_config()->set_soft_pin(v1::SOFT_PIN_ENABLE);
  request.mutable_config()->set_soft_pin_ttl_ms(86'400'001);
  EXPECT_THAT(message(request), HasSubstr("at most 86400000, got 86400001"));
  request = Starting({{"k", 1}});
  request.mutable_config()->set_replica_num(65);
  EXPECT_THAT(message(request), HasSubstr("at most 64, got 65"));
  request = Starting({{"k", 1}, {"l", 1}});
  request.add_group_ids("g");
  EXPECT_THAT(message(request), HasSubstr("2 keys have 1 group ids"));
  request = Starting({{"k", 1}});
  request.clear_tenant_id();
  EXPECT_THAT(message(request), HasSubstr("tenant_id"));
  EXPECT_EQ(world_.master().state().pool.object_count(), 0u);
}

TEST_F(ObjectsTest, AllOrNothing) {
  v1::PutStartRequest request = Starting({{"a", 1000}, {"b", 8u << 20}, {"c", 1000}});
  request.set_all_or_nothing(true);
  const v1::PutStartReply reply = world_.api().PutStart(request);
  EXPECT_EQ(CodeOf(reply.entries(0).status()), Code::kCancelled);
  EXPECT_EQ(CodeOf(reply.entries(1).status()), Code::kExhausted);
  EXPECT_EQ(CodeOf(reply.entries(2).status()), Code::kCancelled);
  EXPECT_EQ(reply.entries(1).refusal(), v1::PUT_REFUSAL_NO_ROOM);
  EXPECT_THAT(reply.entries(1).status().message(), HasSubstr("no room for 8388672 bytes"));
  EXPECT_EQ(TenantOf("t").object_bytes(), 0u);
  // Without it the others go on.
  request.set_all_or_nothing(false);
  request.set_put_id(++put_id_);
  const v1::PutStartReply each = world_.api().PutStart(request);
  EXPECT_EQ(each.entries(0).state(), v1::PUT_STATE_WRITE);
  EXPECT_EQ(CodeOf(each.entries(1).status()), Code::kExhausted);
  EXPECT_EQ(each.entries(2).state(), v1::PUT_STATE_WRITE);
  // And an end of which one is lost makes none readable.
  Fill(each);
  v1::PutEndRequest end = Ending(each, request);
  end.add_object_ids(999'999);
  end.set_all_or_nothing(true);
  const v1::PutEndReply ended = world_.api().PutEnd(end);
  EXPECT_EQ(CodeOf(ended.results(0)), Code::kCancelled);
  EXPECT_EQ(CodeOf(ended.results(2)), Code::kNotFound);
  EXPECT_EQ(CodeOfKey("a"), Code::kNotReady);
}

TEST_F(ObjectsTest, ASilentWritersPutIsDropped) {
  world_.api().PutStart(Starting({{"k", 100}}));
  for (int i = 0; i < 5; ++i) {
    world_.Pass(2'000);
    v1::KeepPutsRequest keep;
    keep.set_client_id("writer");
    world_.api().KeepPuts(keep);
  }
  EXPECT_EQ(CodeOfKey("k"), Code::kNotReady);
  world_.Pass(2'500);
  EXPECT_EQ(CodeOfKey("k"), Code::kNotReady);
  world_.Pass(1'000);
  EXPECT_EQ(CodeOfKey("k"), Code::kNotFound);
  EXPECT_EQ(TenantOf("t").object_bytes(), 0u);
}

TEST_F(ObjectsTest, LeasesProtectFromRemovalAndProbesGiveNone) {
  Put("k", 100);
  EXPECT_EQ(CodeOfKey("k"), Code::kOk);  // a probe
  Look("k", /*renew=*/true);
  EXPECT_EQ(last_lookup_.lease_ms(), 1000u);
  EXPECT_EQ(CodeOf(Remove("k").results(0)), Code::kBusy);
  world_.clock().AdvanceMs(999);
  EXPECT_EQ(CodeOfKey("k"), Code::kOk);
  EXPECT_EQ(CodeOf(Remove("k").results(0)), Code::kBusy);
  world_.clock().AdvanceMs(1);
  EXPECT_EQ(CodeOf(Remove("k").results(0)), Code::kOk);
  EXPECT_EQ(CodeOf(Remove("k").results(0)), Code::kNotFound);
  Put("k", 100);
  Look("k", true);
  EXPECT_EQ(CodeOf(Remove("k", /*force=*/true).results(0)), Code::kOk);
}

TEST_F(ObjectsTest, ARemovalThatIsRepeatedGetsTheFirstAnswer) {
  Put("k", 100);
  v1::RemoveObjectsRequest request;
  request.set_tenant_id("t");
  request.add_keys("k");
  request = client_.Numbered(request);
  EXPECT_EQ(CodeOf(world_.api().RemoveObjects(request).results(0)), Code::kOk);
  Put("k", 50);
  EXPECT_EQ(CodeOf(world_.api().RemoveObjects(request).results(0)), Code::kOk);
  EXPECT_EQ(CodeOfKey("k"), Code::kOk);
}

TEST_F(ObjectsTest, AFullPoolGivesUpTheOldestUnleased) {
  // The two nodes have 1 MiB each; objects of 60 KiB, one a slab.
  std::vector<std::string> kept;
  for (int i = 0; i < 100; ++i) {
    const std::string key = "k" + std::to_string(i);
    const v1::PutStartReply reply = Put(key, 60 * 1024);
    ASSERT_EQ(CodeOf(reply.entries(0).status()), Code::kOk) << reply.DebugString();
    world_.clock().AdvanceMs(10);
    if (i == 3) Look("k3", true);
  }
  EXPECT_EQ(CodeOfKey("k99"), Code::kOk);
  EXPECT_EQ(CodeOfKey("k0"), Code::kNotFound);
  EXPECT_GT(TenantOf("t").evicted_objects(), 60u);
  EXPECT_EQ(TenantOf("t").refused_puts(), 0u);
  EXPECT_TRUE(world_.master().state().CheckInvariants().ok());
}

// Nothing goes in the background.
class FullPoolTest : public ObjectsTest {
 protected:
  static MasterOptions ToTheBrim() {
    MasterOptions options = ObjectOptions();
    options.eviction_high_watermark_ratio = 1;
    options.eviction_ratio = 0;
    return options;
  }
  FullPoolTest() : ObjectsTest(ToTheBrim()) {}
};

TEST_F(FullPoolTest, WithoutEvictionNoRoomIsSaidAtOnce) {
  int stored = 0;
  for (; stored < 100; ++stored) {
    v1::PutStartRequest request = Starting({{"k" + std::to_string(stored), 60 * 1024}});
    request.set_no_eviction(true);
    const v1::PutStartReply reply = Put(request);
    if (CodeOf(reply.entries(0).status()) == Code::kOk) {
      Look("k" + std::to_string(stored), true);
      continue;
    }
    EXPECT_EQ(reply.entries(0).refusal(), v1::PUT_REFUSAL_NO_ROOM);
    break;
  }
  EXPECT_EQ(stored, 32);
  // All of it is leased: nothing can be evicted either.
  EXPECT_EQ(CodeOf(Put("more", 60 * 1024).entries(0).status()), Code::kExhausted);
  EXPECT_EQ(TenantOf("t").object_count(), 32u);
  world_.Pass(2'000);
  EXPECT_EQ(CodeOf(Put("more", 60 * 1024).entries(0).status()), Code::kOk);
}

TEST_F(ObjectsTest, TheBackgroundKeepsRoomBelowTheWatermark) {
  for (int i = 0; i < 40; ++i) {
    v1::PutStartRequest request = Starting({{"k" + std::to_string(i), 60 * 1024}});
    request.set_no_eviction(true);
    EXPECT_EQ(CodeOf(Put(request).entries(0).status()), Code::kOk);
    EXPECT_LE(TenantOf("t").object_bytes(), (2u << 20) * 9 / 10);
    world_.clock().AdvanceMs(1);
  }
}

TEST_F(ObjectsTest, QuotasHoldAndEvictTheTenantsOwn) {
  SetQuota("t", 10 * 1024, 0);
  SetQuota("u", 0, 3);
  v1::PutStartRequest other = Starting({{"theirs", 1000}});
  other.set_tenant_id("u");
  Put(other);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(CodeOf(Put("k" + std::to_string(i), 1000).entries(0).status()), Code::kOk);
    ASSERT_LE(TenantOf("t").object_bytes(), 10u * 1024);
    world_.clock().AdvanceMs(5);
  }
  EXPECT_EQ(TenantOf("u").object_count(), 1u);
  const v1::PutStartReply large = Put("large", 11'000);
  EXPECT_EQ(large.entries(0).refusal(), v1::PUT_REFUSAL_QUOTA);
  EXPECT_THAT(large.entries(0).status().message(), HasSubstr("of 10240 bytes"));
  // Objects are counted as well; what is leased is not evicted for it.
  for (int i = 0; i < 5; ++i) {
    v1::PutStartRequest request = Starting({{"o" + std::to_string(i), 100}});
    request.set_tenant_id("u");
    const v1::PutEntry entry = Put(request).entries(0);
    EXPECT_EQ(entry.refusal(), i < 2 ? v1::PUT_REFUSAL_UNSPECIFIED : v1::PUT_REFUSAL_QUOTA);
    Look("theirs", true, "u");
    Look("o" + std::to_string(i), true, "u");
  }
  // A known tenant goes when it is empty.
  v1::SetTenantRequest removal;
  removal.mutable_quota()->set_tenant_id("u");
  removal.set_remove(true);
  EXPECT_EQ(CodeOf(world_.api().SetTenant(client_.Numbered(removal)).status()), Code::kBusy);
  v1::RemoveAllObjectsRequest all;
  all.set_tenant_id("u");
  const v1::RemoveAllObjectsReply left = world_.api().RemoveAllObjects(client_.Numbered(all));
  EXPECT_EQ(left.removed(), 0u);
  EXPECT_EQ(left.skipped(), 3u);
  all.set_force(true);
  EXPECT_EQ(world_.api().RemoveAllObjects(client_.Numbered(all)).removed(), 3u);
  EXPECT_EQ(CodeOf(world_.api().SetTenant(client_.Numbered(removal)).status()), Code::kOk);
  EXPECT_EQ(TenantOf("u").quota().tenant_id(), "");
  EXPECT_GT(TenantOf("t").object_count(), 0u);
}

class KnownTenantsTest : public ObjectsTest {
 protected:
  static MasterOptions Strict() {
    MasterOptions options = ObjectOptions();
    options.require_known_tenants = true;
    return options;
  }
  KnownTenantsTest() : ObjectsTest(Strict()) {}
};

TEST_F(KnownTenantsTest, StrangersAreRefused) {
  EXPECT_EQ(Put("k", 10).entries(0).refusal(), v1::PUT_REFUSAL_UNKNOWN_TENANT);
  SetQuota("t", 0, 0);
  EXPECT_EQ(CodeOf(Put("k", 10).entries(0).status()), Code::kOk);
}

TEST_F(ObjectsTest, AnUpsertReplacesAndKeepsTheOldUntilThen) {
  Put("k", 100);
  const uint64_t old = Look("k").object_id();
  v1::PutStartRequest request = Starting({{"k", 300}});
  request.set_upsert(true);
  const v1::PutStartReply started = world_.api().PutStart(request);
  EXPECT_EQ(Look("k").object_id(), old);
  // A second one overtakes the first.
  v1::PutStartRequest second = request;
  second.set_client_id("other");
  const v1::PutStartReply overtaking = world_.api().PutStart(second);
  EXPECT_EQ(CodeOf(world_.api().PutEnd(Ending(started, request)).results(0)), Code::kNotFound);
  Fill(overtaking);
  EXPECT_EQ(CodeOf(world_.api().PutEnd(Ending(overtaking, second)).results(0)), Code::kOk);
  EXPECT_EQ(Look("k").bytes(), 300u);
  EXPECT_EQ(TenantOf("t").object_count(), 1u);
  EXPECT_EQ(TenantOf("t").object_bytes(), pool::ExtentBytes(300));
  v1::PutStartRequest grouped = Starting({{"k", 300}});
  grouped.set_upsert(true);
  grouped.add_group_ids("g");
  EXPECT_EQ(world_.api().PutStart(grouped).entries(0).refusal(), v1::PUT_REFUSAL_GROUP);
}

TEST_F(ObjectsTest, ListsByPrefixInPages) {
  for (int i = 0; i < 30; ++i) Put((i % 2 == 0 ? "even/" : "odd/") + std::to_string(i), 10);
  v1::ListObjectsRequest request;
  request.set_tenant_id("t");
  request.set_prefix("odd/");
  request.set_limit(4);
  std::set<std::string> keys;
  do {
    const v1::ListObjectsReply page = world_.api().ListObjects(request);
    EXPECT_LE(page.objects_size(), 4);
    for (const v1::ObjectInfo& info : page.objects()) keys.insert(info.key());
    request.set_cursor(page.next_cursor());
  } while (request.cursor() != 0);
  EXPECT_EQ(keys.size(), 15u);
  EXPECT_TRUE(keys.contains("odd/29"));
  request.set_tenant_id("other");
  EXPECT_EQ(world_.api().ListObjects(request).objects_size(), 0);
}

TEST_F(ObjectsTest, ARestartedNodeHasLostItsObjectsAndReplicasRemain) {
  v1::PutStartRequest request = Starting({{"two", 100}});
  request.mutable_config()->set_replica_num(2);
  EXPECT_EQ(Put(request).entries(0).permits_size(), 2);
  v1::PutStartRequest one = Starting({{"one", 100}});
  one.mutable_config()->add_preferred_node_ids("n1");
  Put(one);
  ASSERT_EQ(Look("one").replicas(0).node_id(), "n1");
  world_.node(0).Restart();
  world_.Report();
  EXPECT_EQ(CodeOfKey("one"), Code::kNotFound);
  const v1::ObjectEntry two = Look("two");
  EXPECT_EQ(CodeOf(two.status()), Code::kOk);
  EXPECT_EQ(two.replicas_size(), 1);
  EXPECT_EQ(two.replicas(0).node_id(), "n2");
  EXPECT_TRUE(world_.master().state().CheckInvariants().ok());
}

TEST_F(ObjectsTest, AnUnreadableReplicaIsForgottenOnlyWhileItIsTheObjects) {
  Put("k", 100);
  const v1::ObjectEntry found = Look("k");
  v1::ReportUnreadableRequest report;
  report.set_tenant_id("t");
  report.set_key("k");
  report.set_object_id(found.object_id() + 1);
  *report.mutable_replica() = found.replicas(0);
  world_.api().ReportUnreadable(report);
  EXPECT_EQ(CodeOfKey("k"), Code::kOk);
  report.set_object_id(found.object_id());
  report.mutable_replica()->set_offset(found.replicas(0).offset() + 64);
  world_.api().ReportUnreadable(report);
  EXPECT_EQ(CodeOfKey("k"), Code::kOk);
  *report.mutable_replica() = found.replicas(0);
  world_.api().ReportUnreadable(report);
  EXPECT_EQ(CodeOfKey("k"), Code::kNotFound);
}

TEST_F(ObjectsTest, KeysOfAWeightRevisionAreNobodysObjects) {
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 4096);
  ASSERT_TRUE(world_.Publish(client_, plan).ok());
  const std::string key = "weights/ns/model/r/1/payload/w0.0";
  const auto put = [&](const std::string& one) {
    v1::PutStartRequest request = Starting({{one, 10}});
    request.set_tenant_id("default");
    return Put(request).entries(0);
  };
  EXPECT_EQ(CodeOf(put(key).status()), Code::kBusy);
  EXPECT_EQ(CodeOf(put("weights/ns/model/r/1/manifest").status()), Code::kBusy);
  EXPECT_EQ(CodeOf(put("weights/ns/model/r/2/manifest").status()), Code::kOk);  // no such revision
  EXPECT_EQ(CodeOf(put("weights/else").status()), Code::kOk);
  v1::RemoveObjectsRequest removal;
  removal.set_tenant_id("default");
  removal.add_keys(key);
  removal.set_force(true);
  EXPECT_EQ(CodeOf(world_.api().RemoveObjects(client_.Numbered(removal)).results(0)), Code::kBusy);
  v1::RemoveAllObjectsRequest all;
  all.set_tenant_id("default");
  all.set_force(true);
  EXPECT_EQ(world_.api().RemoveAllObjects(client_.Numbered(all)).removed(), 2u);
  EXPECT_EQ(TenantOf("default").managed_skipped(), 3u);
  EXPECT_EQ(world_.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
}

TEST_F(ObjectsTest, AnImportThatFindsNoRoomTakesItFromObjects) {
  // All memory is the objects'.
  for (int i = 0; i < 40; ++i) Put("k" + std::to_string(i), 60 * 1024);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 4, 100'000);
  const v1::BeginImportRequest request = client_.Numbered(plan);
  const v1::BeginImportReply first = world_.api().BeginImport(request);
  EXPECT_EQ(CodeOf(first.status()), Code::kUnavailable) << first.DebugString();
  EXPECT_THAT(first.status().message(), HasSubstr("are making room"));
  world_.Report();
  const v1::BeginImportReply second = world_.api().BeginImport(request);
  EXPECT_EQ(CodeOf(second.status()), Code::kOk) << second.DebugString();
  EXPECT_TRUE(world_.master().state().CheckInvariants().ok());
}

TEST_F(FullPoolTest, LeasedObjectsMakeNoRoomForAnImport) {
  for (int i = 0; i < 32; ++i) {
    Put("k" + std::to_string(i), 60 * 1024);
    Look("k" + std::to_string(i), true);
  }
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 4, 100'000);
  EXPECT_EQ(CodeOf(world_.api().BeginImport(client_.Numbered(plan)).status()), Code::kExhausted);
  EXPECT_EQ(TenantOf("t").object_count(), 32u);
}

TEST_F(ObjectsTest, EmptySlabsGoBackToTheNode) {
  Put("k", 100);
  const uint64_t used = world_.Space().first;
  EXPECT_GT(used, 0u);
  Remove("k");
  world_.Pass(5'000);
  EXPECT_EQ(world_.Space().first, used);
  world_.Pass(7'000);
  EXPECT_EQ(world_.Space().first, 0u);
  EXPECT_EQ(world_.Space().second, 0u);
  EXPECT_EQ(world_.node(0).arenas().contains(0) ? world_.node(0).arenas().at(0).size() : 0, 0u);
}

}  // namespace
}  // namespace mooncake::master
