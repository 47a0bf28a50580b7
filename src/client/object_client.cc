#include "client/object_client.h"

#include <algorithm>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "client/key_pattern.h"
#include "client/object_putter.h"
#include "client/object_reader.h"
#include "client/object_session.h"
#include "client/put_sessions.h"
#include "client/store_client.h"
#include "env/host_id.h"
#include "env/random.h"
#include "rpc/status_proto.h"

namespace mooncake::client {
namespace {

constexpr int kDefaultThreadsMax = 8;

ObjectClientOptions Resolve(ObjectClientOptions options) {
  MC_CHECK(Validate(options).ok());
  if (options.client_id.empty()) {
    options.client_id = HexOf(env::SystemRandom::Instance().RandomBytes(16));
  }
  if (options.host_id.empty()) options.host_id = env::HostId();
  if (options.threads == 0) {
    options.threads =
        std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kDefaultThreadsMax);
  }
  return options;
}

Status CheckRange(const char* field, uint64_t value, uint64_t min, uint64_t max) {
  if (value >= min && value <= max) return OkStatus();
  return InvalidArgument(std::string(field) + " must be " + std::to_string(min) + " to " +
                         std::to_string(max) + ", got " + std::to_string(value));
}

// The bytes of the pieces; INVALID_ARGUMENT for one without an address.
Result<uint64_t> RoomOf(const GetItem& item) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < item.pieces.size(); ++i) {
    const Piece& piece = item.pieces[i];
    if (piece.address == nullptr && piece.bytes > 0) {
      return InvalidArgument("piece " + std::to_string(i) + " of " + std::to_string(piece.bytes) +
                             " bytes has address 0");
    }
    bytes += std::min(piece.bytes, std::numeric_limits<uint64_t>::max() - bytes);
  }
  return bytes;
}

Status FitPieces(const GetItem& item, uint64_t bytes, std::vector<ReadSegment>* segments) {
  MC_ASSIGN_OR_RETURN(const uint64_t room, RoomOf(item));
  if (room < bytes || (item.exact && room != bytes)) {
    return InvalidArgument("expected buffers of " + std::string(item.exact ? "exactly " : "") +
                           std::to_string(bytes) + " bytes, got " + std::to_string(room));
  }
  uint64_t at = 0;
  for (const Piece& piece : item.pieces) {
    const uint64_t take = std::min(piece.bytes, bytes - at);
    if (take > 0) segments->push_back({at, static_cast<std::byte*>(piece.address), take});
    at += take;
  }
  return OkStatus();
}

Status FitRange(const RangeItem& item, uint64_t bytes) {
  if (item.from <= bytes && item.target.bytes <= bytes - item.from) return OkStatus();
  return InvalidArgument("object " + KeyText(item.key) + ": " + std::to_string(item.target.bytes) +
                         " bytes from " + std::to_string(item.from) + " are not inside its " +
                         std::to_string(bytes));
}

std::vector<ReadResult> ResultsOf(std::vector<ReadTask>& tasks) {
  std::vector<ReadResult> results;
  results.reserve(tasks.size());
  for (ReadTask& task : tasks) results.push_back(std::move(task.result));
  return results;
}

}  // namespace

Status Validate(const ObjectClientOptions& options) {
  MC_RETURN_IF_ERROR(CheckRange("retry_ms", static_cast<uint64_t>(options.retry_ms), 0,
                                static_cast<uint64_t>(kRetryMsMax)));
  MC_RETURN_IF_ERROR(CheckRange("chunk_bytes", options.chunk_bytes, 1, kChunkBytesMax));
  return CheckRange("threads", static_cast<uint64_t>(options.threads), 0, kObjectThreadsMax);
}

class ObjectClient::Body {
 public:
  Body(std::shared_ptr<rpc::MasterApi> master, std::shared_ptr<rpc::NodeConnector> connector,
       ObjectClientOptions options)
      : session(std::move(master), std::move(connector), std::move(options)) {}

