#include "cluster/memory_lender.h"

#include <cstdlib>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/host_id.h"
#include "env/random.h"
#include "node/node.h"
#include "node/node_agent.h"
#include "node/node_service.h"
#include "rpc/grpc_master.h"
#include "rpc/node_server.h"
#include "rpc/status_proto.h"

namespace mooncake::cluster {
namespace {

// A socket's path is at most this long (sun_path, less its end).
constexpr size_t kSocketPathMax = 107;

std::string TemporaryFolder() {
  const char* set = std::getenv("TMPDIR");
  const std::string base = set != nullptr && *set != 0 ? set : "/tmp";
  return base + "/mooncake-lender-" + HexOf(env::SystemRandom::Instance().RandomBytes(8));
}

}  // namespace

class MemoryLender::Body {
 public:
  explicit Body(MemoryLenderOptions options)
      : options_(std::move(options)), folder_(TemporaryFolder()) {}

  ~Body() {
    // A call to a Master that is away would hold the agent's thread for its whole time-out.
    if (master_ != nullptr) master_->Cancel();
    agent_.reset();
    if (registered_) Leave();
    server_.reset();
    service_.reset();
    node_.reset();
    if (const Status removed = env::RemoveFolderTree(folder_); !removed.ok()) {
      Log().warn("memory lender {}: {}", options_.node_id, removed.ToString());
    }
  }

  Status Start() {
    MC_ASSIGN_OR_RETURN(credentials_, rpc::ReadCredentials(rpc::WithEnvironment(
                                          options_.credentials, rpc::As::kNode)));
    MC_RETURN_IF_ERROR(env::MakeFolders(folder_));
    MC_ASSIGN_OR_RETURN(node_, node::Node::Open({.folder = folder_ + "/node",
                                                 .capacity_bytes = options_.capacity_bytes,
                                                 .node_id = options_.node_id}));
    service_ = std::make_unique<node::NodeService>(*node_);
    std::string socket = folder_ + "/s";
    if (socket.size() > kSocketPathMax) {
      socket = "/tmp/mooncake-" + HexOf(env::SystemRandom::Instance().RandomBytes(16)) + ".sock";
    }
    MC_ASSIGN_OR_RETURN(server_, rpc::NodeServer::StartUnix(socket, *service_));
    master_ = std::make_shared<rpc::GrpcMaster>(options_.master_address, rpc::GrpcMasterOptions(),
                                                credentials_);
    agent_ = std::make_unique<node::NodeAgent>(
        *node_, master_,
        node::NodeAgentOptions{
            .host_id = env::HostId(), .socket_path = socket, .objects_only = true});
    MC_RETURN_IF_ERROR(
        agent_->WaitRegistered(env::Deadline::AfterMs(options_.register_timeout_ms)));
    registered_ = true;
    return OkStatus();
  }

  const std::string& node_id() const { return options_.node_id; }

 private:
  // So that nothing is placed here any more. A Master that does not hear it finds out by silence.
  void Leave() {
    rpc::GrpcMaster master(
        options_.master_address,
        {.connect_timeout_ms = 500, .attempt_timeout_ms = 1'000, .total_timeout_ms = 1'000},
        credentials_);
    v1::LeaveNodeRequest request;
    request.set_node_id(node_->node_id());
    request.set_instance_id(node_->instance_id());
    const Status left = rpc::StatusFromProto(master.LeaveNode(request).status());
    if (!left.ok()) Log().warn("memory lender {}: {}", options_.node_id, left.ToString());
  }

  const MemoryLenderOptions options_;
  const std::string folder_;
  rpc::Credentials credentials_;
  bool registered_ = false;
  std::unique_ptr<node::Node> node_;
  std::unique_ptr<node::NodeService> service_;
  std::unique_ptr<rpc::NodeServer> server_;
  std::shared_ptr<rpc::GrpcMaster> master_;
  std::unique_ptr<node::NodeAgent> agent_;
};

MemoryLender::MemoryLender(std::unique_ptr<Body> body) : body_(std::move(body)) {}
MemoryLender::~MemoryLender() = default;

const std::string& MemoryLender::node_id() const { return body_->node_id(); }

Result<std::unique_ptr<MemoryLender>> MemoryLender::Start(const MemoryLenderOptions& options) {
  auto body = std::make_unique<Body>(options);
  if (const Status started = body->Start(); !started.ok()) {
    return started.WithContext("memory lender " + options.node_id + " at Store Master " +
                               options.master_address);
  }
  return std::unique_ptr<MemoryLender>(new MemoryLender(std::move(body)));
}

}  // namespace mooncake::cluster
