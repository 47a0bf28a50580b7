// Objects written part by part: whole or not there, whatever the order, the ways and the faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cluster/test_cluster.h"
#include "cluster/test_objects.h"

namespace mooncake::cluster {
namespace {

using client::ObjectClient;
using client::ObjectClientOptions;
using client::OpenItem;
using client::PartsItem;
using client::PutOptions;
using client::PutResult;
using testing::HasSubstr;

PutResult StartOne(ObjectClient& client, std::string_view key, uint64_t bytes,
                   const PutOptions& options = {}) {
  const OpenItem item{.key = key, .bytes = bytes};
  return client.StartPuts({&item, 1}, options).front();
}

// The bytes [at, at + bytes) of the payload.
PutResult WriteOne(ObjectClient& client, std::string_view key, const std::string& payload,
                   uint64_t at, uint64_t bytes) {
  const PartsItem item{.key = key, .parts = {{at, {payload.data() + at, bytes}}}};
  return client.WriteParts({&item, 1}).front();
}

PutResult EndOne(ObjectClient& client, std::string_view key) {
  return client.EndPuts({&key, 1}).front();
}

Status RevokeOne(ObjectClient& client, std::string_view key) {
  return client.RevokePuts({&key, 1}).front();
}

uint64_t ObjectBytes(TestCluster& cluster) {
  uint64_t bytes = 0;
  const v1::ListTenantsReply tenants = cluster.api()->ListTenants({});
  for (const v1::TenantStatus& tenant : tenants.tenants()) bytes += tenant.object_bytes();
  return bytes;
}

// Through memory of the host, and through requests of a few bytes.
class PutSessionsTest : public testing::TestWithParam<bool> {
 protected:
  PutSessionsTest() {
    options_.share_memory = GetParam();
    if (!GetParam()) options_.chunk_bytes = 1000;
    client_ = cluster_.NewObjectClient(options_);
  }

