#include "cluster/embedded_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "cluster/cluster_json.h"
#include "env/clock.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/folder_lock.h"
#include "env/host_id.h"
#include "env/random.h"
#include "master/master.h"
#include "node/node.h"
#include "node/node_agent.h"
#include "oplog/log_folder.h"
#include "rpc/async_master.h"
#include "rpc/node_channel.h"

namespace mooncake::cluster {
namespace {

constexpr int64_t kRegisterTimeoutMs = 10'000;
// In one process nothing is gained by waiting longer.
constexpr uint64_t kReportIntervalMs = 50;

// The one node, whatever its address says.
class InProcessConnector final : public rpc::NodeConnector {
 public:
  explicit InProcessConnector(std::shared_ptr<node::Node> node) : node_(std::move(node)) {}

  Result<std::shared_ptr<rpc::NodeChannel>> Connect(const v1::NodeAddress& address) override {
    if (address.node_id() != node_->node_id()) {
      return Unavailable("this embedded store has node " + node_->node_id() + ", not " +
                         address.node_id());
    }
    return std::shared_ptr<rpc::NodeChannel>(node_);
  }

 private:
  const std::shared_ptr<node::Node> node_;
};

class EmbeddedStore final : public OpenedStore {
 public:
  explicit EmbeddedStore(env::FolderLock lock) : lock_(std::move(lock)) {}

  ~EmbeddedStore() override {
    client_.reset();
    agent_.reset();
    if (master_ != nullptr) master_->Stop();
    if (files_ == nullptr) return;
    if (const Status closed = files_->log().Close(); !closed.ok()) {
      Log().error("embedded store: closing the log: {}", closed.ToString());
    }
  }

  Status Start(const std::string& folder, uint64_t capacity_bytes,
               const client::StoreClientOptions& client_options) {
    const std::string master_folder = folder + "/" + kMasterFolder;
    MC_RETURN_IF_ERROR(env::MakeFolders(master_folder));
    MC_ASSIGN_OR_RETURN(files_, oplog::LogFolder::Open(master_folder));
    const master::MasterSeams seams{
        files_->log(),
        env::SystemClock::Instance(),
        env::SystemRandom::Instance(),
        {.snapshots = &files_->snapshots(), .open_log = [this] { return files_->OpenReader(); }}};
    MC_ASSIGN_OR_RETURN(master_, master::Master::Open(master::MasterOptions{}, seams));
    node::NodeOptions node_options;
    node_options.folder = folder + "/" + kNodeFolder;
    node_options.capacity_bytes = capacity_bytes;
    node_options.durable_arenas = true;
    MC_ASSIGN_OR_RETURN(std::unique_ptr<node::Node> node, node::Node::Open(node_options));
    node_ = std::move(node);
    master_->Start();
    api_ = std::make_shared<rpc::BlockingMaster>(*master_);
    node::NodeAgentOptions agent_options;
    agent_options.host_id = env::HostId();
    agent_options.report_interval_ms = kReportIntervalMs;
    agent_ = std::make_unique<node::NodeAgent>(*node_, api_, agent_options);
    const env::Deadline deadline = env::Deadline::AfterMs(kRegisterTimeoutMs);
    MC_RETURN_IF_ERROR(agent_->WaitRegistered(deadline));
    // What the folder holds is known to the Master before the first call.
    MC_RETURN_IF_ERROR(agent_->ReportNow(deadline));
    client_ = std::make_unique<client::StoreClient>(
        api_, std::make_shared<InProcessConnector>(node_), client_options);
    return OkStatus();
  }

  client::StoreClient& client() override { return *client_; }
  Result<std::string> DescribeCluster() override { return ClusterJson(*api_); }

 private:
  const env::FolderLock lock_;
  std::unique_ptr<oplog::LogFolder> files_;
  std::unique_ptr<master::Master> master_;
  std::shared_ptr<rpc::MasterApi> api_;
  std::shared_ptr<node::Node> node_;
  std::unique_ptr<node::NodeAgent> agent_;
  std::unique_ptr<client::StoreClient> client_;
};

Result<uint64_t> DefaultCapacity(const std::string& folder) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return Unavailable("free space of " + folder + ": " + error.message());
  return std::max<uint64_t>(kGiB, space.available / 2 / kGiB * kGiB);
}

}  // namespace

Result<std::unique_ptr<OpenedStore>> OpenEmbeddedStore(const std::string& folder,
                                                       const OpenOptions& options) {
  MC_RETURN_IF_ERROR(env::MakeFolders(folder));
  MC_ASSIGN_OR_RETURN(env::FolderLock lock, env::FolderLock::Acquire(folder));
  uint64_t capacity_bytes = options.capacity_bytes;
  if (capacity_bytes == 0) {
    MC_ASSIGN_OR_RETURN(capacity_bytes, DefaultCapacity(folder));
  }
  auto store = std::make_unique<EmbeddedStore>(std::move(lock));
  if (const Status started = store->Start(folder, capacity_bytes, options.client); !started.ok()) {
    return started.WithContext("embedded store " + folder);
  }
  return std::unique_ptr<OpenedStore>(std::move(store));
}

}  // namespace mooncake::cluster
