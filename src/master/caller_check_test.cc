// Who may ask what: the table against the wire schema, and tenants against each other.
#include "master/caller_check.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <set>

#include "master/test_world.h"

namespace mooncake::master {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using testing::HasSubstr;

rpc::Caller ClientOf(const std::string& tenant_id) {
  return {rpc::Role::kClient, tenant_id, tenant_id + "-token"};
}

// Every request of the service, by its RPC's name.
std::map<std::string, const Descriptor*> Requests() {
  std::map<std::string, const Descriptor*> requests;
#define MOONCAKE_ADD(Name) requests[#Name] = v1::Name##Request::descriptor();
  MOONCAKE_MASTER_RPCS(MOONCAKE_ADD)
#undef MOONCAKE_ADD
  return requests;
}

// Paths of the fields below `message` that say, by themselves or by what they name, whose something
// is.
void AddOwners(const Descriptor& message, const std::string& prefix, std::set<std::string>* found) {
  static const std::set<std::string> kTelling = {
      "tenant_id",       "import_id", "import_ids", "lease_id", "lease_ids",
      "held_import_ids", "object_id", "object_ids", "group_id", "operation_id"};
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
      AddOwners(*field.message_type(), prefix + field.name() + ".", found);
    } else if (kTelling.contains(field.name())) {
      found->insert(prefix + field.name());
    }
  }
}

TEST(CallerCheck, EveryRequestHasItsRow) {
  const auto requests = Requests();
  std::set<std::string_view> rows;
  for (const CallerRule& rule : kCallerRules) {
    EXPECT_TRUE(rows.insert(rule.rpc).second) << rule.rpc << " stands twice";
    EXPECT_TRUE(requests.contains(std::string(rule.rpc))) << rule.rpc << " is no RPC";
  }
  for (const auto& [name, request] : requests) EXPECT_TRUE(rows.contains(name)) << name;
}

// A request that clients may make and that names something of somebody has a row that says where:
// a field that is added later does not go unchecked.
TEST(CallerCheck, EveryRowNamesWhatTheRequestNames) {
  for (const auto& [name, request] : Requests()) {
    SCOPED_TRACE(name);
    const CallerRule* rule = FindCallerRule(name);
    ASSERT_NE(rule, nullptr);
    if (rule->callers != For::kClients && rule->callers != For::kAll) continue;
    std::set<std::string> owners;
    AddOwners(*request, "", &owners);
    std::set<std::string> checked;
    if (rule->owner == Owner::kIdentity) checked = {"identity.tenant_id"};
    // Object ids are the tenant's that is named beside them: the engine looks nowhere else.
    if (rule->owner == Owner::kTenant) checked = {"tenant_id", "object_id", "object_ids"};
    if (rule->owner == Owner::kImport) checked = {"import_id"};
    if (rule->owner == Owner::kLease) checked = {"lease_id"};
    if (rule->owner == Owner::kLeases) checked = {"lease_ids"};
    for (const std::string& owner : owners) {
      EXPECT_TRUE(checked.contains(owner)) << owner << " is not looked at";
    }
    EXPECT_EQ(owners.empty(), rule->owner == Owner::kNone);
  }
}

TEST(CallerCheck, Roles) {
  const rpc::Caller client = ClientOf("blue");
  const rpc::Caller node{rpc::Role::kNode, std::nullopt, "node-7"};
  for (const CallerRule& rule : kCallerRules) {
    SCOPED_TRACE(rule.rpc);
    EXPECT_TRUE(CheckRole(rpc::Caller::Operator(), rule.rpc).ok());
    const bool clients = rule.callers == For::kClients || rule.callers == For::kAll;
    const bool nodes = rule.callers == For::kNodes || rule.callers == For::kAll;
    EXPECT_EQ(CheckRole(client, rule.rpc).ok(), clients);
    EXPECT_EQ(CheckRole(node, rule.rpc).ok(), nodes);
  }
  const Status refused = CheckRole(client, "RegisterNode");
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            "RegisterNode is for nodes and operators, got client token blue-token of tenant blue");
  EXPECT_EQ(CheckRole(node, "GetWeight").message(),
            "GetWeight is for clients and operators, got node token node-7");
  EXPECT_EQ(CheckRole(rpc::Caller::Operator(), "NoSuchRpc").code(), Code::kPermissionDenied);
}

