#include "admin/status_page.h"

#include <google/protobuf/util/json_util.h>

namespace mooncake::admin {
namespace {

Result<std::string> Json(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!printed.ok()) return Internal(std::string(printed.message()));
  return json;
}

}  // namespace

Result<std::string> StatusJson(const Observation& seen) {
  MC_ASSIGN_OR_RETURN(const std::string cluster, Json(seen.cluster));
  std::string tenants;
  for (const v1::TenantStatus& tenant : seen.tenants.tenants()) {
    MC_ASSIGN_OR_RETURN(const std::string json, Json(tenant));
    tenants += tenants.empty() ? json : "," + json;
  }
  return "{\"cluster\":" + cluster + ",\"tenants\":[" + tenants + "]}\n";
}

}  // namespace mooncake::admin
