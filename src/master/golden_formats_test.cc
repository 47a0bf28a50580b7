// Logs and snapshots that earlier builds wrote are read, and give the state that they gave then.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>

#include "env/test_folder.h"
#include "env/test_golden.h"
#include "master/recovery.h"
#include "master/snapshot.h"
#include "master/test_world.h"
#include "objects/event_codec.h"
#include "oplog/log_folder.h"
#include "pool/event_codec.h"
#include "weights/event_codec.h"

namespace mooncake::master {
namespace {

using env::kGoldenAdvice;

// A node that lends its memory, is given an object and leaves.
void LiveWithALender(TestWorld& world) {
  v1::RegisterNodeRequest lender;
  lender.mutable_address()->set_node_id("lender");
  lender.mutable_address()->set_instance_id("i1");
  lender.mutable_address()->set_tcp_address("127.0.0.1:12345");
  lender.set_capacity_bytes(1 << 20);
  lender.set_grant_key(std::string(32, 'k'));
  lender.set_objects_only(true);
  ASSERT_EQ(world.api().RegisterNode(lender).status().code(), 0u);
  v1::PutStartRequest lent;
  lent.set_client_id("writer");
  lent.set_put_id(100);
  lent.set_tenant_id("tenant");
  lent.add_keys("lent");
  lent.add_sizes(10);
  lent.mutable_config()->add_preferred_node_ids("lender");
  ASSERT_EQ(world.api().PutStart(lent).entries(0).permits(0).instance_id(), "i1");
  v1::LeaveNodeRequest leave;
  leave.set_node_id("lender");
  leave.set_instance_id("i1");
  ASSERT_EQ(world.api().LeaveNode(leave).status().code(), 0u);
}

// Ordinary objects: put, replaced, removed, unreadable, unfinished; of tenants that come and go.
void LiveWithObjects(TestWorld& world, BookClient& client) {
  uint64_t put_id = 0;
  const auto start = [&](const std::string& key, const std::string& group, bool upsert) {
    v1::PutStartRequest request;
    request.set_client_id("writer");
    request.set_put_id(++put_id);
    request.set_tenant_id("tenant");
    request.add_keys(key);
    request.add_sizes(1'000 + put_id);
    request.add_group_ids(group);
    request.set_upsert(upsert);
    request.mutable_config()->set_replica_num(2);
    request.mutable_config()->set_data_type(v1::OBJECT_DATA_TYPE_KVCACHE);
    request.mutable_config()->set_soft_pin(v1::SOFT_PIN_ENABLE);
    request.mutable_config()->set_soft_pin_ttl_ms(60'000);
    request.mutable_config()->set_hard_pin(group.empty());
    return world.api().PutStart(request).entries(0).object_id();
  };
  const auto put = [&](const std::string& key, const std::string& group, bool upsert = false) {
    v1::PutEndRequest end;
    end.set_client_id("writer");
    end.set_tenant_id("tenant");
    end.add_object_ids(start(key, group, upsert));
    ASSERT_EQ(world.api().PutEnd(end).results(0).code(), 0u);
  };
  v1::SetTenantRequest tenant;
  tenant.mutable_quota()->set_tenant_id("tenant");
  tenant.mutable_quota()->set_bytes_max(1 << 20);
  tenant.mutable_quota()->set_objects_max(100);
  ASSERT_EQ(world.api().SetTenant(client.Numbered(tenant)).status().code(), 0u);
  tenant.mutable_quota()->set_tenant_id("passing");
  ASSERT_EQ(world.api().SetTenant(client.Numbered(tenant)).status().code(), 0u);
  tenant.set_remove(true);
  ASSERT_EQ(world.api().SetTenant(client.Numbered(tenant)).status().code(), 0u);
  put("kept", "");
  put(std::string("bytes\xff\x00", 7), "group");
  put("replaced", "group");
  put("replaced", "group", /*upsert=*/true);
  put("removed", "");
  v1::RemoveObjectsRequest removal;
  removal.set_tenant_id("tenant");
  removal.add_keys("removed");
  ASSERT_EQ(world.api().RemoveObjects(client.Numbered(removal)).results(0).code(), 0u);
  v1::LookupObjectsRequest lookup;
  lookup.set_tenant_id("tenant");
  lookup.add_keys("kept");
  lookup.set_locate(true);
  const v1::ObjectEntry found = world.api().LookupObjects(lookup).entries(0);
  v1::ReportUnreadableRequest unreadable;
  unreadable.set_tenant_id("tenant");
  unreadable.set_key("kept");
  unreadable.set_object_id(found.object_id());
  *unreadable.mutable_replica() = found.replicas(0);
  ASSERT_EQ(world.api().ReportUnreadable(unreadable).status().code(), 0u);
  start("unfinished", "", false);
}

// Every event that a Master can log: publishes, leases that end either way, lost memory, a removal
// that is through and one that is not, an import that is given up and one that is open.
void Live(TestWorld& world) {
  BookClient one(world.api(), 1);
  BookClient two(world.api(), 2);
  ASSERT_TRUE(world.Publish(one, BookClient::Plan(BookClient::Identity(1), 2, 2, 5'000)).ok());
  const auto removed = BookClient::Plan(BookClient::Identity(2), 1, 3, 9'000);
  ASSERT_TRUE(world.Publish(two, removed).ok());
  ASSERT_NE(world.Open(one, removed.identity(), 1'000).lease_id(), 0u);
  ASSERT_EQ(CodeOf(world.Remove(two, removed.identity()).status()), Code::kBusy);
  world.Pass(1'500);
  ASSERT_EQ(world.Remove(two, removed.identity()).status().code(), 0u);
  world.Settle();
  world.Report();
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(world.Open(one, BookClient::Identity(1)).lease_id());
  ASSERT_EQ(world.api().ReleaseLease(one.Numbered(release)).status().code(), 0u);
  ASSERT_NE(world.Open(one, BookClient::Identity(1), 60'000).lease_id(), 0u);
  const auto aborted =
      world.api().BeginImport(two.Numbered(BookClient::Plan(BookClient::Identity(3), 1, 1, 100)));
  v1::AbortImportRequest abort;
  abort.set_import_id(aborted.import_id());
  abort.set_reason("for the golden files");
  abort.set_code(static_cast<uint32_t>(Code::kConflict));
  ASSERT_EQ(world.api().AbortImport(two.Numbered(abort)).status().code(), 0u);
  world.node("n1").Restart();
  world.node("n2").Restart();
  world.Report();
  world.RestartMaster();
  world.Report();
  LiveWithObjects(world, one);
  LiveWithALender(world);
  const auto open = BookClient::Plan(BookClient::Identity(5), 2, 1, 3'000);
  const auto begun = world.api().BeginImport(one.Numbered(open));
  ASSERT_TRUE(world.WritePayloads(one, open, begun.import_id()).ok());
  const auto later = BookClient::Plan(BookClient::Identity(4), 1, 5, 700);
  ASSERT_TRUE(world.Publish(two, later).ok());
  ASSERT_EQ(world.Remove(two, later.identity()).status().code(), 0u);  // not settled: last
}

// The record of what the files gave when they were written.
std::string Summary(const ReplicatedState& state) {
  return "sequence " + std::to_string(state.sequence) + "\nterm " + std::to_string(state.term) +
         "\nrevisions " + std::to_string(state.weights.revisions().size()) + "\npayloads " +
         std::to_string(state.objects.payload_count()) +
         // The first version had none.
         (state.pool.empty() ? ""
                             : "\nordinary objects " + std::to_string(state.pool.object_count())) +
         "\nstate_sha256 " + ToHex(state.Digest()) + "\n";
}

void Write(const std::string& folder) {
  TestWorld world;
  Live(world);
  const env::TestFolder scratch;
  auto files = oplog::LogFolder::Open(scratch.path());
  ASSERT_TRUE(files.ok());
  oplog::SqliteLog& log = (*files)->log();
  ASSERT_TRUE(log.WriteMeta(kClusterIdKey, world.master().cluster_id()).ok());
  for (size_t i = 0; i < world.log().size(); ++i) {
    const oplog::MemoryLog::Record record = world.log().At(i);
    ASSERT_TRUE(log.Append({record.sequence, record.term, record.time_ms, record.payload}).ok());
  }
  const auto state = Replay(log);
  ASSERT_TRUE(state.ok()) << state.status().ToString();
  // Closed, all of it is in the one file.
  ASSERT_TRUE(log.Close().ok());
  files->reset();
  env::WriteGolden(folder + "/master/log.db", env::ReadGolden(scratch / "log.db"));
  env::WriteGolden(folder + "/master/state.snapshot",
                   EncodeSnapshot(*state, world.master().cluster_id()));
  env::WriteGolden(folder + "/master/state.txt", Summary(*state));
}

TEST(GoldenFormats, Written) {
  const std::string folder = env::GoldenTarget();
  if (!folder.empty()) Write(folder);
}

TEST(GoldenFormats, EveryLogReplaysToItsState) {
  for (const auto& [version, folder] : env::GoldenVersions(MOONCAKE_SOURCE_DIR)) {
    SCOPED_TRACE(folder + "/master/log.db: " + kGoldenAdvice);
    auto log = oplog::SqliteLog::Open(folder + "/master/log.db", {.read_only = true});
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    const auto state = Replay(**log);
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    EXPECT_EQ(Summary(*state), env::ReadGolden(folder + "/master/state.txt"));
  }
}

TEST(GoldenFormats, EverySnapshotIsThatState) {
  const auto versions = env::GoldenVersions(MOONCAKE_SOURCE_DIR);
  for (const auto& [version, folder] : versions) {
    SCOPED_TRACE(folder + "/master/state.snapshot: " + kGoldenAdvice);
    const std::string file = env::ReadGolden(folder + "/master/state.snapshot");
    const auto decoded = DecodeSnapshot(file);
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(Summary(decoded->state), env::ReadGolden(folder + "/master/state.txt"));
    // Older ones are only read.
    if (version != versions.rbegin()->first) continue;
    EXPECT_TRUE(EncodeSnapshot(decoded->state, decoded->header.cluster_id()) == file)
        << "saved again, it is other bytes";
  }
}

// "RevisionEvent.committed" and the like, of every event that can be logged.
std::set<std::string> LoggableEvents() {
  std::set<std::string> names{"CommandOutcome"};
  for (const google::protobuf::Descriptor* body :
       {v1::ObjectEvent::descriptor(), v1::ArenaEvent::descriptor(), v1::NodeEvent::descriptor(),
        v1::RevisionEvent::descriptor(), v1::LeaseEvent::descriptor(),
        v1::TombstoneEvent::descriptor(), v1::SlabEvent::descriptor(), v1::PutEvent::descriptor(),
        v1::TenantEvent::descriptor()}) {
    for (int i = 0; i < body->field_count(); ++i) {
      names.insert(std::string(body->name()) + "." + std::string(body->field(i)->name()));
    }
  }
  return names;
}

template <class Body>
std::string NameOf(const v1::LogEvent& event) {
  Body body;
  EXPECT_TRUE(body.ParseFromString(event.body()));
  const auto* field = Body::GetDescriptor()->FindFieldByNumber(static_cast<int>(body.event_case()));
  return std::string(Body::GetDescriptor()->name()) + "." +
         (field == nullptr ? "unknown" : std::string(field->name()));
}

std::string NameOf(const v1::LogEvent& event) {
  switch (event.kind()) {
    case v1::EVENT_KIND_OBJECT:
      return NameOf<v1::ObjectEvent>(event);
    case v1::EVENT_KIND_ARENA:
      return NameOf<v1::ArenaEvent>(event);
    case v1::EVENT_KIND_NODE:
      return NameOf<v1::NodeEvent>(event);
    case v1::EVENT_KIND_REVISION:
      return NameOf<v1::RevisionEvent>(event);
    case v1::EVENT_KIND_LEASE:
      return NameOf<v1::LeaseEvent>(event);
    case v1::EVENT_KIND_TOMBSTONE:
      return NameOf<v1::TombstoneEvent>(event);
    case v1::EVENT_KIND_SLAB:
      return NameOf<v1::SlabEvent>(event);
    case v1::EVENT_KIND_PUT:
      return NameOf<v1::PutEvent>(event);
    case v1::EVENT_KIND_TENANT:
      return NameOf<v1::TenantEvent>(event);
    default:
      return "CommandOutcome";
  }
}

v1::LogEvent EncodedAnew(const v1::LogEvent& event) {
  if (objects::HandlesKind(event.kind())) {
    return objects::EncodeEvent(objects::DecodeEvent(event).value());
  }
  if (weights::HandlesKind(event.kind())) {
    return weights::EncodeEvent(weights::DecodeEvent(event).value());
  }
  if (pool::HandlesKind(event.kind())) {
    return pool::EncodeEvent(pool::DecodeEvent(event).value());
  }
  return EncodeOutcome(DecodeOutcome(event).value());
}

// Also that what this build writes is what the newest files have, event by event.
TEST(GoldenFormats, EveryEventThatCanBeLoggedIsInOne) {
  const auto versions = env::GoldenVersions(MOONCAKE_SOURCE_DIR);
  std::set<std::string> seen;
  for (const auto& [version, folder] : versions) {
    SCOPED_TRACE(folder + "/master/log.db: " + kGoldenAdvice);
    auto log = oplog::SqliteLog::Open(folder + "/master/log.db", {.read_only = true});
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    const bool newest = version == versions.rbegin()->first;
    ASSERT_TRUE(
        (*log)
            ->Scan(1,
                   [&](const oplog::LogRecordView& record) {
                     v1::LogBatch batch;
                     EXPECT_TRUE(batch.ParseFromString(std::string(record.payload)));
                     for (const v1::LogEvent& event : batch.events()) {
                       seen.insert(NameOf(event));
                       if (!newest) continue;
                       EXPECT_EQ(EncodedAnew(event).SerializeAsString(), event.SerializeAsString())
                           << "sequence " << record.sequence << ": " << NameOf(event);
                     }
                     return OkStatus();
                   })
            .ok());
  }
  for (const std::string& name : LoggableEvents()) {
    EXPECT_TRUE(seen.contains(name))
        << name << " is in no golden log: let Live in this file bring it about, and write the next "
        << "version (docs/formats/golden.md)";
  }
}

}  // namespace
}  // namespace mooncake::master