  ObjectClientOptions options_;
  TestCluster cluster_;
  std::unique_ptr<ObjectClient> client_;
};

INSTANTIATE_TEST_SUITE_P(Ways, PutSessionsTest, testing::Values(true, false),
                         [](const auto& info) { return info.param ? "Shared" : "Chunks"; });

TEST_P(PutSessionsTest, PartsInAnyOrderAreOneObject) {
  const std::string payload = Payload(1, 300'000);
  PutOptions options;
  options.config.set_replica_num(2);
  ASSERT_TRUE(StartOne(*client_, "key", payload.size(), options).status.ok());
  for (const uint64_t at : {200'000u, 0u, 100'000u}) {
    EXPECT_EQ(CodeOfGet(*client_, "key"), Code::kNotReady);
    const PutResult written = WriteOne(*client_, "key", payload, at, 100'000);
    ASSERT_TRUE(written.status.ok()) << written.status.ToString();
  }
  EXPECT_EQ(CodeOfGet(*client_, "key"), Code::kNotReady);
  ASSERT_TRUE(EndOne(*client_, "key").status.ok());
  ExpectObject(*client_, "key", payload);
  // Each copy has them all.
  cluster_.KillNode(0);
  ExpectObject(*cluster_.NewObjectClient(options_), "key", payload);
}

TEST_P(PutSessionsTest, WhatWasNotWrittenIsZeros) {
  // The memory had another object before.
  ASSERT_TRUE(PutOne(*client_, "old", Payload(7, 9000)).status.ok());
  const std::string_view old = "old";
  ASSERT_TRUE(client_->Remove({&old, 1}, /*force=*/true).front().ok());
  const std::string payload = Payload(1, 9000);
  ASSERT_TRUE(StartOne(*client_, "key", 9000).status.ok());
  ASSERT_TRUE(WriteOne(*client_, "key", payload, 3000, 2500).status.ok());
  ASSERT_TRUE(EndOne(*client_, "key").status.ok());
  ExpectObject(*client_, "key",
               std::string(3000, '\0') + payload.substr(3000, 2500) + std::string(3500, '\0'));
}

TEST_P(PutSessionsTest, ManyThreadsWriteOneObject) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kParts = 25;
  constexpr uint64_t kPart = 1234;
  const std::string payload = Payload(3, kThreads * kParts * kPart);
  ASSERT_TRUE(StartOne(*client_, "key", payload.size()).status.ok());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t p = 0; p < kParts; ++p) {
        const uint64_t at = (p * kThreads + t) * kPart;
        EXPECT_TRUE(WriteOne(*client_, "key", payload, at, kPart).status.ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(EndOne(*client_, "key").status.ok());
  ExpectObject(*client_, "key", payload);
}

TEST_P(PutSessionsTest, RefusalsChangeNothing) {
  const std::string payload = Payload(1, 1000);
  const auto expect_refused = [](const PutResult& result, std::string_view why) {
    EXPECT_EQ(result.status.code(), Code::kInvalidArgument) << result.status.ToString();
    EXPECT_FALSE(result.of_transfer);
    EXPECT_THAT(result.status.message(), HasSubstr(std::string(why)));
  };
  expect_refused(StartOne(*client_, "", 5), "must not be empty");
  expect_refused(StartOne(*client_, "key", 0), "expected at least 1 byte, got 0");
  expect_refused(WriteOne(*client_, "key", payload, 0, 10), "no open put session");
  expect_refused(EndOne(*client_, "key"), "no open put session");
  EXPECT_EQ(RevokeOne(*client_, "key").code(), Code::kInvalidArgument);

  ASSERT_TRUE(StartOne(*client_, "key", 1000).status.ok());
  expect_refused(StartOne(*client_, "key", 1000), "it has an open put session");
  EXPECT_TRUE(StartOne(*cluster_.NewObjectClient(), "key", 1000).existed);
  expect_refused(WriteOne(*client_, "key", payload, 0, 1001), "leaves its 1000 bytes");
  ASSERT_TRUE(WriteOne(*client_, "key", payload, 100, 100).status.ok());
  for (const auto& [at, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {100, 100}, {0, 101}, {199, 1}, {150, 10}, {50, 500}}) {
    expect_refused(WriteOne(*client_, "key", payload, at, bytes), "overlaps one");
  }
  const PartsItem twice{.key = "key",
                        .parts = {{300, {payload.data() + 300, 10}}, {305, {&payload[305], 10}}}};
  expect_refused(client_->WriteParts({&twice, 1}).front(), "[305, +10) overlaps one");
  const PartsItem nowhere{.key = "key", .parts = {{300, {nullptr, 10}}}};
  EXPECT_EQ(client_->WriteParts({&nowhere, 1}).front().status.code(), Code::kInvalidArgument);
  // All of it is still to be written as if nothing had been refused.
  ASSERT_TRUE(WriteOne(*client_, "key", payload, 0, 100).status.ok());
  ASSERT_TRUE(WriteOne(*client_, "key", payload, 200, 800).status.ok());
  ASSERT_TRUE(EndOne(*client_, "key").status.ok());
  ExpectObject(*client_, "key", payload);
  expect_refused(EndOne(*client_, "key"), "no open put session");
  EXPECT_TRUE(StartOne(*client_, "key", 1000).existed);
}

TEST_P(PutSessionsTest, WhatIsRevokedOrLeftOpenIsGone) {
  const std::string payload = Payload(1, 50'000);
  ASSERT_TRUE(StartOne(*client_, "key", payload.size()).status.ok());
  ASSERT_TRUE(WriteOne(*client_, "key", payload, 0, 20'000).status.ok());
  ASSERT_TRUE(RevokeOne(*client_, "key").ok());
  EXPECT_EQ(CodeOfGet(*client_, "key"), Code::kNotFound);
  EXPECT_EQ(ObjectBytes(cluster_), 0u);
  ASSERT_TRUE(StartOne(*client_, "key", payload.size()).status.ok());
  client_ = nullptr;
  EXPECT_EQ(ObjectBytes(cluster_), 0u);
  client_ = cluster_.NewObjectClient(options_);
  ASSERT_TRUE(PutOne(*client_, "key", payload).status.ok());
  ExpectObject(*client_, "key", payload);
}

TEST_P(PutSessionsTest, APartThatFailedLeavesRevokingAlone) {
  const std::string payload = Payload(1, 5000);
  ASSERT_TRUE(StartOne(*client_, "key", payload.size()).status.ok());
  ASSERT_TRUE(WriteOne(*client_, "key", payload, 0, 900).status.ok());
  cluster_.on_write_extents = [](const std::string&, const v1::WriteExtents&) {
    return Internal("the disk is on fire");
  };
  const PutResult failed = WriteOne(*client_, "key", payload, 900, 100);
  EXPECT_EQ(failed.status.code(), Code::kInternal);
  EXPECT_TRUE(failed.of_transfer);
  cluster_.on_write_extents = nullptr;
  for (const PutResult& later :
       {WriteOne(*client_, "key", payload, 1000, 4000), EndOne(*client_, "key")}) {
    EXPECT_EQ(later.status.code(), Code::kInternal);
    EXPECT_TRUE(later.of_transfer);
  }
  EXPECT_EQ(CodeOfGet(*client_, "key"), Code::kNotReady);
  ASSERT_TRUE(RevokeOne(*client_, "key").ok());
  EXPECT_EQ(ObjectBytes(cluster_), 0u);
}

TEST_P(PutSessionsTest, AnEndThatFailedIsRepeated) {
  options_.retry_ms = 50;
  HookedMaster* hooks = nullptr;
  const auto client = cluster_.NewObjectClient(options_, &hooks);
  const std::string payload = Payload(1, 5000);
  ASSERT_TRUE(StartOne(*client, "key", payload.size()).status.ok());
  ASSERT_TRUE(WriteOne(*client, "key", payload, 0, 5000).status.ok());
  cluster_.on_write_extents = [](const std::string&, const v1::WriteExtents&) {
    return Unavailable("the node is away");
  };
  EXPECT_EQ(EndOne(*client, "key").status.code(), Code::kUnavailable);
  cluster_.on_write_extents = nullptr;
  hooks->before = [](std::string_view method) {
    return method == "PutEnd" ? Unavailable("the Master is away") : OkStatus();
  };
  EXPECT_EQ(EndOne(*client, "key").status.code(), Code::kUnavailable);
  hooks->before = [](std::string_view) { return OkStatus(); };
  EXPECT_EQ(CodeOfGet(*client, "key"), Code::kNotReady);
  EXPECT_THAT(WriteOne(*client, "key", payload, 0, 0).status.message(),
              HasSubstr("it is being ended"));
  ASSERT_TRUE(EndOne(*client, "key").status.ok());
  ExpectObject(*client, "key", payload);
}

}  // namespace
}  // namespace mooncake::cluster