  // One answer per key, made of the Master's answer to it, or of the failure to get one.
  template <class T, class Make>
  std::vector<Result<T>> LookUp(std::span<const std::string_view> keys,
                                const v1::LookupObjectsRequest& how, const Make& make) {
    std::vector<Result<T>> answers;
    answers.reserve(keys.size());
    for (size_t begin = 0; begin < keys.size();) {
      const size_t end =
          EndOfRequest(begin, keys.size(), [&keys](size_t i) { return keys[i].size(); });
      v1::LookupObjectsRequest request = how;
      request.set_tenant_id(session.options.tenant_id);
      for (size_t i = begin; i < end; ++i) request.add_keys(keys[i].data(), keys[i].size());
      Result<v1::LookupObjectsReply> reply =
          session.calls.Ask(&rpc::MasterApi::LookupObjects, request, session.Limits());
      Status all = reply.status();
      if (all.ok() && reply->entries_size() != static_cast<int>(end - begin)) {
        all = Internal("LookupObjects: expected " + std::to_string(end - begin) + " entries, got " +
                       std::to_string(reply->entries_size()));
      }
      for (size_t i = begin; i < end; ++i) {
        if (!all.ok()) {
          answers.push_back(all);
          continue;
        }
        v1::ObjectEntry& entry = *reply->mutable_entries(static_cast<int>(i - begin));
        const Status status = rpc::StatusFromProto(entry.status());
        answers.push_back(
            make(status.WithContext("object " + KeyText(keys[i])), entry, reply->lease_ms()));
      }
      begin = end;
    }
    return answers;
  }

  std::vector<Status> Remove(std::span<const std::string_view> keys, bool force) {
    std::vector<Status> statuses;
    statuses.reserve(keys.size());
    for (size_t begin = 0; begin < keys.size();) {
      const size_t end =
          EndOfRequest(begin, keys.size(), [&keys](size_t i) { return keys[i].size(); });
      v1::RemoveObjectsRequest request;
      request.set_tenant_id(session.options.tenant_id);
      request.set_force(force);
      for (size_t i = begin; i < end; ++i) request.add_keys(keys[i].data(), keys[i].size());
      const Result<v1::RemoveObjectsReply> reply = session.calls.Command(
          &rpc::MasterApi::RemoveObjects, std::move(request), session.Limits());
      Status all = reply.status();
      if (all.ok() && reply->results_size() != static_cast<int>(end - begin)) {
        all = Internal("RemoveObjects: expected " + std::to_string(end - begin) + " results, got " +
                       std::to_string(reply->results_size()));
      }
      for (size_t i = begin; i < end; ++i) {
        const Status status =
            all.ok() ? rpc::StatusFromProto(reply->results(static_cast<int>(i - begin))) : all;
        statuses.push_back(status.WithContext("object " + KeyText(keys[i])));
      }
      begin = end;
    }
    return statuses;
  }

  // Every page of the tenant's objects whose keys begin with `prefix`.
  Status Walk(std::string_view prefix,
              const std::function<Status(const v1::ListObjectsReply&)>& visit) {
    v1::ListObjectsRequest request;
    request.set_tenant_id(session.options.tenant_id);
    request.set_prefix(prefix.data(), prefix.size());
    do {
      MC_ASSIGN_OR_RETURN(
          const v1::ListObjectsReply reply,
          session.calls.Ask(&rpc::MasterApi::ListObjects, request, session.Limits()));
      MC_RETURN_IF_ERROR(visit(reply));
      request.set_cursor(reply.next_cursor());
    } while (request.cursor() != 0);
    return OkStatus();
  }

  ObjectSession session;
  PutSessions put_sessions{session};
};

ObjectClient::ObjectClient(std::shared_ptr<rpc::MasterApi> master,
                           std::shared_ptr<rpc::NodeConnector> connector,
                           ObjectClientOptions options)
    : body_(std::make_unique<Body>(std::move(master), std::move(connector),
                                   Resolve(std::move(options)))) {}

ObjectClient::~ObjectClient() = default;

const std::string& ObjectClient::client_id() const { return body_->session.options.client_id; }

std::vector<PutResult> ObjectClient::Put(std::span<const PutItem> items,
                                         const PutOptions& options) {
  return PutObjects(body_->session, items, options);
}

std::vector<PutResult> ObjectClient::StartPuts(std::span<const OpenItem> items,
                                               const PutOptions& options) {
  return body_->put_sessions.Start(items, options);
}

std::vector<PutResult> ObjectClient::WriteParts(std::span<const PartsItem> items) {
  return body_->put_sessions.Write(items);
}

std::vector<PutResult> ObjectClient::EndPuts(std::span<const std::string_view> keys) {
  return body_->put_sessions.End(keys);
}

std::vector<Status> ObjectClient::RevokePuts(std::span<const std::string_view> keys) {
  return body_->put_sessions.Revoke(keys);
}