// Two tenants of one Master. BookClient publishes for tenant "default"; "red" knows every id.
class TwoTenants : public testing::Test {
 protected:
  static MasterOptions Options() {
    MasterOptions options = TestWorld::TestOptions();
    options.slab_bytes = 65'536;
    return options;
  }
  TwoTenants()
      : world_(Options()),
        own_([this]() -> Master& { return world_.master(); }, ClientOf("default")),
        other_([this]() -> Master& { return world_.master(); }, ClientOf("red")),
        client_(own_, 1),
        thief_(other_, 2) {}

  // As `default` sees it; its import, which is committed, and a lease on it.
  void PublishAndOpen() {
    const auto committed = world_.Publish(client_, plan_);
    ASSERT_TRUE(committed.ok()) << committed.status().ToString();
    import_id_ = committed->import_id();
    v1::OpenRevisionRequest open;
    *open.mutable_identity() = plan_.identity();
    open.set_ttl_ms(10'000);
    const v1::OpenRevisionReply opened = own_.OpenRevision(client_.Numbered(open));
    ASSERT_EQ(opened.status().code(), 0u) << opened.status().message();
    lease_id_ = opened.lease_id();
  }

  TestWorld world_;
  SteppedMaster own_;
  SteppedMaster other_;
  BookClient client_;
  BookClient thief_;
  const v1::BeginImportRequest plan_ = BookClient::Plan(BookClient::Identity(1), 1, 2, 5000);
  uint64_t import_id_ = 0;
  uint64_t lease_id_ = 0;
};

template <class Request>
Request Of(uint64_t import_id) {
  Request request;
  request.set_import_id(import_id);
  return request;
}

// Everything that names a tenant, an import or a lease, in the hands of another tenant. What is
// told is what would be told if nothing were there.
TEST_F(TwoTenants, IdsOfAnotherTenantAreIdsOfNothing) {
  PublishAndOpen();
  constexpr uint64_t kNever = 999;
  const auto same = [](v1::StatusProto real, v1::StatusProto absent, const std::string& id) {
    const size_t at = absent.message().find("999");
    ASSERT_NE(at, std::string::npos) << absent.message();
    absent.mutable_message()->replace(at, 3, id);
    EXPECT_EQ(real.code(), absent.code()) << real.message();
    EXPECT_EQ(real.message(), absent.message());
    EXPECT_EQ(CodeOf(real), Code::kNotFound);
  };
  const std::string id = std::to_string(import_id_);
  const auto compare = [&](auto call) { same(call(import_id_), call(kNever), id); };
  compare([&](uint64_t i) { return other_.GetImport(Of<v1::GetImportRequest>(i)).status(); });
  compare([&](uint64_t i) { return other_.KeepImport(Of<v1::KeepImportRequest>(i)).status(); });
  compare([&](uint64_t i) {
    return other_.SubmitReceipt(thief_.Numbered(Of<v1::SubmitReceiptRequest>(i))).status();
  });
  compare([&](uint64_t i) {
    return other_.CommitImport(thief_.Numbered(Of<v1::CommitImportRequest>(i))).status();
  });
  compare([&](uint64_t i) {
    return other_.AbortImport(thief_.Numbered(Of<v1::AbortImportRequest>(i))).status();
  });
  EXPECT_EQ(own_.GetImport(Of<v1::GetImportRequest>(import_id_)).state(),
            v1::IMPORT_STATE_COMMITTED);
}

TEST_F(TwoTenants, LeasesOfAnotherTenantAreLeasesThatEnded) {
  PublishAndOpen();
  // One that ended, of the tenant's own.
  v1::OpenRevisionRequest open;
  *open.mutable_identity() = plan_.identity();
  open.set_ttl_ms(10);
  const uint64_t ended = own_.OpenRevision(client_.Numbered(open)).lease_id();
  world_.Pass(20);

  v1::LocateObjectsRequest locate;
  locate.set_lease_id(lease_id_);
  locate.set_metadata_objects(true);
  const v1::LocateObjectsReply stolen = other_.LocateObjects(locate);
  locate.set_lease_id(ended);
  const v1::LocateObjectsReply over = own_.LocateObjects(locate);
  EXPECT_EQ(CodeOf(stolen.status()), Code::kLeaseExpired);
  EXPECT_EQ(CodeOf(over.status()), Code::kLeaseExpired);
  EXPECT_EQ(stolen.status().message(), "lease " + std::to_string(lease_id_) + " has ended");
  EXPECT_EQ(over.status().message(), "lease " + std::to_string(ended) + " has ended");
  EXPECT_EQ(stolen.grants_size() + stolen.nodes_size() + stolen.metadata_objects_size(), 0);

  // Releasing says the same for both, and does nothing to the one that is alive.
  for (const uint64_t lease_id : {lease_id_, ended}) {
    v1::ReleaseLeaseRequest release;
    release.set_lease_id(lease_id);
    EXPECT_EQ(other_.ReleaseLease(thief_.Numbered(release)).status().code(), 0u);
  }
  locate.set_lease_id(lease_id_);
  EXPECT_EQ(own_.LocateObjects(locate).status().code(), 0u);
}

TEST_F(TwoTenants, RenewalsAreAnsweredOneByOne) {
  PublishAndOpen();
  v1::RenewLeasesRequest renew;
  renew.add_lease_ids(lease_id_);
  renew.add_lease_ids(999);
  renew.add_lease_ids(lease_id_);
  world_.Pass(6'000);
  const v1::RenewLeasesReply stolen = other_.RenewLeases(renew);
  ASSERT_EQ(stolen.leases_size(), 3);
  EXPECT_EQ(CodeOf(stolen.leases(0)), Code::kLeaseExpired);
  EXPECT_EQ(CodeOf(stolen.leases(1)), Code::kNotFound);
  EXPECT_EQ(CodeOf(stolen.leases(2)), Code::kLeaseExpired);
  // It was not renewed for its reader, either.
  world_.Pass(6'000);
  EXPECT_EQ(CodeOf(own_.RenewLeases(renew).leases(0)), Code::kLeaseExpired);
}

TEST_F(TwoTenants, RenewalsOfOnesOwnGoOn) {
  PublishAndOpen();
  v1::RenewLeasesRequest renew;
  renew.add_lease_ids(lease_id_);
  for (int i = 0; i < 4; ++i) {
    world_.Pass(6'000);
    const v1::RenewLeasesReply renewed = own_.RenewLeases(renew);
    ASSERT_EQ(renewed.leases_size(), 1);
    EXPECT_EQ(renewed.leases(0).code(), 0u) << renewed.leases(0).message();
  }
}

TEST_F(TwoTenants, ANamedTenantMustBeTheCallersWhateverExists) {
  PublishAndOpen();
  for (const uint64_t generation : {1u, 7u}) {
    const v1::WeightIdentity identity = BookClient::Identity(generation);
    v1::GetWeightRequest get;
    *get.mutable_identity() = identity;
    v1::OpenRevisionRequest open;
    *open.mutable_identity() = identity;
    open.set_ttl_ms(10'000);
    v1::RemoveWeightRequest remove;
    *remove.mutable_identity() = identity;
    auto begin = BookClient::Plan(identity, 1, 2, 5000);
    for (const v1::StatusProto& status :
         {other_.GetWeight(get).status(), other_.OpenRevision(thief_.Numbered(open)).status(),
          other_.RemoveWeight(thief_.Numbered(remove)).status(),
          other_.BeginImport(thief_.Numbered(begin)).status()}) {
      EXPECT_EQ(CodeOf(status), Code::kPermissionDenied);
      EXPECT_EQ(status.message(),
                "client token red-token of tenant red may not name tenant \"default\"");
    }
  }
  v1::ListWeightsRequest list;
  list.set_tenant_id("default");
  EXPECT_EQ(CodeOf(other_.ListWeights(list).status()), Code::kPermissionDenied);
  EXPECT_EQ(own_.ListWeights(list).revisions_size(), 1);
  list.set_tenant_id("red");
  EXPECT_EQ(other_.ListWeights(list).status().code(), 0u);
  EXPECT_EQ(other_.ListWeights(list).revisions_size(), 0);

  v1::LookupObjectsRequest lookup;
  lookup.set_tenant_id("default");
  lookup.add_keys("k");
  EXPECT_EQ(CodeOf(other_.LookupObjects(lookup).status()), Code::kPermissionDenied);
  v1::PutStartRequest put;
  put.set_tenant_id("default");
  EXPECT_EQ(CodeOf(other_.PutStart(put).status()), Code::kPermissionDenied);
}

v1::PutStartReply StartPut(rpc::MasterApi& api, const std::string& tenant) {
  v1::PutStartRequest request;
  request.set_client_id("writer");
  request.set_put_id(1);
  request.set_tenant_id(tenant);
  request.add_keys("k");
  request.add_sizes(100);
  return api.PutStart(request);
}

// Object ids, keys, put ids and client ids of one tenant in the hands of another.
TEST_F(TwoTenants, ObjectsOfAnotherTenantAreNotThere) {
  const v1::PutStartReply own = StartPut(own_, "default");
  ASSERT_EQ(own.entries_size(), 1) << own.status().message();
  ASSERT_EQ(own.entries(0).state(), v1::PUT_STATE_WRITE) << own.entries(0).status().message();
  // The same put of the other tenant is another put.
  const v1::PutStartReply other = StartPut(other_, "red");
  ASSERT_EQ(other.entries(0).state(), v1::PUT_STATE_WRITE);
  EXPECT_NE(other.entries(0).object_id(), own.entries(0).object_id());
  EXPECT_NE(other.entries(0).permits(0).slab_id(), own.entries(0).permits(0).slab_id());
  EXPECT_EQ(other.entries(0).permits(0).tenant_id(), "red");

  const auto end = [&own](rpc::MasterApi& api, const std::string& tenant) {
    v1::PutEndRequest request;
    request.set_client_id("writer");
    request.set_tenant_id(tenant);
    request.add_object_ids(own.entries(0).object_id());
    return api.PutEnd(request);
  };
  EXPECT_EQ(CodeOf(end(other_, "default").status()), Code::kPermissionDenied);
  EXPECT_EQ(CodeOf(end(other_, "red").results(0)), Code::kNotFound);
  v1::PutRevokeRequest revoke;
  revoke.set_client_id("writer");
  revoke.set_tenant_id("red");
  revoke.add_object_ids(own.entries(0).object_id());
  EXPECT_EQ(other_.PutRevoke(revoke).status().code(), 0u);
  EXPECT_EQ(CodeOf(end(own_, "default").results(0)), Code::kOk);

  const auto look = [](rpc::MasterApi& api, const std::string& tenant) {
    v1::LookupObjectsRequest request;
    request.set_tenant_id(tenant);
    request.add_keys("k");
    request.set_locate(true);
    return api.LookupObjects(request);
  };
  EXPECT_EQ(CodeOf(look(own_, "default").entries(0).status()), Code::kOk);
  EXPECT_EQ(CodeOf(look(other_, "red").entries(0).status()), Code::kNotReady);
  EXPECT_EQ(look(other_, "red").grants_size(), 0);
  // Neither a report nor a removal reaches over.
  v1::ReportUnreadableRequest report;
  report.set_tenant_id("red");
  report.set_key("k");
  report.set_object_id(own.entries(0).object_id());
  *report.mutable_replica() = look(own_, "default").entries(0).replicas(0);
  (void)other_.ReportUnreadable(report);
  v1::RemoveAllObjectsRequest remove;
  remove.set_tenant_id("red");
  remove.set_force(true);
  (void)other_.RemoveAllObjects(thief_.Numbered(remove));
  EXPECT_EQ(CodeOf(look(own_, "default").entries(0).status()), Code::kOk);
}

TEST_F(TwoTenants, TenantsAreListedToThemselvesAndSetByOperators) {
  (void)StartPut(own_, "default");
  (void)StartPut(other_, "red");
  const auto tenants = [](rpc::MasterApi& api) {
    std::set<std::string> names;
    const v1::ListTenantsReply reply = api.ListTenants({});
    for (const auto& tenant : reply.tenants()) {
      names.insert(tenant.quota().tenant_id());
    }
    return names;
  };
  EXPECT_EQ(tenants(own_), (std::set<std::string>{"default"}));
  EXPECT_TRUE(tenants(world_.api()).contains("red"));
  v1::SetTenantRequest quota;
  quota.mutable_quota()->set_tenant_id("red");
  EXPECT_EQ(CodeOf(other_.SetTenant(thief_.Numbered(quota)).status()), Code::kPermissionDenied);
}

// What one tenant's command was answered is not told to another, and another's use of the client's
// id does not stand in its way.
TEST_F(TwoTenants, ACommandsOutcomeIsItsTenants) {
  PublishAndOpen();
  v1::OpenRevisionRequest open;
  *open.mutable_identity() = plan_.identity();
  open.set_ttl_ms(10'000);
  const v1::OpenRevisionRequest command = client_.Numbered(open);
  const v1::OpenRevisionReply first = own_.OpenRevision(command);
  ASSERT_EQ(first.status().code(), 0u);
  const v1::OpenRevisionReply replayed = other_.OpenRevision(command);
  EXPECT_EQ(CodeOf(replayed.status()), Code::kPermissionDenied);
  EXPECT_EQ(replayed.lease_id(), 0u);
  EXPECT_FALSE(replayed.has_metadata());
  EXPECT_EQ(own_.OpenRevision(command).SerializeAsString(), first.SerializeAsString());
  // Also after a restart, from the log.
  world_.RestartMaster();
  EXPECT_EQ(own_.OpenRevision(command).SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(CodeOf(other_.OpenRevision(command).status()), Code::kPermissionDenied);

  // The id's next number, used up by another: the owner's is still new.
  v1::ReleaseLeaseRequest release;
  release.set_lease_id(first.lease_id());
  const v1::ReleaseLeaseRequest next = client_.Numbered(release);
  v1::RemoveWeightRequest remove;
  *remove.mutable_identity() = plan_.identity();
  remove.mutable_identity()->set_tenant_id("red");
  *remove.mutable_command() = next.command();
  EXPECT_EQ(CodeOf(other_.RemoveWeight(remove).status()), Code::kNotFound);
  EXPECT_EQ(own_.ReleaseLease(next).status().code(), 0u);
}

// Why an import was aborted is told to its own tenant only, also when its record is gone.
TEST_F(TwoTenants, AnAbortsReasonIsItsTenants) {
  const v1::BeginImportReply begun = own_.BeginImport(client_.Numbered(plan_));
  ASSERT_EQ(begun.status().code(), 0u) << begun.status().message();
  auto abort = Of<v1::AbortImportRequest>(begun.import_id());
  abort.set_reason("the trainer changed its mind");
  ASSERT_EQ(own_.AbortImport(client_.Numbered(abort)).status().code(), 0u);
  const auto get = Of<v1::GetImportRequest>(begun.import_id());
  for (int round = 0; round < 3; ++round) {
    const v1::GetImportReply own = own_.GetImport(get);
    EXPECT_EQ(own.state(), v1::IMPORT_STATE_ABORTED) << own.status().message();
    EXPECT_EQ(own.abort_reason(), "the trainer changed its mind");
    const v1::GetImportReply other = other_.GetImport(get);
    EXPECT_EQ(CodeOf(other.status()), Code::kNotFound);
    EXPECT_EQ(other.abort_reason(), "");
    // From the log alone, and from a snapshot.
    if (round == 0) world_.RestartMaster();
    if (round != 1) continue;
    ASSERT_TRUE(world_.master().TakeSnapshot().ok());
    world_.RestartMaster();
  }
}

TEST(CallerCheck, TenantsAreListedToThemselves) {
  v1::ListTenantsReply all;
  for (const char* tenant : {"blue", "red", "blue-2", "red"}) {
    all.add_tenants()->mutable_quota()->set_tenant_id(tenant);
  }
  v1::ListTenantsReply red = all;
  KeepOwnTenant(ClientOf("red"), &red);
  ASSERT_EQ(red.tenants_size(), 2);
  for (const auto& tenant : red.tenants()) EXPECT_EQ(tenant.quota().tenant_id(), "red");
  v1::ListTenantsReply none = all;
  KeepOwnTenant(ClientOf("green"), &none);
  EXPECT_EQ(none.tenants_size(), 0);
  KeepOwnTenant(rpc::Caller::Operator(), &all);
  EXPECT_EQ(all.tenants_size(), 4);
}

TEST(CallerCheck, CommandClientIdsOfTenantsNeverMeet) {
  const std::string id(32, 'a');
  EXPECT_EQ(CommandClientId(rpc::Caller::Operator(), id), id);
  EXPECT_EQ(CommandClientId(ClientOf("blue"), id), id + "@blue");
  EXPECT_EQ(CommandClientId(ClientOf("a@b/c"), id), id + "@a%40b%2Fc");
}

}  // namespace
}  // namespace mooncake::master
