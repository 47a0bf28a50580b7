// The Master's behaviour, seen through its RPCs, one batch at a time.
#include "master/master.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "master/test_world.h"

namespace mooncake::master {
namespace {

using testing::HasSubstr;

// The second half of PublishReadRemove.
void ReadAndRemove(TestWorld& world, BookClient& client, const v1::BeginImportRequest& plan,
                   uint64_t physical_bytes) {
  const v1::WeightIdentity& identity = plan.identity();
  const v1::OpenRevisionReply opened = world.Open(client, identity);
  ASSERT_EQ(opened.status().code(), 0u) << opened.status().message();
  EXPECT_EQ(opened.metadata().active_lease_count(), 1u);
  const v1::LocateObjectsReply located = world.Locate(opened.lease_id(), {"w0.1", "w1.2"});
  ASSERT_EQ(located.status().code(), 0u) << located.status().message();
  ASSERT_EQ(located.objects_size(), 2);
  EXPECT_EQ(located.objects(1).name(), "w1.2");
  EXPECT_EQ(located.objects(1).bytes(), 5000u);
  EXPECT_EQ(located.participants(static_cast<int>(located.objects(1).participant())), "rank1");
  EXPECT_EQ(located.metadata_objects_size(), 4);
  for (const v1::Grant& grant : located.grants()) {
    EXPECT_TRUE(world.node(0).Honours(grant) != world.node(1).Honours(grant));
    EXPECT_EQ(grant.tenant_id(), "default");
    EXPECT_TRUE(grant.access() == v1::ACCESS_READ || grant.access() == v1::ACCESS_METADATA_READ);
  }

  const v1::RemoveWeightReply busy = world.Remove(client, identity);
  EXPECT_EQ(CodeOf(busy.status()), Code::kBusy);
  EXPECT_THAT(busy.status().message(), HasSubstr("test"));
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(opened.lease_id());
  ASSERT_EQ(world.api().ReleaseLease(client.Numbered(release)).status().code(), 0u);
  const v1::RemoveWeightReply removed = world.Remove(client, identity);
  ASSERT_EQ(removed.status().code(), 0u) << removed.status().message();
  EXPECT_EQ(removed.metadata().availability(), v1::AVAILABILITY_DELETING);
  EXPECT_EQ(CodeOf(world.Open(client, identity).status()), Code::kNotReady);
  const size_t before = world.log().size();
  world.Settle();
  // Two payloads a batch, then the group, then the tombstone.
  EXPECT_GE(world.log().size(), before + 3);
  EXPECT_EQ(world.AvailabilityOf(identity), v1::AVAILABILITY_DELETED);
  EXPECT_EQ(world.Space(), (std::pair<uint64_t, uint64_t>{0, physical_bytes}));
  world.Report();
  EXPECT_EQ(world.Space(), (std::pair<uint64_t, uint64_t>{0, 0}));
  EXPECT_EQ(world.node(0).import_count() + world.node(1).import_count(), 0u);
  const v1::BeginImportReply again = world.api().BeginImport(client.Numbered(plan));
  EXPECT_EQ(CodeOf(again.status()), Code::kStaleGeneration);
}

TEST(Master, PublishReadRemove) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const v1::WeightIdentity identity = BookClient::Identity(1);
  const auto plan = BookClient::Plan(identity, 2, 3, 5000);

  EXPECT_EQ(CodeOf(world.Get(identity).status()), Code::kNotFound);
  const v1::BeginImportReply begun = world.api().BeginImport(client.Numbered(plan));
  ASSERT_EQ(begun.status().code(), 0u) << begun.status().message();
  EXPECT_EQ(begun.state(), v1::IMPORT_STATE_OPEN);
  EXPECT_EQ(begun.group_id(), "weights/ns/model/r/1");
  EXPECT_EQ(begun.created_at(), "2027-01-15T08:00:00.000Z");
  // The default policy, without a cold tier.
  EXPECT_EQ(begun.policy().preferred_residency(), v1::RESIDENCY_HOT);
  EXPECT_FALSE(begun.policy_note().empty());
  for (const auto& participant : begun.participants()) {
    EXPECT_EQ(participant.state(), v1::PARTICIPANT_STATE_YOURS);
  }
  EXPECT_EQ(CodeOf(world.Get(identity).status()), Code::kNotReady);
  EXPECT_EQ(world.api().GetCluster({}).open_imports(), 1u);
  EXPECT_EQ(world.Space().first, 6u * 8192);