std::vector<ReadResult> ObjectClient::Get(std::span<const GetItem> items) {
  std::vector<ReadTask> tasks(items.size());
  for (size_t i = 0; i < items.size(); ++i) tasks[i].key = items[i].key;
  const std::vector<Status> usable = CheckPieces(body_->session.memory, items, /*write=*/true);
  ReadObjects(body_->session, tasks,
              [&](size_t i, uint64_t bytes, std::vector<ReadSegment>* segments) {
                MC_RETURN_IF_ERROR(FitPieces(items[i], bytes, segments));
                return usable[i];
              });
  return ResultsOf(tasks);
}

std::vector<ReadResult> ObjectClient::GetSized(std::span<const std::string_view> keys,
                                               const Allocate& allocate) {
  std::vector<ReadTask> tasks(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) tasks[i].key = keys[i];
  ReadObjects(body_->session, tasks,
              [&](size_t i, uint64_t bytes, std::vector<ReadSegment>* segments) {
                void* memory = allocate(i, bytes);
                if (memory == nullptr) {
                  return Exhausted("no memory for its " + std::to_string(bytes) + " bytes");
                }
                segments->push_back({0, static_cast<std::byte*>(memory), bytes});
                return OkStatus();
              });
  return ResultsOf(tasks);
}

std::vector<ReadResult> ObjectClient::GetRanges(std::span<const RangeItem> items) {
  // Ranges of one object are read together, and it is looked up once.
  std::map<std::pair<std::string_view, uint64_t>, std::vector<size_t>> by_object;
  for (size_t i = 0; i < items.size(); ++i) {
    by_object[{items[i].key, items[i].object_id}].push_back(i);
  }
  std::vector<ReadTask> tasks;
  std::vector<const std::vector<size_t>*> ranges;
  for (const auto& [object, of_it] : by_object) {
    tasks.push_back({.key = object.first, .whole = false, .expected_id = object.second});
    ranges.push_back(&of_it);
  }
  std::vector<env::OwnRange> targets;
  targets.reserve(items.size());
  for (const RangeItem& item : items) targets.push_back({item.target.address, item.target.bytes});
  const std::vector<Status> usable = body_->session.memory.Check(targets, /*write=*/true);
  std::vector<ReadResult> results(items.size());
  ReadObjects(body_->session, tasks,
              [&](size_t task, uint64_t bytes, std::vector<ReadSegment>* segments) {
                for (const size_t i : *ranges[task]) {
                  results[i].status = FitRange(items[i], bytes);
                  if (results[i].status.ok()) results[i].status = usable[i];
                  const Piece& target = items[i].target;
                  if (!results[i].status.ok() || target.bytes == 0) continue;
                  segments->push_back(
                      {items[i].from, static_cast<std::byte*>(target.address), target.bytes});
                }
                return OkStatus();
              });
  for (size_t task = 0; task < tasks.size(); ++task) {
    for (const size_t i : *ranges[task]) {
      if (!results[i].status.ok()) continue;
      results[i] = tasks[task].result;
      results[i].bytes = items[i].target.bytes;
    }
  }
  return results;
}

std::vector<Result<bool>> ObjectClient::Exists(std::span<const std::string_view> keys, bool renew) {
  v1::LookupObjectsRequest how;
  how.set_renew_lease(renew);
  return body_->LookUp<bool>(
      keys, how, [](const Status& status, const v1::ObjectEntry&, uint64_t) -> Result<bool> {
        if (status.ok()) return true;
        switch (status.code()) {
          case Code::kNotFound:
          case Code::kNotReady:
          case Code::kUnavailable:  // no replica's node reports
            return false;
          default:
            return status;
        }
      });
}

std::vector<Result<uint64_t>> ObjectClient::Sizes(std::span<const std::string_view> keys,
                                                  bool renew) {
  v1::LookupObjectsRequest how;
  how.set_renew_lease(renew);
  return body_->LookUp<uint64_t>(
      keys, how,
      [](const Status& status, const v1::ObjectEntry& entry, uint64_t) -> Result<uint64_t> {
        if (!status.ok()) return status;
        return entry.bytes();
      });
}

std::vector<Result<ReadableObject>> ObjectClient::Locate(std::span<const std::string_view> keys,
                                                         bool renew) {
  v1::LookupObjectsRequest how;
  how.set_renew_lease(renew);
  how.set_locate(true);
  return body_->LookUp<ReadableObject>(keys, how,
                                       [](const Status& status, const v1::ObjectEntry& entry,
                                          uint64_t lease_ms) -> Result<ReadableObject> {
                                         if (!status.ok()) return status;
                                         return ReadableObject{
                                             entry.object_id(),
                                             entry.bytes(),
                                             {entry.replicas().begin(), entry.replicas().end()},
                                             lease_ms};
                                       });
}

