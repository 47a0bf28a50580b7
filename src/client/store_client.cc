#include "client/store_client.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "client/import_session.h"
#include "client/loader.h"
#include "client/revision_reader.h"
#include "client/session.h"
#include "client/wire.h"
#include "env/clock.h"
#include "env/host_id.h"
#include "env/random.h"

namespace mooncake::client {
namespace {

constexpr int kDefaultThreadsMax = 8;
constexpr int64_t kRemovePauseMsMin = 5;
constexpr int64_t kRemovePauseMsMax = 100;

Status CheckThreads(int threads) {
  if (threads >= 0 && threads <= kThreadsMax) return OkStatus();
  return InvalidArgument("threads must be 0 to " + std::to_string(kThreadsMax) + ", got " +
                         std::to_string(threads));
}

StoreClientOptions Resolve(StoreClientOptions options) {
  MC_CHECK(Validate(options).ok());
  if (options.client_id.empty()) {
    options.client_id = HexOf(env::SystemRandom::Instance().RandomBytes(16));
  }
  if (options.holder.empty()) options.holder = "pid " + std::to_string(::getpid());
  if (options.host_id.empty()) options.host_id = env::HostId();
  if (options.threads == 0) {
    options.threads =
        std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kDefaultThreadsMax);
  }
  return options;
}

bool IsReadable(const model::RevisionMetadata& metadata) {
  return model::IsDiscoverable(metadata.availability);
}

}  // namespace

Status Validate(const StoreClientOptions& options) {
  MC_RETURN_IF_ERROR(CheckThreads(options.threads));
  if (options.retry_ms < 0 || options.retry_ms > kRetryMsMax) {
    return InvalidArgument("retry_ms must be 0 to " + std::to_string(kRetryMsMax) + ", got " +
                           std::to_string(options.retry_ms));
  }
  return OkStatus();
}

StoreClient::StoreClient(std::shared_ptr<rpc::MasterApi> master,
                         std::shared_ptr<rpc::NodeConnector> connector, StoreClientOptions options)
    : session_(std::make_shared<Session>(std::move(master), std::move(connector),
                                         Resolve(std::move(options)))) {}

StoreClient::~StoreClient() = default;

const std::string& StoreClient::client_id() const { return session_->options.client_id; }

Result<std::unique_ptr<Importer>> StoreClient::BeginImport(const ImportRequest& request) {
  MC_ASSIGN_OR_RETURN(std::unique_ptr<ImportSession> import,
                      ImportSession::Begin(session_, request));
  return std::unique_ptr<Importer>(std::move(import));
}

Result<LoadReport> StoreClient::Load(const model::WeightIdentity& identity,
                                     const std::vector<LoadTarget>& targets,
                                     const LoadOptions& options) {
  MC_RETURN_IF_ERROR(CheckThreads(options.threads));
  return Loader(session_, options).Run(identity, targets);
}

Result<manifest::StoredManifestPtr> StoreClient::ReadManifest(
    const model::WeightIdentity& identity) {
  MC_ASSIGN_OR_RETURN(const std::unique_ptr<RevisionReader> reader,
                      RevisionReader::Open(session_, identity, {}));
  return reader->ReadManifest();
}

Result<RevisionView> StoreClient::GetMetadata(const model::WeightIdentity& identity) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(identity));
  v1::GetWeightRequest get;
  codec::ToProto(identity, get.mutable_identity());
  MC_ASSIGN_OR_RETURN(const v1::GetWeightReply reply,
                      session_->calls.Ask(&rpc::MasterApi::GetWeight, get, session_->Limits()));
  return ViewFromProto(reply.metadata());
}

Result<bool> StoreClient::Exists(const model::WeightIdentity& identity) {
  const Result<RevisionView> view = GetMetadata(identity);
  if (view.ok()) return view->metadata.availability == model::Availability::kReady;
  switch (view.status().code()) {
    case Code::kNotFound:
    case Code::kNotReady:
    case Code::kStaleGeneration:
      return false;
    default:
      return view.status();
  }
}

Result<uint64_t> StoreClient::GetSize(const model::WeightIdentity& identity) {
  MC_ASSIGN_OR_RETURN(const RevisionView view, GetMetadata(identity));
  if (!IsReadable(view.metadata)) {
    return NotFound(model::Describe(identity) + " is " +
                    std::string(model::Name(view.metadata.availability)));
  }
  return view.metadata.logical_payload_bytes;
}

Result<ListPage> StoreClient::List(const ListRequest& request) {
  v1::ListWeightsRequest list;
  list.set_tenant_id(request.tenant_id);
  list.set_name_space(request.namespace_name);
  list.set_resource_id(request.resource_id);
  for (const model::Availability availability : request.availability) {
    list.add_availability(static_cast<v1::Availability>(availability));
  }
  list.set_page_size(request.page_size);
  list.set_page_token(request.page_token);
  MC_ASSIGN_OR_RETURN(const v1::ListWeightsReply reply,
                      session_->calls.Ask(&rpc::MasterApi::ListWeights, list, session_->Limits()));
  ListPage page;
  for (const v1::RevisionMetadata& proto : reply.revisions()) {
    MC_ASSIGN_OR_RETURN(RevisionView view, ViewFromProto(proto));
    page.revisions.push_back(std::move(view));
  }
  page.next_page_token = reply.next_page_token();
  return page;
}

Result<model::RevisionMetadata> StoreClient::Remove(const model::WeightIdentity& identity,
                                                    const RemoveOptions& options) {
  MC_RETURN_IF_ERROR(model::ValidateIdentity(identity));
  v1::RemoveWeightRequest remove;
  codec::ToProto(identity, remove.mutable_identity());
  if (options.expected_metadata_generation) {
    remove.set_expected_metadata_generation(*options.expected_metadata_generation);
  }
  MC_ASSIGN_OR_RETURN(const v1::RemoveWeightReply reply,
                      session_->calls.Command(&rpc::MasterApi::RemoveWeight, std::move(remove),
                                              session_->Limits(options.wait.cancel)));
  MC_ASSIGN_OR_RETURN(RevisionView view, ViewFromProto(reply.metadata()));
  const int64_t begin_ms = env::SystemClock::Instance().MonotonicMs();
  int64_t pause_ms = kRemovePauseMsMin;
  while (options.wait_until_deleted &&
         view.metadata.availability != model::Availability::kDeleted) {
    const int64_t waited_ms = env::SystemClock::Instance().MonotonicMs() - begin_ms;
    if (options.wait.timeout_ms >= 0 && waited_ms > options.wait.timeout_ms) {
      return Unavailable(model::Describe(identity) + " is still being deleted after " +
                         std::to_string(waited_ms) + " ms");
    }
    if (options.wait.keep_waiting && !options.wait.keep_waiting()) {
      return Cancelled("cancelled by the caller; the deletion goes on");
    }
    if (!env::PauseMs(pause_ms, options.wait.cancel)) {
      return Cancelled("cancelled by the caller; the deletion goes on");
    }
    pause_ms = std::min(pause_ms * 2, kRemovePauseMsMax);
    MC_ASSIGN_OR_RETURN(view, GetMetadata(identity));
  }
  return std::move(view.metadata);
}

}  // namespace mooncake::client
