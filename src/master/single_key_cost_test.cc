// What a request about one key looks at, in steps through the catalogues of weights: none, however
// many revisions there are, whether the key is an ordinary object's or a revision's.
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "base/probe.h"
#include "master/test_objects.h"

namespace mooncake::master {
namespace {

uint64_t Hits(std::string_view name) {
  for (const Probe* probe : Probe::All()) {
    if (probe->name() == name) return probe->hits();
  }
  ADD_FAILURE() << "no probe " << name;
  return 0;
}

// Steps that something takes.
template <class Work>
uint64_t StepsOf(const Work& work) {
  const uint64_t before = Hits("base.map_step");
  work();
  return Hits("base.map_step") - before;
}

MasterOptions WithoutProofs() {
  MasterOptions options = ObjectOptions();
  options.verify_replay_every = 0;  // which looks at everything
  return options;
}

class SingleKeyCostTest : public ObjectsTest {
 protected:
  SingleKeyCostTest() : ObjectsTest(WithoutProofs()) {}

  void PublishUntil(uint64_t generation) {
    for (; published_ < generation; ++published_) {
      const auto plan = BookClient::Plan(BookClient::Identity(published_ + 1), 1, 1, 16);
      const Result<v1::RevisionMetadata> done = world_.Publish(client_, plan);
      ASSERT_TRUE(done.ok()) << done.status().ToString();
      // Every other one is being read.
      if (published_ % 2 == 0) {
        v1::OpenRevisionRequest open;
        *open.mutable_identity() = plan.identity();
        open.set_ttl_ms(60'000);
        ASSERT_EQ(CodeOf(world_.api().OpenRevision(client_.Numbered(open)).status()), Code::kOk);
      }
    }
    world_.Settle();
  }

  // Of each request about the one key, with what the Master does in passing.
  std::map<std::string, uint64_t> StepsOfRequests(const std::string& key, bool managed) {
    std::map<std::string, uint64_t> steps;
    v1::PutStartRequest start = Starting({{key, 100}});
    if (managed) start.set_tenant_id("default");
    v1::PutStartReply started;
    steps["PutStart"] = StepsOf([&] { started = world_.api().PutStart(start); });
    Fill(started);
    v1::PutEndRequest end = Ending(started, start);
    if (managed) end.add_object_ids(1);
    steps["PutEnd"] = StepsOf([&] { (void)world_.api().PutEnd(end); });
    v1::LookupObjectsRequest look;
    look.set_tenant_id(start.tenant_id());
    look.add_keys(key);
    look.set_renew_lease(true);
    look.set_locate(true);
    look.set_describe(true);
    steps["LookupObjects"] = StepsOf([&] { (void)world_.api().LookupObjects(look); });
    v1::RemoveObjectsRequest remove;
    remove.set_tenant_id(start.tenant_id());
    remove.add_keys(key);
    remove.set_force(true);
    steps["RemoveObjects"] =
        StepsOf([&] { (void)world_.api().RemoveObjects(client_.Numbered(remove)); });
    v1::PutRevokeRequest revoke;
    revoke.set_client_id("writer");
    revoke.set_tenant_id(start.tenant_id());
    revoke.add_object_ids(1);
    steps["PutRevoke"] = StepsOf([&] { (void)world_.api().PutRevoke(revoke); });
    v1::KeepPutsRequest keep;
    keep.set_client_id("writer");
    steps["KeepPuts"] = StepsOf([&] { (void)world_.api().KeepPuts(keep); });
    return steps;
  }

  uint64_t published_ = 0;
};

TEST_F(SingleKeyCostTest, NoRequestAboutOneKeyWalksRevisions) {
  SetQuota("default", 0, 0);  // so that it is listed, without objects
  const std::string managed =
      model::PayloadKey(model::GroupId(codec::FromProto(BookClient::Identity(3))), "w0.0");
  const auto steps = [&](uint64_t revisions) {
    PublishUntil(revisions);
    return std::pair(StepsOfRequests("key", false), StepsOfRequests(managed, true));
  };
  const auto few = steps(4);
  const auto many = steps(50);
  EXPECT_EQ(few, many);
  for (const auto& requests : {many.first, many.second}) {
    for (const auto& [name, count] : requests) EXPECT_EQ(count, 0u) << name;
  }
  EXPECT_EQ(TenantOf("default").managed_skipped(), 4u);  // they were about a revision's key

  // What does walk them is seen to: the count is one of something.
  v1::ListWeightsRequest list;
  list.set_tenant_id("default");
  list.set_page_size(1000);
  v1::ListWeightsReply listed;
  EXPECT_GE(StepsOf([&] { listed = world_.api().ListWeights(list); }), 49u);
  EXPECT_EQ(listed.revisions_size(), 50);
}

}  // namespace
}  // namespace mooncake::master
