// Who may ask what of the Master, and about whose things: one row per RPC, checked before the
// engine is asked.
//
// Owns the table. Never decides what a request means, and never looks at a request twice: the
// engine behind it knows no callers. Two refusals, argued in docs/security.md:
//   - a role that may not make the request, or a tenant that is named and is not the caller's, is
//     PERMISSION_DENIED, whatever exists;
//   - an id is answered as one that is not there: an import that is not the caller's as one never
//     begun (NOT_FOUND), a lease as one that has ended (LEASE_EXPIRED; releasing it is OK and does
//     nothing). Ids are counted, so the answers tell no more than the caller's own ids do.
// Threads: pure functions; those that take an Engine or a state are the sequencer's.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "master/engine.h"
#include "mooncake/v1/master.pb.h"
#include "rpc/caller.h"
#include "rpc/master_api.h"

namespace mooncake::master {

// Whose callers may make a request. Operators may make every one.
enum class For : uint8_t { kClients, kNodes, kOperators, kAll };

// Where a request says whose it is.
enum class Owner : uint8_t {
  kNone,      // nowhere: it is about no tenant, or its reply is cut to the caller's
  kIdentity,  // identity.tenant_id
  kTenant,    // tenant_id
  kImport,    // import_id: the tenant whose import it is
  kLease,     // lease_id: the tenant whose revision it protects
  kLeases,    // lease_ids, each answered by itself
};

struct CallerRule {
  std::string_view rpc;
  For callers;
  Owner owner;
};

inline constexpr CallerRule kCallerRules[] = {
    {"RegisterNode", For::kNodes, Owner::kNone},
    {"ReportNode", For::kNodes, Owner::kNone},
    {"LeaveNode", For::kNodes, Owner::kNone},
    {"BeginImport", For::kClients, Owner::kIdentity},
    {"GetImport", For::kClients, Owner::kImport},
    {"KeepImport", For::kClients, Owner::kImport},
    {"SubmitReceipt", For::kClients, Owner::kImport},
    {"CommitImport", For::kClients, Owner::kImport},
    {"AbortImport", For::kClients, Owner::kImport},
    {"GetWeight", For::kClients, Owner::kIdentity},
    {"ListWeights", For::kClients, Owner::kTenant},
    {"OpenRevision", For::kClients, Owner::kIdentity},
    {"LocateObjects", For::kClients, Owner::kLease},
    {"RenewLeases", For::kClients, Owner::kLeases},
    {"ReleaseLease", For::kClients, Owner::kLease},
    {"RemoveWeight", For::kClients, Owner::kIdentity},
    // Nodes, space and sums over all tenants: whoever may call at all may see how full it is.
    {"GetCluster", For::kAll, Owner::kNone},
    {"PutStart", For::kClients, Owner::kTenant},
    {"PutEnd", For::kClients, Owner::kTenant},
    {"PutRevoke", For::kClients, Owner::kTenant},
    // Names a client process by 128 random bits, and says no more than that it is alive.
    {"KeepPuts", For::kClients, Owner::kNone},
    {"LookupObjects", For::kClients, Owner::kTenant},
    {"RemoveObjects", For::kClients, Owner::kTenant},
    {"RemoveAllObjects", For::kClients, Owner::kTenant},
    {"ListObjects", For::kClients, Owner::kTenant},
    {"ReportUnreadable", For::kClients, Owner::kTenant},
    {"SetTenant", For::kOperators, Owner::kNone},
    // The reply is cut to the caller's tenant.
    {"ListTenants", For::kClients, Owner::kNone},
};

// The number of the RPC's row; std::size(kCallerRules): there is none. (By number: under the
// sanitizers GCC takes no comparison of an address for a constant.)
constexpr size_t CallerRuleOf(std::string_view rpc) {
  size_t row = 0;
  while (row < std::size(kCallerRules) && kCallerRules[row].rpc != rpc) ++row;
  return row;
}

// nullptr: there is no row.
constexpr const CallerRule* FindCallerRule(std::string_view rpc) {
  const size_t row = CallerRuleOf(rpc);
  return row < std::size(kCallerRules) ? &kCallerRules[row] : nullptr;
}

template <class Request>
inline constexpr std::string_view kRpcOf;
#define MOONCAKE_NAME(Rpc) \
  template <>              \
  inline constexpr std::string_view kRpcOf<v1::Rpc##Request> = #Rpc;
MOONCAKE_MASTER_RPCS(MOONCAKE_NAME)
#undef MOONCAKE_NAME

// PERMISSION_DENIED: not a request for callers of this role.
Status CheckRole(const rpc::Caller& caller, std::string_view rpc);

// PERMISSION_DENIED: the caller is another tenant's.
Status CheckTenant(const rpc::Caller& caller, std::string_view tenant_id);
// NOT_FOUND: not the caller's, or not there. Imports that were aborted count while their reason is
// kept.
Status CheckImport(const rpc::Caller& caller, model::ImportId id, const weights::Catalog& weights);
// LEASE_EXPIRED: given to another tenant. OK if it is not there: the engine says so.
Status CheckLease(const rpc::Caller& caller, model::LeaseId id, const weights::Catalog& weights);

// The key under which the Master keeps the outcomes of the caller's commands: one tenant's client
// id says nothing in the hands of another's. Without a tenant it is the client id.
std::string CommandClientId(const rpc::Caller& caller, std::string_view client_id);

// Those of the caller's leases are renewed; the others are answered as ended.
Status RenewOwnLeases(const rpc::Caller& caller, Engine& engine,
                      const v1::RenewLeasesRequest& request, v1::RenewLeasesReply* reply,
                      Batch& batch);
void KeepOwnTenant(const rpc::Caller& caller, v1::ListTenantsReply* reply);

// Runs what the caller may ask. Its role was checked (CheckRole).
template <class Request, class Reply>
Status RunFor(const rpc::Caller& caller, Engine& engine, const Request& request, Reply* reply,
              Batch& batch) {
  constexpr size_t kRow = CallerRuleOf(kRpcOf<Request>);
  static_assert(kRow < std::size(kCallerRules), "every RPC has a row in kCallerRules");
  constexpr Owner kOwner = kCallerRules[kRow].owner;
  if (!caller.tenant_id) return engine.Run(request, reply, batch);
  const weights::Catalog& weights = engine.state().weights;
  if constexpr (kOwner == Owner::kLeases) {
    return RenewOwnLeases(caller, engine, request, reply, batch);
  } else if constexpr (kOwner == Owner::kLease) {
    const Status own = CheckLease(caller, model::LeaseId(request.lease_id()), weights);
    // As the engine answers the release of a lease that has ended.
    if (std::is_same_v<Request, v1::ReleaseLeaseRequest> && !own.ok()) return OkStatus();
    MC_RETURN_IF_ERROR(own);
  } else if constexpr (kOwner == Owner::kImport) {
    MC_RETURN_IF_ERROR(CheckImport(caller, model::ImportId(request.import_id()), weights));
  } else if constexpr (kOwner == Owner::kIdentity) {
    MC_RETURN_IF_ERROR(CheckTenant(caller, request.identity().tenant_id()));
  } else if constexpr (kOwner == Owner::kTenant) {
    MC_RETURN_IF_ERROR(CheckTenant(caller, request.tenant_id()));
  }
  MC_RETURN_IF_ERROR(engine.Run(request, reply, batch));
  if constexpr (std::is_same_v<Reply, v1::ListTenantsReply>) KeepOwnTenant(caller, reply);
  return OkStatus();
}

}  // namespace mooncake::master