std::vector<Result<v1::ObjectInfo>> ObjectClient::Describe(std::span<const std::string_view> keys) {
  v1::LookupObjectsRequest how;
  how.set_describe(true);
  return body_->LookUp<v1::ObjectInfo>(
      keys, how,
      [](const Status& status, v1::ObjectEntry& entry, uint64_t) -> Result<v1::ObjectInfo> {
        if (!status.ok()) return status;
        return std::move(*entry.mutable_info());
      });
}

std::vector<Status> ObjectClient::Remove(std::span<const std::string_view> keys, bool force) {
  return body_->Remove(keys, force);
}

Result<ObjectClient::RemovedMany> ObjectClient::RemoveByRegex(std::string_view pattern,
                                                              bool force) {
  MC_ASSIGN_OR_RETURN(const KeyPattern compiled, KeyPattern::Compile(pattern));
  // The keys first: what is removed while the walk goes on must not turn it.
  std::vector<std::string> keys;
  MC_RETURN_IF_ERROR(body_->Walk("", [&](const v1::ListObjectsReply& page) -> Status {
    for (const v1::ObjectInfo& object : page.objects()) {
      MC_ASSIGN_OR_RETURN(const bool found, compiled.FoundIn(object.key()));
      if (found) keys.push_back(object.key());
    }
    return OkStatus();
  }));
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  RemovedMany many;
  for (const Status& status : body_->Remove(views, force)) {
    switch (status.code()) {
      case Code::kOk:
        ++many.removed;
        break;
      case Code::kNotFound:
        break;
      case Code::kBusy:
      case Code::kNotReady:
        ++many.skipped;
        break;
      default:
        return status;
    }
  }
  return many;
}

Result<ObjectClient::RemovedMany> ObjectClient::RemoveAll(bool force) {
  v1::RemoveAllObjectsRequest request;
  request.set_tenant_id(body_->session.options.tenant_id);
  request.set_force(force);
  RemovedMany many;
  do {
    MC_ASSIGN_OR_RETURN(const v1::RemoveAllObjectsReply reply,
                        body_->session.calls.Command(&rpc::MasterApi::RemoveAllObjects, request,
                                                     body_->session.Limits()));
    many.removed += reply.removed();
    many.skipped += reply.skipped();
    request.set_cursor(reply.next_cursor());
  } while (request.cursor() != 0);
  return many;
}

Result<std::vector<v1::TenantStatus>> ObjectClient::Tenants() {
  MC_ASSIGN_OR_RETURN(const v1::ListTenantsReply reply,
                      body_->session.calls.Ask(&rpc::MasterApi::ListTenants,
                                               v1::ListTenantsRequest(), body_->session.Limits()));
  return std::vector<v1::TenantStatus>(reply.tenants().begin(), reply.tenants().end());
}

Status ObjectClient::SetTenant(const v1::TenantQuota& quota) {
  v1::SetTenantRequest request;
  *request.mutable_quota() = quota;
  return body_->session.calls.Command(&rpc::MasterApi::SetTenant, request, body_->session.Limits())
      .status();
}

Status ObjectClient::RemoveTenant(const std::string& tenant_id) {
  v1::SetTenantRequest request;
  request.mutable_quota()->set_tenant_id(tenant_id);
  request.set_remove(true);
  return body_->session.calls.Command(&rpc::MasterApi::SetTenant, request, body_->session.Limits())
      .status();
}

Status ObjectClient::List(std::string_view prefix,
                          const std::function<bool(const v1::ObjectInfo&)>& visit) {
  std::vector<v1::ObjectInfo> objects;
  MC_RETURN_IF_ERROR(body_->Walk(prefix, [&objects](const v1::ListObjectsReply& page) {
    objects.insert(objects.end(), page.objects().begin(), page.objects().end());
    return OkStatus();
  }));
  // A page may name again what an earlier one did, also under another id when it was replaced: the
  // youngest counts.
  std::sort(objects.begin(), objects.end(), [](const v1::ObjectInfo& a, const v1::ObjectInfo& b) {
    const int order = a.key().compare(b.key());
    return order != 0 ? order < 0 : a.object_id() > b.object_id();
  });
  const v1::ObjectInfo* last = nullptr;
  for (const v1::ObjectInfo& object : objects) {
    if (last != nullptr && last->key() == object.key()) continue;
    last = &object;
    if (!visit(object)) break;
  }
  return OkStatus();
}

}  // namespace mooncake::client
