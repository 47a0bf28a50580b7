// What the Master makes of its nodes' silence, return and reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "master/master.h"
#include "master/test_world.h"

namespace mooncake::master {
namespace {

using testing::HasSubstr;

// ---- nodes ----

TEST(Master, ASilentNodeDegradesItsRevisionsUntilItIsBack) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  plan.set_preferred_host_id("host-n2");
  ASSERT_TRUE(world.Publish(client, plan).ok());
  auto other = BookClient::Plan(BookClient::Identity(2), 1, 2, 100);
  other.set_preferred_host_id("host-n1");
  ASSERT_TRUE(world.Publish(client, other).ok());
  world.Report();
  const uint64_t lease = world.Open(client, plan.identity(), 60'000).lease_id();
  for (int i = 0; i < 7; ++i) {  // only n1 reports
    world.clock().AdvanceMs(500);
    ASSERT_TRUE(world.node("n1").Report(world.api()).ok());
    world.Settle();
  }
  const v1::RevisionMetadata degraded = world.Get(plan.identity()).metadata();
  EXPECT_EQ(degraded.availability(), v1::AVAILABILITY_DEGRADED);
  EXPECT_EQ(degraded.state_reason(), "node n2 is not reporting");
  EXPECT_EQ(world.AvailabilityOf(other.identity()), v1::AVAILABILITY_READY);
  const Status open = rpc::StatusFromProto(world.Open(client, plan.identity()).status());
  EXPECT_EQ(open.code(), Code::kNotReady);
  EXPECT_THAT(open.message(), HasSubstr("node n2 is not reporting"));
  EXPECT_EQ(CodeOf(world.Locate(lease, {"w0.0"}).status()), Code::kUnavailable);

  world.Report();
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  EXPECT_EQ(world.Locate(lease, {"w0.0"}).status().code(), 0u);
}

TEST(Master, AnotherInstanceHasLostTheMemory) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  plan.set_preferred_host_id("host-n2");
  ASSERT_TRUE(world.Publish(client, plan).ok());
  const uint64_t lease = world.Open(client, plan.identity(), 60'000).lease_id();
  world.node("n2").Restart();
  world.Pass(1'000);
  const v1::RevisionMetadata degraded = world.Get(plan.identity()).metadata();
  EXPECT_EQ(degraded.availability(), v1::AVAILABILITY_DEGRADED);
  EXPECT_THAT(degraded.state_reason(), HasSubstr("node n2 lost the memory of arena"));
  const Status located = rpc::StatusFromProto(world.Locate(lease, {"w0.0"}).status());
  EXPECT_EQ(located.code(), Code::kNotReady);
  EXPECT_THAT(located.message(), HasSubstr("node n2 lost the memory"));
  world.Pass(10'000);
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_DEGRADED);
  // It can be removed, and its space is all there again.
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(lease);
  ASSERT_EQ(world.api().ReleaseLease(client.Numbered(release)).status().code(), 0u);
  ASSERT_EQ(world.Remove(client, plan.identity()).status().code(), 0u);
  world.Pass(1'000);
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_DELETED);
  EXPECT_EQ(world.Space(), (std::pair<uint64_t, uint64_t>{0, 0}));
}

TEST(Master, AnImportWhoseMemoryIsLostIsAborted) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  plan.set_preferred_host_id("host-n2");
  const auto begun = world.api().BeginImport(client.Numbered(plan));
  ASSERT_TRUE(world.WritePayloads(client, plan, begun.import_id()).ok());
  world.node("n2").Restart();
  world.Pass(500);
  v1::GetImportRequest get;
  get.set_import_id(begun.import_id());
  const v1::GetImportReply reply = world.api().GetImport(get);
  EXPECT_EQ(reply.state(), v1::IMPORT_STATE_ABORTED);
  EXPECT_THAT(reply.abort_reason(), HasSubstr("lost its memory"));
  EXPECT_TRUE(world.Publish(client, plan).ok());
}

// One report may have been on its way while the import was committed; two in a row were not.
TEST(Master, WhatTwoReportsLackIsGone) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  plan.set_preferred_host_id("host-n2");
  ASSERT_TRUE(world.Publish(client, plan).ok());
  BookNode full = world.node("n2");
  world.node("n2").Forget();
  ASSERT_TRUE(world.node("n2").Report(world.api()).ok());
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  ASSERT_TRUE(world.node("n2").Report(world.api()).ok());
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_DEGRADED);
  EXPECT_THAT(world.Get(plan.identity()).metadata().state_reason(),
              HasSubstr("node n2 no longer holds arena"));
  ASSERT_TRUE(full.Report(world.api()).ok());
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
}

