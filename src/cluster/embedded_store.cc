#include "cluster/embedded_store.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "cluster/cluster_json.h"
#include "cluster/store_clients.h"
#include "env/clock.h"
#include "env/deadline.h"
#include "env/file.h"
#include "env/folder_lock.h"
#include "env/host_id.h"
#include "env/peer_memory.h"
#include "env/random.h"
#include "master/master.h"
#include "master/recovery.h"
#include "node/node.h"
#include "node/node_agent.h"
#include "node/node_folder.h"
#include "oplog/log_folder.h"
#include "rpc/async_master.h"
#include "rpc/node_channel.h"

namespace mooncake::cluster {
namespace {

constexpr int64_t kRegisterTimeoutMs = 10'000;
// In one process nothing is gained by waiting longer.
constexpr uint64_t kReportIntervalMs = 50;

// Calls that stay in the process answer as fast as the disk does, and need no bounds.
class InProcessChannel final : public rpc::NodeChannel {
 public:
  explicit InProcessChannel(std::shared_ptr<node::Node> node) : node_(std::move(node)) {}

  Result<env::UniqueFd> OpenArena(const v1::Grant& grant, const rpc::CallBounds&) override {
    return node_->OpenArena(grant);
  }
  Status ReserveArena(const v1::Grant& grant, const rpc::CallBounds&) override {
    return node_->ReserveArena(grant);
  }
  Status WriteMetadata(const v1::Grant& grant, std::string_view name, std::string_view content,
                       const rpc::CallBounds&) override {
    return node_->WriteMetadata(grant, name, content);
  }
  Result<std::string> ReadMetadata(const v1::Grant& grant, std::string_view name,
                                   const rpc::CallBounds&) override {
    return node_->ReadMetadata(grant, name);
  }
  Status SealImport(const v1::Grant& grant, const rpc::CallBounds&) override {
    return node_->SealImport(grant);
  }
  Result<env::UniqueFd> OpenSlab(const v1::Grant& grant, const rpc::CallBounds&) override {
    return node_->OpenSlab(grant);
  }
  Result<std::vector<Status>> WriteExtents(v1::WriteExtents request,
                                           const rpc::CallBounds&) override {
    if (!request.pull()) return node_->WriteExtents(request, nullptr);
    // Not simply copied: memory that is not there is an error of the put, not of the process.
    MC_ASSIGN_OR_RETURN(const env::PeerProcess self, env::PeerProcess::Open(::getpid()));
    return node_->WriteExtents(request, &self);
  }
  Result<v1::NodeReply> ReadExtents(v1::ReadExtents request, const rpc::CallBounds&) override {
    return node_->ReadExtents(request);
  }

 private:
  const std::shared_ptr<node::Node> node_;
};

// The one node, whatever its address says.
class InProcessConnector final : public rpc::NodeConnector {
 public:
  explicit InProcessConnector(std::shared_ptr<node::Node> node) : node_(std::move(node)) {}

  Result<std::shared_ptr<rpc::NodeChannel>> Connect(const v1::NodeAddress& address,
                                                    const rpc::CallBounds&) override {
    if (address.node_id() != node_->node_id()) {
      return Unavailable("this embedded store has node " + node_->node_id() + ", not " +
                         address.node_id());
    }
    return std::shared_ptr<rpc::NodeChannel>(std::make_shared<InProcessChannel>(node_));
  }

 private:
  const std::shared_ptr<node::Node> node_;
};

class EmbeddedStore final : public OpenedStore {
 public:
  explicit EmbeddedStore(env::FolderLock lock) : lock_(std::move(lock)) {}

  ~EmbeddedStore() override {
    clients_.reset();
    agent_.reset();
    if (master_ != nullptr) master_->Stop();
    if (files_ == nullptr) return;
    if (const Status closed = files_->log().Close(); !closed.ok()) {
      Log().error("embedded store: closing the log: {}", closed.ToString());
    }
  }

