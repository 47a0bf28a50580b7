#include "cluster/open_store.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "base/url_encode.h"
#include "client/session.h"
#include "cluster/cluster_json.h"
#include "cluster/embedded_store.h"
#include "cluster/store_clients.h"
#include "env/host_id.h"
#include "rpc/grpc_master.h"
#include "rpc/status_proto.h"
#include "rpc/stream_node_channel.h"

namespace mooncake::cluster {
namespace {

constexpr std::string_view kClusterScheme = "mooncake://";
constexpr std::string_view kFolderScheme = "file://";
// One call of the Master; the client repeats it while its retry_ms last.
constexpr int64_t kCallTimeoutMaxMs = 5'000;
constexpr int64_t kConnectTimeoutMaxMs = 2'000;

// One process, one host: whose nodes are preferred is also whose Unix sockets can be reached.
std::string HostOf(const OpenOptions& options) {
  if (!options.objects.host_id.empty()) return options.objects.host_id;
  return options.client.host_id.empty() ? env::HostId() : options.client.host_id;
}

class RemoteStore final : public OpenedStore {
 public:
  RemoteStore(std::shared_ptr<rpc::MasterApi> master, const OpenOptions& options)
      : master_(std::move(master)),
        clients_(master_, std::make_shared<rpc::SocketNodeConnector>(HostOf(options)),
                 options.client, options.objects) {}

  client::StoreClient& client() override { return clients_.weights(); }
  client::ObjectClient& objects() override { return clients_.objects(); }
  Result<std::string> DescribeCluster() override { return ClusterJson(*master_); }

 private:
  const std::shared_ptr<rpc::MasterApi> master_;
  StoreClients clients_;
};

Status BadUri(std::string_view uri, const std::string& why) {
  return InvalidArgument("store URI \"" + std::string(uri) + "\": " + why);
}

Status CheckAddress(std::string_view uri, std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return BadUri(uri, "mooncake:// is followed by host:port");
  }
  const std::string_view port = address.substr(colon + 1);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number == 0 || number > 65535) {
    return BadUri(uri, "the port must be 1 to 65535, got \"" + std::string(port) + "\"");
  }
  return OkStatus();
}

Result<std::unique_ptr<OpenedStore>> OpenRemoteStore(const std::string& address,
                                                     const OpenOptions& options) {
  MC_ASSIGN_OR_RETURN(const rpc::Credentials credentials,
                      rpc::ReadCredentials(rpc::WithEnvironment(options.credentials)));
  const int64_t retry_ms = std::min(options.client.retry_ms, options.objects.retry_ms);
  rpc::GrpcMasterOptions rpc_options;
  rpc_options.total_timeout_ms =
      static_cast<int>(std::clamp<int64_t>(retry_ms, 1, kCallTimeoutMaxMs));
  rpc_options.connect_timeout_ms =
      static_cast<int>(std::clamp<int64_t>(retry_ms, 1, kConnectTimeoutMaxMs));
  auto master = std::make_shared<rpc::GrpcMaster>(address, rpc_options, credentials);
  // A wrong address is told here and not at the first publish.
  const Status answered = client::Repeat(
      {retry_ms, {}}, [&master] { return rpc::StatusFromProto(master->GetCluster({}).status()); });
  if (!answered.ok()) return answered.WithContext("Store Master " + address);
  return std::unique_ptr<OpenedStore>(std::make_unique<RemoteStore>(std::move(master), options));
}

}  // namespace

Result<std::unique_ptr<OpenedStore>> OpenStore(std::string_view uri, const OpenOptions& options) {
  if (uri.empty()) return BadUri(uri, "it is empty; mooncake://host:port or file:///folder");
  MC_RETURN_IF_ERROR(client::Validate(options.client));
  MC_RETURN_IF_ERROR(client::Validate(options.objects));
  if (uri.starts_with(kClusterScheme)) {
    const std::string_view address = uri.substr(kClusterScheme.size());
    MC_RETURN_IF_ERROR(CheckAddress(uri, address));
    return OpenRemoteStore(std::string(address), options);
  }
  if (uri.starts_with(kFolderScheme)) {
    if (!options.credentials.empty()) {
      return BadUri(uri, "a store in this process takes no token and no certificates");
    }
    Result<std::string> folder = UrlDecode(uri.substr(kFolderScheme.size()));
    if (!folder.ok()) return BadUri(uri, folder.status().message());
    if (!folder->starts_with('/')) return BadUri(uri, "file:// is followed by an absolute path");
    return OpenEmbeddedStore(*folder, options);
  }
  return BadUri(uri, "it must begin with mooncake:// or file://");
}

}  // namespace mooncake::cluster
