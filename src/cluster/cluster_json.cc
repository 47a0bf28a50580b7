#include "cluster/cluster_json.h"

#include <google/protobuf/util/json_util.h>

#include "rpc/status_proto.h"

namespace mooncake::cluster {

Result<std::string> ClusterJson(rpc::MasterApi& master) {
  const v1::GetClusterReply reply = master.GetCluster({});
  MC_RETURN_IF_ERROR(rpc::StatusFromProto(reply.status()));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto printed = google::protobuf::util::MessageToJsonString(reply, &json, options);
  if (!printed.ok()) return Internal(std::string(printed.message()));
  return json;
}

}  // namespace mooncake::cluster