  const std::string node_id = world.WritePayloads(client, plan, begun.import_id()).value();
  ASSERT_TRUE(world.SubmitReceipt(client, begun.import_id(), "rank0", node_id).ok());
  const Status early = world.Commit(client, plan, begun.import_id(), node_id).status();
  EXPECT_EQ(early.code(), Code::kNotReady) << early.ToString();
  ASSERT_TRUE(world.SubmitReceipt(client, begun.import_id(), "rank1", node_id).ok());
  const auto committed = world.Commit(client, plan, begun.import_id(), node_id);
  ASSERT_TRUE(committed.ok()) << committed.status().ToString();
  EXPECT_EQ(committed->availability(), v1::AVAILABILITY_READY);
  EXPECT_EQ(committed->observed_residency(), v1::RESIDENCY_HOT);
  EXPECT_EQ(committed->payload_count(), 6u);
  EXPECT_EQ(committed->logical_payload_bytes(), 30'000u);
  EXPECT_EQ(committed->affinity_count(), 6u);
  // Six payloads and four METADATA objects (digests of two ranks, manifest, affinity).
  EXPECT_EQ(committed->physical_bytes(), 6u * 8192 + 4u * 4096);
  EXPECT_EQ(world.Space().first, committed->physical_bytes());
  EXPECT_EQ(world.Get(identity).metadata().SerializeAsString(), committed->SerializeAsString());
  v1::ListWeightsRequest list;
  list.set_tenant_id("default");
  ASSERT_EQ(world.api().ListWeights(list).revisions_size(), 1);
  EXPECT_EQ(world.api().GetCluster({}).object_count(), 10u);

  ReadAndRemove(world, client, plan, committed->physical_bytes());
}

TEST(Master, AnAbandonedImportVanishesWithItsSpace) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 2, 2, 100'000);
  const auto begun = world.api().BeginImport(client.Numbered(plan));
  ASSERT_TRUE(world.WritePayloads(client, plan, begun.import_id()).ok());
  v1::KeepImportRequest keep;
  keep.set_import_id(begun.import_id());
  keep.set_client_id(client.client_id());
  world.Pass(9'000);
  EXPECT_EQ(world.api().KeepImport(keep).state(), v1::IMPORT_STATE_OPEN);
  world.Pass(9'000);
  EXPECT_EQ(world.api().KeepImport(keep).state(), v1::IMPORT_STATE_OPEN);
  world.Pass(10'500);
  EXPECT_EQ(world.api().KeepImport(keep).state(), v1::IMPORT_STATE_ABORTED);
  EXPECT_EQ(CodeOf(world.Get(plan.identity()).status()), Code::kNotFound);
  EXPECT_EQ(world.Space(), (std::pair<uint64_t, uint64_t>{0, 0}));
  EXPECT_EQ(world.node(0).import_count() + world.node(1).import_count(), 0u);
  v1::GetImportRequest get;
  get.set_import_id(begun.import_id());
  EXPECT_FALSE(world.api().GetImport(get).abort_reason().empty());
  EXPECT_TRUE(world.Publish(client, plan).ok());
}

// Nobody is told that a lease is over before the log has it: a failed append brings it back.
TEST(Master, ALeaseIsToldOverOnlyOnceTheLogHasIt) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  v1::RenewLeasesRequest renew;
  renew.add_lease_ids(world.Open(client, plan.identity(), 2'000).lease_id());
  world.clock().AdvanceMs(2'500);
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kLost);
  EXPECT_EQ(CodeOf(world.api().RenewLeases(renew).status()), Code::kUnavailable);
  // It is back, with a full TTL.
  const v1::RenewLeasesReply renewed = world.api().RenewLeases(renew);
  EXPECT_EQ(CodeOf(renewed.status()), Code::kOk);
  EXPECT_EQ(CodeOf(renewed.leases(0)), Code::kOk);
}

TEST(Master, AFullStoreRefusesAndIsUnchanged) {
  TestWorld world;
  BookClient client(world.api(), 1);
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(1), 2, 2, 100'000)).ok());
  const auto space = world.Space();
  const Sha256Digest objects = world.master().state().objects.Digest();
  const Sha256Digest weights = world.master().state().weights.Digest();
  const auto reply = world.api().BeginImport(
      client.Numbered(BookClient::Plan(BookClient::Identity(2), 2, 10, 200'000)));
  EXPECT_EQ(CodeOf(reply.status()), Code::kExhausted);
  EXPECT_THAT(reply.status().message(), HasSubstr(std::to_string(20 * 200'704)));
  EXPECT_EQ(world.Space(), space);
  EXPECT_EQ(world.master().state().objects.Digest(), objects);
  EXPECT_EQ(world.master().state().weights.Digest(), weights);
}

TEST(Master, ALeaseEndsWithItsTimeAndARestartRenewsIt) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  const uint64_t kept = world.Open(client, plan.identity(), 2'000).lease_id();
  const uint64_t left = world.Open(client, plan.identity(), 2'000).lease_id();
  EXPECT_EQ(left, kept + 1);
  v1::RenewLeasesRequest renew;
  renew.add_lease_ids(kept);
  world.Pass(1'500);
  EXPECT_EQ(world.api().RenewLeases(renew).leases(0).code(), 0u);
  // The wall clock's jumps mean nothing.
  world.clock().JumpWallMs(3'600'000);
  world.clock().JumpWallMs(-7'200'000);
  world.Pass(1'000);
  EXPECT_EQ(CodeOf(world.Locate(left).status()), Code::kLeaseExpired);
  EXPECT_EQ(world.Locate(kept).status().code(), 0u);
  renew.add_lease_ids(left);
  renew.add_lease_ids(77);
  const v1::RenewLeasesReply renewed = world.api().RenewLeases(renew);
  EXPECT_EQ(renewed.leases(0).code(), 0u);
  EXPECT_EQ(CodeOf(renewed.leases(1)), Code::kLeaseExpired);
  EXPECT_EQ(CodeOf(renewed.leases(2)), Code::kNotFound);
  EXPECT_EQ(world.Get(plan.identity()).metadata().active_lease_count(), 1u);

  world.Pass(1'500);
  world.RestartMaster();
  world.Pass(1'500);  // 3 s after the renewal, 1.5 s after the restart
  EXPECT_EQ(world.Locate(kept).status().code(), 0u);
  EXPECT_EQ(CodeOf(world.Remove(client, plan.identity()).status()), Code::kBusy);
  world.Pass(600);
  EXPECT_EQ(CodeOf(world.Locate(kept).status()), Code::kLeaseExpired);
  EXPECT_EQ(world.Remove(client, plan.identity()).status().code(), 0u);
}

TEST(Master, ARemovalWaitsForNoReaderWhoseTimeIsOver) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  ASSERT_EQ(world.Open(client, plan.identity(), 1'000).status().code(), 0u);
  EXPECT_EQ(CodeOf(world.Remove(client, plan.identity()).status()), Code::kBusy);
  world.clock().AdvanceMs(1'000);
  EXPECT_EQ(world.Remove(client, plan.identity()).status().code(), 0u);
}

TEST(Master, TtlsOutsideOfTheLimitsAreRefused) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  plan.set_ttl_ms(3'600'001);
  EXPECT_THAT(world.Publish(client, plan).status().message(),
              HasSubstr("import ttl_ms from 10 to 3600000, got 3600001"));
  plan.set_ttl_ms(1'000);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  const auto opened = world.Open(client, plan.identity(), 9);
  EXPECT_EQ(CodeOf(opened.status()), Code::kInvalidArgument);
  EXPECT_THAT(opened.status().message(), HasSubstr("lease ttl_ms from 10 to 3600000, got 9"));
}

// ---- command ids ----

TEST(Master, ARetryGetsTheFirstAnswer) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto begin = client.Numbered(BookClient::Plan(BookClient::Identity(1), 1, 2, 100));
  const v1::BeginImportReply first = world.api().BeginImport(begin);
  ASSERT_EQ(first.status().code(), 0u);
  const size_t records = world.log().size();
  world.clock().AdvanceMs(100);
  EXPECT_EQ(world.api().BeginImport(begin).SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(world.log().size(), records);
  world.RestartMaster();
  EXPECT_EQ(world.api().BeginImport(begin).SerializeAsString(), first.SerializeAsString());

  auto other = begin;
  other.set_ttl_ms(9'999);
  const Status reused = rpc::StatusFromProto(world.api().BeginImport(other).status());
  EXPECT_EQ(reused.code(), Code::kInvalidArgument);
  EXPECT_THAT(reused.message(), HasSubstr("was another request"));
  // The same id for another method is another request, too.
  v1::AbortImportRequest abort;
  *abort.mutable_command() = begin.command();
  EXPECT_EQ(CodeOf(world.api().AbortImport(abort).status()), Code::kInvalidArgument);
}

TEST(Master, ARefusalIsAnOutcomeToo) {
  TestWorld world;
  BookClient reader(world.api(), 1);
  BookClient remover(world.api(), 2);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(reader, plan).ok());
  const uint64_t lease = world.Open(reader, plan.identity()).lease_id();
  v1::RemoveWeightRequest remove;
  *remove.mutable_identity() = plan.identity();
  remove = remover.Numbered(remove);
  const v1::RemoveWeightReply busy = world.api().RemoveWeight(remove);
  EXPECT_EQ(CodeOf(busy.status()), Code::kBusy);
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(lease);
  ASSERT_EQ(world.api().ReleaseLease(reader.Numbered(release)).status().code(), 0u);
  // A late duplicate removes nothing, though it could now.
  EXPECT_EQ(world.api().RemoveWeight(remove).SerializeAsString(), busy.SerializeAsString());
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  EXPECT_EQ(world.Remove(remover, plan.identity()).status().code(), 0u);
  // Acknowledged by the command after it: not executed ever again.
  EXPECT_EQ(CodeOf(world.api().RemoveWeight(remove).status()), Code::kInvalidArgument);
}

TEST(Master, UnavailableIsNoOutcome) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto begin = client.Numbered(BookClient::Plan(BookClient::Identity(1), 1, 1, 100));
  world.clock().AdvanceMs(3'100);  // both nodes fall silent
  world.Settle();
  EXPECT_EQ(CodeOf(world.api().BeginImport(begin).status()), Code::kUnavailable);
  world.Report();
  EXPECT_EQ(world.api().BeginImport(begin).status().code(), 0u);
}

TEST(Master, CommandIdsAreChecked) {
  TestWorld world;
  BookClient client(world.api(), 1);
  for (const auto& [id, sequence, acked] : {std::tuple<std::string, uint64_t, uint64_t>{"", 1, 0},
                                            {"0123456789ABCDEF0123456789ABCDEF", 1, 0},
                                            {std::string(31, 'a'), 1, 0},
                                            {std::string(32, 'a'), 0, 0},
                                            {std::string(32, 'a'), 3, 4}}) {
    v1::ReleaseLeaseRequest request;
    request.mutable_command()->set_client_id(id);
    request.mutable_command()->set_sequence(sequence);
    request.mutable_command()->set_acked_below(acked);
    EXPECT_EQ(CodeOf(world.api().ReleaseLease(request).status()), Code::kInvalidArgument) << id;
  }
  EXPECT_EQ(CodeOf(world.api().ReleaseLease({}).status()), Code::kInvalidArgument);
}

// ---- the log fails ----

TEST(Master, ALostAppendChangesNothing) {
  TestWorld world;
  BookClient client(world.api(), 1);
  ASSERT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(1), 1, 1, 100)).ok());
  const Sha256Digest weights = world.master().state().weights.Digest();
  const auto begin = client.Numbered(BookClient::Plan(BookClient::Identity(2), 1, 1, 100));
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kLost);
  const Status failed = rpc::StatusFromProto(world.api().BeginImport(begin).status());
  EXPECT_EQ(failed.code(), Code::kDurabilityFailed);
  EXPECT_THAT(failed.message(), HasSubstr("injected fault"));
  EXPECT_EQ(world.master().state().weights.Digest(), weights);
  EXPECT_EQ(CodeOf(world.Get(begin.identity()).status()), Code::kNotFound);
  const v1::BeginImportReply retried = world.api().BeginImport(begin);
  EXPECT_EQ(retried.status().code(), 0u) << retried.status().message();
  EXPECT_EQ(retried.import_id(), 2u);
}

TEST(Master, AfterAnUnclearAppendTheRetryGetsTheOutcomeThatIsLogged) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  v1::OpenRevisionRequest open;
  *open.mutable_identity() = plan.identity();
  open.set_ttl_ms(5'000);
  open = client.Numbered(open);
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kDurableButUnclear);
  EXPECT_EQ(CodeOf(world.api().OpenRevision(open).status()), Code::kDurabilityFailed);
  const v1::OpenRevisionReply retried = world.api().OpenRevision(open);
  ASSERT_EQ(retried.status().code(), 0u) << retried.status().message();
  EXPECT_EQ(retried.lease_id(), 1u);
  // Exactly one lease came of it, and the next has the next id.
  EXPECT_EQ(world.Get(plan.identity()).metadata().active_lease_count(), 1u);
  EXPECT_EQ(world.Open(client, plan.identity()).lease_id(), 2u);
}

// Everybody in the failed batch is told, queries that saw its changes included; nobody else is.
TEST(Master, ABatchFailsAsAWhole) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto begin = client.Numbered(BookClient::Plan(BookClient::Identity(1), 1, 1, 100));
  v1::GetWeightRequest get;
  *get.mutable_identity() = begin.identity();
  v1::GetWeightReply before, after;
  v1::BeginImportReply begun;
  int answers = 0;
  const auto count = [&answers] { ++answers; };
  world.master().GetWeight(rpc::Caller::Operator(), get, &before, count);
  world.master().BeginImport(rpc::Caller::Operator(), begin, &begun, count);
  world.master().GetWeight(rpc::Caller::Operator(), get, &after, count);
  EXPECT_EQ(answers, 0);
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kLost);
  world.master().Step();
  EXPECT_EQ(answers, 3);
  EXPECT_EQ(CodeOf(before.status()), Code::kNotFound);
  EXPECT_EQ(CodeOf(begun.status()), Code::kDurabilityFailed);
  EXPECT_EQ(CodeOf(after.status()), Code::kUnavailable);
  EXPECT_EQ(begun.import_id(), 0u);
}

TEST(Master, ALogThatCannotBeReadRefusesEverythingUntilItCan) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kLost);
  world.log().FailReads(Corrupt("sequence 3 is damaged"));
  EXPECT_EQ(CodeOf(world.Open(client, plan.identity()).status()), Code::kDurabilityFailed);
  for (int i = 0; i < 3; ++i) {
    const Status status = rpc::StatusFromProto(world.Get(plan.identity()).status());
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("sequence 3 is damaged"));
    world.clock().AdvanceMs(1'000);
  }
  EXPECT_EQ(CodeOf(world.Open(client, plan.identity()).status()), Code::kUnavailable);
  world.log().FailReads(OkStatus());
  world.clock().AdvanceMs(1'000);
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  EXPECT_EQ(world.Open(client, plan.identity()).status().code(), 0u);
}

TEST(Master, AStoppedProcessCostsNobodyHisLease) {
  MasterOptions options = TestWorld::TestOptions();
  options.pause_tolerance_ms = 1'000;
  TestWorld world(options);
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  const uint64_t lease = world.Open(client, plan.identity(), 5'000).lease_id();
  world.clock().AdvanceMs(60'000);  // nobody could reach the Master meanwhile
  world.Settle();
  EXPECT_EQ(world.Locate(lease).status().code(), 0u);
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  world.Pass(5'000);
  EXPECT_EQ(CodeOf(world.Locate(lease).status()), Code::kLeaseExpired);
}

// ---- two publishers ----

TEST(Master, TwoPublishersNeverBlend) {
  TestWorld world;
  BookClient first(world.api(), 1);
  BookClient second(world.api(), 2);
  auto plan = BookClient::Plan(BookClient::Identity(1), 2, 1, 100);
  plan.clear_claim();
  plan.add_claim("rank0");
  const auto begun = world.api().BeginImport(first.Numbered(plan));
  ASSERT_EQ(begun.status().code(), 0u);
  plan.add_claim("rank1");
  const auto joined = world.api().BeginImport(second.Numbered(plan));
  ASSERT_EQ(joined.status().code(), 0u) << joined.status().message();
  EXPECT_EQ(joined.import_id(), begun.import_id());
  EXPECT_EQ(joined.participants(0).state(), v1::PARTICIPANT_STATE_OTHERS);
  EXPECT_EQ(joined.participants(1).state(), v1::PARTICIPANT_STATE_YOURS);
  v1::GetImportRequest get;
  get.set_import_id(begun.import_id());
  get.set_client_id(second.client_id());
  get.add_extents_of("rank0");
  EXPECT_EQ(CodeOf(world.api().GetImport(get).status()), Code::kConflict);
  get.clear_extents_of();
  const std::string node_id = world.api().GetImport(get).metadata_node_ids(0);
  EXPECT_EQ(world.SubmitReceipt(second, begun.import_id(), "rank0", node_id).code(),
            Code::kConflict);
  EXPECT_TRUE(world.SubmitReceipt(first, begun.import_id(), "rank0", node_id).ok());
  const Status other = world.SubmitReceipt(second, begun.import_id(), "rank0", node_id, "other");
  EXPECT_EQ(other.code(), Code::kConflict);
  const auto different = BookClient::Plan(BookClient::Identity(1), 1, 1, 100);
  EXPECT_EQ(CodeOf(world.api().BeginImport(second.Numbered(different)).status()), Code::kConflict);
}

TEST(Master, QueueAndStop) {
  MasterOptions options = TestWorld::TestOptions();
  options.queue_max = 2;
  TestWorld world(options);
  const v1::GetClusterRequest request;
  v1::GetClusterReply replies[4];
  for (auto& reply : replies)
    world.master().GetCluster(rpc::Caller::Operator(), request, &reply, [] {});
  EXPECT_EQ(CodeOf(replies[2].status()), Code::kUnavailable);
  EXPECT_THAT(replies[2].status().message(), HasSubstr("2 requests are waiting already"));
  world.master().Stop();
  for (auto& reply : replies) EXPECT_EQ(CodeOf(reply.status()), Code::kUnavailable);
  v1::GetClusterReply late;
  world.master().GetCluster(rpc::Caller::Operator(), request, &late, [] {});
  EXPECT_EQ(CodeOf(late.status()), Code::kUnavailable);
  EXPECT_THAT(late.status().message(), HasSubstr("stopping"));
}

TEST(Master, ABatchIsBounded) {
  MasterOptions options = TestWorld::TestOptions();
  options.batch_commands_max = 2;
  TestWorld world(options);
  BookClient client(world.api(), 1);
  std::vector<v1::BeginImportRequest> requests;
  for (uint64_t i = 1; i <= 5; ++i) {
    requests.push_back(client.Numbered(BookClient::Plan(BookClient::Identity(i), 1, 1, 100)));
  }
  std::vector<v1::BeginImportReply> replies(requests.size());
  int answers = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    world.master().BeginImport(rpc::Caller::Operator(), requests[i], &replies[i],
                               [&answers] { ++answers; });
  }
  const size_t records = world.log().size();
  for (const int expected : {2, 4, 5}) {
    world.master().Step();
    EXPECT_EQ(answers, expected);
  }
  EXPECT_EQ(world.log().size(), records + 3);
  for (size_t i = 0; i < replies.size(); ++i) EXPECT_EQ(replies[i].import_id(), i + 1);
}

TEST(MasterOptions, AreCheckedBeforeAnythingIsServed) {
  EXPECT_TRUE(Validate(MasterOptions()).ok());
  const auto refused = [](auto change, const char* message) {
    MasterOptions options;
    change(options);
    const Status status = Validate(options);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(message));
    oplog::MemoryLog log;
    env::ManualClock clock;
    env::SeededRandom random(1);
    EXPECT_EQ(Master::Open(options, {log, clock, random}).status(), status);
    EXPECT_EQ(log.size(), 0u);
  };
  refused([](auto& o) { o.default_policy.mixed_hot_ratio = 1; }, "mixed_hot_ratio");
  refused([](auto& o) { o.node_dead_after_ms = 999; }, "(1000 ms), got 999");
  refused([](auto& o) { o.report_interval_ms = 0; }, "report_interval_ms");
  refused([](auto& o) { o.lease_ttl_min_ms = 0; }, "lease_ttl_min_ms");
  refused([](auto& o) { o.import_ttl_max_ms = 5; }, "import_ttl_max_ms");
  refused([](auto& o) { o.removal_batch_members = 0; }, "removal_batch_members");
  refused([](auto& o) { o.queue_max = 0; }, "queue_max");
}

}  // namespace
}  // namespace mooncake::master