TEST(Master, AfterARestartNodesHaveTimeToComeBack) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  plan.set_preferred_host_id("host-n2");
  ASSERT_TRUE(world.Publish(client, plan).ok());
  world.RestartMaster();
  world.clock().AdvanceMs(2'000);
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  const uint64_t lease = world.Open(client, plan.identity(), 60'000).lease_id();
  const Status located = rpc::StatusFromProto(world.Locate(lease, {"w0.0"}).status());
  EXPECT_EQ(located.code(), Code::kUnavailable);
  EXPECT_THAT(located.message(), HasSubstr("node n2 has not registered with this Master yet"));
  // One that is known from before must register again, since its key is not known.
  EXPECT_EQ(world.node("n2").Report(world.api()).code(), Code::kNotFound);
  world.Report();
  EXPECT_EQ(world.Locate(lease, {"w0.0"}).status().code(), 0u);
  world.Pass(5'000);
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);

  world.RestartMaster();
  world.clock().AdvanceMs(2'999);
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
  world.clock().AdvanceMs(1);
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_DEGRADED);
  // A restart does not make it whole by itself.
  world.RestartMaster();
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_DEGRADED);
  world.Report();
  world.Settle();
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
}

TEST(Master, RegistrationIsChecked) {
  TestWorld world;
  v1::RegisterNodeRequest request;
  request.mutable_address()->set_node_id("n3");
  request.mutable_address()->set_instance_id("i");
  request.set_capacity_bytes(1);
  request.set_grant_key("short");
  const Status status = rpc::StatusFromProto(world.api().RegisterNode(request).status());
  EXPECT_EQ(status, InvalidArgument("expected 32 bytes of grant_key, got 5"));
}

// ---- whose data a node has ----

v1::RegisterNodeRequest Registration(const std::string& node_id, const std::string& cluster_id,
                                     const std::vector<uint64_t>& held, bool durable = false) {
  v1::RegisterNodeRequest request;
  request.mutable_address()->set_node_id(node_id);
  request.mutable_address()->set_instance_id(node_id + "-files");
  request.set_capacity_bytes(1 << 20);
  request.set_grant_key(std::string(32, 'k'));
  request.set_durable_arenas(durable);
  request.set_cluster_id(cluster_id);
  for (const uint64_t id : held) request.add_held_import_ids(id);
  return request;
}

TEST(Master, AFolderOfAnotherClusterIsRefused) {
  TestWorld world;
  const std::string& ours = world.master().cluster_id();
  const auto register_as = [&](const std::string& cluster_id, const std::vector<uint64_t>& held) {
    return world.api().RegisterNode(Registration("n3", cluster_id, held));
  };
  const Status other = rpc::StatusFromProto(register_as("c-other", {}).status());
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("node n3 has the folder of cluster c-other"));
  EXPECT_THAT(other.message(), HasSubstr("the Master of cluster " + ours));
  const v1::RegisterNodeReply taken = register_as("", {});
  EXPECT_EQ(CodeOf(taken.status()), Code::kOk);
  EXPECT_EQ(taken.cluster_id(), ours);
  EXPECT_EQ(CodeOf(register_as(ours, {}).status()), Code::kOk);
}

