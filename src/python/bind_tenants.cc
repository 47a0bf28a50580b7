// Tenants of the ordinary Store for Python: quotas and counters.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "python/object_store.h"

namespace mooncake::python {
namespace {

nb::list Tenants(ObjectStore& store) {
  auto tenants = [&] {
    nb::gil_scoped_release release;
    return store.client().Tenants();
  }();
  nb::list list;
  for (const v1::TenantStatus& tenant : TakeOrThrow(std::move(tenants))) {
    nb::dict row;
    row["tenant_id"] = tenant.quota().tenant_id();
    row["known"] = tenant.known();
    row["bytes_max"] = tenant.quota().bytes_max();
    row["objects_max"] = tenant.quota().objects_max();
    row["objects"] = tenant.object_count();
    row["bytes"] = tenant.object_bytes();
    row["unfinished"] = tenant.unfinished_count();
    row["slab_bytes"] = tenant.slab_bytes();
    row["groups"] = tenant.group_count();
    row["puts"] = tenant.puts();
    row["lookups"] = tenant.lookups();
    row["lookups_found"] = tenant.lookups_found();
    row["evicted_objects"] = tenant.evicted_objects();
    row["evicted_bytes"] = tenant.evicted_bytes();
    row["refused_puts"] = tenant.refused_puts();
    row["managed_skipped"] = tenant.managed_skipped();
    list.append(row);
  }
  return list;
}

void SetTenant(ObjectStore& store, const std::string& tenant_id, uint64_t bytes_max,
               uint64_t objects_max) {
  v1::TenantQuota quota;
  quota.set_tenant_id(tenant_id);
  quota.set_bytes_max(bytes_max);
  quota.set_objects_max(objects_max);
  const Status status = [&] {
    nb::gil_scoped_release release;
    return store.client().SetTenant(quota);
  }();
  ThrowUnlessOk(status);
}

void RemoveTenant(ObjectStore& store, const std::string& tenant_id) {
  const Status status = [&] {
    nb::gil_scoped_release release;
    return store.client().RemoveTenant(tenant_id);
  }();
  ThrowUnlessOk(status);
}

}  // namespace

void BindTenants(nb::class_<ObjectStore>& store) {
  store.def("tenants", &Tenants)
      .def("set_tenant", &SetTenant, nb::arg("tenant_id"), nb::arg("bytes_max") = 0,
           nb::arg("objects_max") = 0)
      .def("remove_tenant", &RemoveTenant, nb::arg("tenant_id"));
}

}  // namespace mooncake::python
