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

}  // namespace
}  // namespace mooncake::master