// A node that the log does not know, or does not place the import on, has another Master's data,
// also where its folder is older than the mark.
TEST(Master, DataThatTheLogDoesNotPlaceOnANodeIsRefused) {
  TestWorld world;
  BookClient client(world.api(), 1);
  auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  plan.set_preferred_host_id("host-n2");
  ASSERT_TRUE(world.Publish(client, plan).ok());  // import 1, on n2
  const std::string& ours = world.master().cluster_id();
  const auto code = [&](const v1::RegisterNodeRequest& request) {
    return CodeOf(world.api().RegisterNode(request).status());
  };
  EXPECT_EQ(code(Registration("n3", "", {1})), Code::kCorrupt);
  EXPECT_EQ(code(Registration("n3", ours, {1})), Code::kCorrupt);
  EXPECT_EQ(code(Registration("n1", "", {1})), Code::kCorrupt);
  // Marked: what is left of an import that went while it was away is dropped as ever.
  EXPECT_EQ(code(Registration("n1", ours, {1})), Code::kOk);
  EXPECT_EQ(code(Registration("n2", "", {1})), Code::kOk);
  EXPECT_EQ(code(Registration("n2", ours, {})), Code::kOk);

  // Arenas that are files prove themselves by their instance.
  EXPECT_EQ(code(Registration("n4", "", {}, /*durable=*/true)), Code::kOk);
  EXPECT_EQ(code(Registration("n4", "", {1}, /*durable=*/true)), Code::kOk);
}

TEST(Master, AnOlderCopyOfTheLogDropsNothing) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  const size_t records = world.log().size();
  const auto later = BookClient::Plan(BookClient::Identity(2), 2, 2, 100);
  ASSERT_TRUE(world.Publish(client, later).ok());
  world.RestartMaster(records);
  int refused = 0;
  for (const size_t i : {0, 1}) {
    BookNode& node = world.node(i);
    ASSERT_TRUE(node.Register(world.api()).ok());
    const size_t held = node.import_count();
    const Status status = node.Report(world.api());
    EXPECT_EQ(node.import_count(), held);
    if (status.ok()) continue;
    ++refused;
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("node " + node.node_id() + ": import 2 is held"));
    EXPECT_THAT(status.message(), HasSubstr("has numbered imports only up to 1"));
    EXPECT_EQ(
        CodeOf(world.api()
                   .RegisterNode(Registration(node.node_id(), world.master().cluster_id(), {2}))
                   .status()),
        Code::kCorrupt);
  }
  EXPECT_GT(refused, 0);
}

// ---- clients that cannot have outlived the Master ----

TEST(Master, ClientsOfItsOwnProcessEndWithIt) {
  MasterOptions options = TestWorld::TestOptions();
  options.clients_end_with_master = true;
  TestWorld world(options);
  BookClient client(world.api(), 1);
  const auto read = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  ASSERT_TRUE(world.Publish(client, read).ok());
  const uint64_t lease = world.Open(client, read.identity(), 3'600'000).lease_id();
  ASSERT_EQ(CodeOf(world.Remove(client, read.identity()).status()), Code::kBusy);
  auto written = BookClient::Plan(BookClient::Identity(2), 1, 2, 100);
  written.set_ttl_ms(3'600'000);
  const auto begun = world.api().BeginImport(client.Numbered(written));
  ASSERT_TRUE(world.WritePayloads(client, written, begun.import_id()).ok());

  world.RestartMaster();
  // At once: no step was made yet.
  EXPECT_TRUE(world.master().state().weights.leases().empty());
  EXPECT_TRUE(world.master().state().weights.open_imports().empty());
  v1::GetImportRequest get;
  get.set_import_id(begun.import_id());
  EXPECT_EQ(world.api().GetImport(get).abort_reason(), "the process that wrote it has ended");
  EXPECT_EQ(CodeOf(world.Locate(lease).status()), Code::kLeaseExpired);
  world.Report();
  BookClient next(world.api(), 2);
  EXPECT_EQ(CodeOf(world.Remove(next, read.identity()).status()), Code::kOk);
  EXPECT_TRUE(world.Publish(next, written).ok());
  // A failed append rebuilds the state while the clients live: they lose nothing.
  const uint64_t kept = world.Open(next, written.identity()).lease_id();
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kLost);
  EXPECT_EQ(CodeOf(world.Open(next, written.identity()).status()), Code::kDurabilityFailed);
  EXPECT_EQ(CodeOf(world.Locate(kept).status()), Code::kOk);
}

