// What all operations of one StoreClient share: the Master, the nodes, the lease keeper, the copy
// threads, and how a call is repeated.
//
// A request is repeated, with the same command id, while its answer is UNAVAILABLE or
// OUTCOME_UNKNOWN (and a few times on DURABILITY_FAILED), with pauses that double from 10 ms to 500
// ms, until the client's retry_ms have passed or the caller cancels. Threads: every method from any
// thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "client/command_ids.h"
#include "client/lease_keeper.h"
#include "client/plan_cache.h"
#include "client/store_client.h"
#include "env/deadline.h"
#include "env/sync.h"
#include "model/identity.h"
#include "rpc/master_api.h"
#include "rpc/node_channel.h"
#include "rpc/status_proto.h"
#include "transfer/copy_engine.h"

namespace mooncake::client {

// How long, and until when, one call may be repeated.
struct CallLimits {
  int64_t retry_ms = 0;
  std::stop_token cancel;

  // For calls of a node that begin now: no one of them outlasts the repeating.
  rpc::CallBounds Bounds() const { return {env::Deadline::AfterMs(retry_ms), cancel}; }
};

// Calls `attempt` until its Status is final (see above).
Status Repeat(const CallLimits& limits, const std::function<Status()>& attempt);

class MasterCalls {
 public:
  MasterCalls(std::shared_ptr<rpc::MasterApi> master, std::string client_id)
      : master_(std::move(master)), commands_(std::move(client_id)) {}

  const std::string& client_id() const { return commands_.client_id(); }

  template <class Request, class Reply>
  Result<Reply> Ask(Reply (rpc::MasterApi::*method)(const Request&), const Request& request,
                    const CallLimits& limits) {
    Reply reply;
    const Status status = Repeat(limits, [&] {
      reply = ((*master_).*method)(request);
      return rpc::StatusFromProto(reply.status());
    });
    if (!status.ok()) return status;
    return reply;
  }

  // The same for a command: every repetition carries the one id that it is given here.
  template <class Request, class Reply>
  Result<Reply> Command(Reply (rpc::MasterApi::*method)(const Request&), Request request,
                        const CallLimits& limits) {
    const CommandIds::Command command = commands_.Begin();
    *request.mutable_command() = command.id();
    return Ask(method, request, limits);
  }

 private:
  const std::shared_ptr<rpc::MasterApi> master_;
  CommandIds commands_;
};

// Channels to nodes, opened once per instance.
class NodeChannels {
 public:
  explicit NodeChannels(std::shared_ptr<rpc::NodeConnector> connector)
      : connector_(std::move(connector)) {}

  Result<std::shared_ptr<rpc::NodeChannel>> Get(const v1::NodeAddress& address,
                                                const rpc::CallBounds& bounds);

 private:
  struct Entry {
    std::string instance_id;
    std::shared_ptr<rpc::NodeChannel> channel;
  };
  const std::shared_ptr<rpc::NodeConnector> connector_;
  env::Mutex mutex_;
  std::map<std::string, Entry> by_node_id_;
};

// Who of one client's importers acts for which participant: two that claimed the same one under one
// client id would be one writer to the Master, and blend.
class ImportClaims {
 public:
  using Claim = std::pair<model::WeightIdentity, std::string>;

  // All of them, or none and false.
  bool Take(const std::vector<Claim>& claims) {
    std::lock_guard lock(mutex_);
    for (const Claim& claim : claims) {
      if (taken_.contains(claim)) return false;
    }
    taken_.insert(claims.begin(), claims.end());
    return true;
  }
  void Give(const std::vector<Claim>& claims) {
    std::lock_guard lock(mutex_);
    for (const Claim& claim : claims) taken_.erase(claim);
  }

 private:
  env::Mutex mutex_;
  std::set<Claim> taken_;
};

class Session {
 public:
  Session(std::shared_ptr<rpc::MasterApi> master_api, std::shared_ptr<rpc::NodeConnector> connector,
          StoreClientOptions resolved)
      : options(std::move(resolved)),
        master(std::move(master_api)),
        calls(master, options.client_id),
        keeper(master),
        nodes(std::move(connector)),
        engine({.threads = options.threads}) {}

  Status Step(std::string_view step) const {
    return options.step_observer ? options.step_observer(step) : OkStatus();
  }
  CallLimits Limits(std::stop_token cancel = {}) const {
    return {options.retry_ms, std::move(cancel)};
  }

  const StoreClientOptions options;
  const std::shared_ptr<rpc::MasterApi> master;
  MasterCalls calls;
  LeaseKeeper keeper;
  NodeChannels nodes;
  ImportClaims claims;
  PlanCache plans;
  transfer::CopyEngine engine;
};

}  // namespace mooncake::client