  Status Start(const std::string& folder, uint64_t capacity_bytes, const OpenOptions& options) {
    MC_RETURN_IF_ERROR(OpenLog(folder));
    const master::MasterSeams seams{
        files_->log(),
        env::SystemClock::Instance(),
        env::SystemRandom::Instance(),
        {.snapshots = &files_->snapshots(), .open_log = [this] { return files_->OpenReader(); }}};
    master::MasterOptions master_options;
    // Whoever read or wrote here held the folder's lock, and has died or closed the store.
    master_options.clients_end_with_master = true;
    MC_ASSIGN_OR_RETURN(master_, master::Master::Open(master_options, seams));
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
    clients_ = std::make_unique<StoreClients>(api_, std::make_shared<InProcessConnector>(node_),
                                              options.client, options.objects);
    return OkStatus();
  }

  client::StoreClient& client() override { return clients_->weights(); }
  client::ObjectClient& objects() override { return clients_->objects(); }
  Result<std::string> DescribeCluster() override { return ClusterJson(*api_); }

 private:
  // A log beside a node that holds data must be the one that the data is known to: a Master over a
  // new one would have the node drop everything.
  Status OpenLog(const std::string& folder) {
    const std::string node_folder = folder + "/" + kNodeFolder;
    const std::string path = folder + "/" + kMasterFolder + "/" + kLogFile;
    MC_ASSIGN_OR_RETURN(const node::NodeFolderView held, node::PeekNodeFolder(node_folder));
    if (held.empty()) MC_RETURN_IF_ERROR(env::MakeFolders(folder + "/" + kMasterFolder));
    const auto lost = [&](const std::string& why) {
      return Corrupt(why + ", and " + node_folder + " holds " +
                     std::to_string(held.import_ids.size()) + " imports of cluster " +
                     held.cluster_id.value_or("(not recorded)") +
                     ": put that cluster's log back, or move the node's folder away to give its "
                     "data up; nothing was changed");
    };
    Result<std::unique_ptr<oplog::LogFolder>> opened =
        oplog::LogFolder::Open(folder + "/" + kMasterFolder, /*create=*/held.empty());
    if (opened.status().code() == Code::kNotFound) return lost(opened.status().message());
    if (!opened.ok()) return opened.status();
    files_ = *std::move(opened);
    if (held.empty()) return OkStatus();
    MC_ASSIGN_OR_RETURN(const uint64_t records, files_->log().LastSequence());
    if (records == 0) return lost("the log " + path + " has no records");
    MC_ASSIGN_OR_RETURN(const std::optional<std::string> cluster_id,
                        master::ReadClusterId(files_->log()));
    if (held.cluster_id && cluster_id != held.cluster_id) {
      return lost("the log " + path + " is of cluster " + cluster_id.value_or("(none)"));
    }
    return OkStatus();
  }

  const env::FolderLock lock_;
  std::unique_ptr<oplog::LogFolder> files_;
  std::unique_ptr<master::Master> master_;
  std::shared_ptr<rpc::MasterApi> api_;
  std::shared_ptr<node::Node> node_;
  std::unique_ptr<node::NodeAgent> agent_;
  std::unique_ptr<StoreClients> clients_;
};

// What the store has taken counts as free: its capacity must not shrink as it fills.
Result<uint64_t> DefaultCapacity(const std::string& folder) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  MC_ASSIGN_OR_RETURN(const uint64_t free_bytes, env::FreeDiskBytes(folder));
  MC_ASSIGN_OR_RETURN(const uint64_t own_bytes, env::DiskBytesBelow(folder));
  return std::max<uint64_t>(kGiB, (free_bytes + own_bytes) / 2 / kGiB * kGiB);
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
  if (const Status started = store->Start(folder, capacity_bytes, options); !started.ok()) {
    return started.WithContext("embedded store " + folder);
  }
  return std::unique_ptr<OpenedStore>(std::move(store));
}

}  // namespace mooncake::cluster