// ---- a log that has no room ----

TEST(Master, WhereTheLogHasLittleRoomOnlyNewImportsAreRefused) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  const auto open = BookClient::Plan(BookClient::Identity(2), 1, 2, 100);
  ASSERT_EQ(CodeOf(world.api().BeginImport(client.Numbered(open)).status()), Code::kOk);
  world.log().FailSpace(Exhausted("the disk is full"));
  EXPECT_EQ(rpc::StatusFromProto(world.api()
                                     .BeginImport(client.Numbered(
                                         BookClient::Plan(BookClient::Identity(3), 1, 2, 100)))
                                     .status()),
            Exhausted("nothing new can be published: the disk is full"));
  const size_t records = world.log().size();
  for (uint64_t generation = 3; generation < 10; ++generation) {
    const auto refused = BookClient::Plan(BookClient::Identity(generation), 1, 2, 100);
    ASSERT_EQ(CodeOf(world.api().BeginImport(client.Numbered(refused)).status()), Code::kExhausted);
  }
  EXPECT_EQ(world.log().size(), records);
  // What was begun is finished, what is there is read and removed.
  EXPECT_TRUE(world.Publish(client, open).ok());
  const auto lease = world.Open(client, plan.identity());
  EXPECT_EQ(CodeOf(lease.status()), Code::kOk);
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(lease.lease_id());
  EXPECT_EQ(CodeOf(world.api().ReleaseLease(client.Numbered(release)).status()), Code::kOk);
  EXPECT_EQ(CodeOf(world.Remove(client, plan.identity()).status()), Code::kOk);
  world.log().FailSpace(OkStatus());
  EXPECT_TRUE(world.Publish(client, BookClient::Plan(BookClient::Identity(3), 1, 2, 100)).ok());
}

TEST(Master, ALogThatCannotBeWrittenIsSaidSo) {
  TestWorld world;
  BookClient client(world.api(), 1);
  const auto plan = BookClient::Plan(BookClient::Identity(1), 1, 2, 100);
  ASSERT_TRUE(world.Publish(client, plan).ok());
  // The batch, and the take-over after it.
  world.log().FailAppends(oplog::MemoryLog::AppendFault::kLost, 2, Exhausted("the disk is full"));
  const Status lost = rpc::StatusFromProto(world.Open(client, plan.identity()).status());
  EXPECT_EQ(lost.code(), Code::kDurabilityFailed);
  EXPECT_THAT(lost.message(), HasSubstr("the disk is full"));
  const Status refused = rpc::StatusFromProto(world.Get(plan.identity()).status());
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("its log cannot be written: append of sequence"));
  EXPECT_THAT(refused.message(), HasSubstr("the disk is full"));
  // Of a command nobody knows whether an earlier copy of it went through.
  const Status unclear = rpc::StatusFromProto(world.Open(client, plan.identity()).status());
  EXPECT_EQ(unclear.code(), Code::kDurabilityFailed);
  EXPECT_THAT(unclear.message(), HasSubstr("the disk is full"));
  world.Pass(2'000);
  EXPECT_EQ(world.AvailabilityOf(plan.identity()), v1::AVAILABILITY_READY);
}

}  // namespace
}  // namespace mooncake::master
