// A world with ordinary objects, and the words to put, look and remove.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "master/test_world.h"

namespace mooncake::master {

inline MasterOptions ObjectOptions() {
  MasterOptions options = TestWorld::TestOptions();
  options.object_lease_ms = 1'000;
  options.put_ttl_ms = 3'000;
  options.slab_bytes = 65'536;
  options.relaxed_flush_ms = 60'000;  // only when something must be durable
  return options;
}

class ObjectsTest : public testing::Test {
 protected:
  explicit ObjectsTest(MasterOptions options = ObjectOptions()) : world_(options) {}

  v1::PutStartRequest Starting(const std::vector<std::pair<std::string, uint64_t>>& objects) {
    v1::PutStartRequest request;
    request.set_client_id("writer");
    request.set_put_id(++put_id_);
    request.set_tenant_id("t");
    for (const auto& [key, bytes] : objects) {
      request.add_keys(key);
      request.add_sizes(bytes);
    }
    return request;
  }
  // Has the nodes fill what is to be written, and ends it.
  v1::PutStartReply Put(const v1::PutStartRequest& request, bool relaxed = false) {
    v1::PutStartReply started = world_.api().PutStart(request);
    Fill(started);
    v1::PutEndRequest end = Ending(started, request);
    end.set_relaxed(relaxed);
    if (end.object_ids_size() > 0) {
      const v1::PutEndReply ended = world_.api().PutEnd(end);
      for (const v1::StatusProto& result : ended.results()) EXPECT_EQ(CodeOf(result), Code::kOk);
    }
    return started;
  }
  v1::PutStartReply Put(const std::string& key, uint64_t bytes) {
    return Put(Starting({{key, bytes}}));
  }
  void Fill(const v1::PutStartReply& started) {
    for (const v1::PutEntry& entry : started.entries()) {
      for (const v1::ExtentPermit& permit : entry.permits()) {
        for (size_t i = 0; i < 2; ++i) {
          if (world_.node(i).Honours(permit)) world_.node(i).Fill(permit);
        }
      }
    }
  }
  v1::PutEndRequest Ending(const v1::PutStartReply& started, const v1::PutStartRequest& request) {
    v1::PutEndRequest end;
    end.set_client_id(request.client_id());
    end.set_tenant_id(request.tenant_id());
    for (const v1::PutEntry& entry : started.entries()) {
      if (entry.status().code() == 0 && entry.state() == v1::PUT_STATE_WRITE) {
        end.add_object_ids(entry.object_id());
      }
    }
    return end;
  }
  v1::ObjectEntry Look(const std::string& key, bool renew = false,
                       const std::string& tenant = "t") {
    v1::LookupObjectsRequest request;
    request.set_tenant_id(tenant);
    request.add_keys(key);
    request.set_renew_lease(renew);
    request.set_locate(true);
    request.set_describe(true);
    last_lookup_ = world_.api().LookupObjects(request);
    return last_lookup_.entries_size() == 1 ? last_lookup_.entries(0) : v1::ObjectEntry();
  }
  Code CodeOfKey(const std::string& key) { return CodeOf(Look(key).status()); }
  v1::RemoveObjectsReply Remove(const std::string& key, bool force = false) {
    v1::RemoveObjectsRequest request;
    request.set_tenant_id("t");
    request.add_keys(key);
    request.set_force(force);
    return world_.api().RemoveObjects(client_.Numbered(request));
  }
  v1::TenantStatus TenantOf(const std::string& tenant_id) {
    const v1::ListTenantsReply reply = world_.api().ListTenants({});
    for (const v1::TenantStatus& one : reply.tenants()) {
      if (one.quota().tenant_id() == tenant_id) return one;
    }
    return {};
  }
  void SetQuota(const std::string& tenant_id, uint64_t bytes, uint64_t objects) {
    v1::SetTenantRequest request;
    request.mutable_quota()->set_tenant_id(tenant_id);
    request.mutable_quota()->set_bytes_max(bytes);
    request.mutable_quota()->set_objects_max(objects);
    ASSERT_EQ(CodeOf(world_.api().SetTenant(client_.Numbered(request)).status()), Code::kOk);
  }

  TestWorld world_;
  BookClient client_{world_.api(), 1};
  uint64_t put_id_ = 0;
  v1::LookupObjectsReply last_lookup_;
};

}  // namespace mooncake::master
