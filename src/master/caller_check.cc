#include "master/caller_check.h"

#include <fmt/format.h>

#include "base/url_encode.h"
#include "rpc/status_proto.h"

namespace mooncake::master {
namespace {

#define MOONCAKE_CHECK_ROW(Rpc) \
  static_assert(CallerRuleOf(#Rpc) < std::size(kCallerRules), #Rpc " has no row in kCallerRules");
MOONCAKE_MASTER_RPCS(MOONCAKE_CHECK_ROW)
#undef MOONCAKE_CHECK_ROW

bool Admits(For callers, rpc::Role role) {
  switch (role) {
    case rpc::Role::kOperator:
      return true;
    case rpc::Role::kClient:
      return callers == For::kClients || callers == For::kAll;
    case rpc::Role::kNode:
      return callers == For::kNodes || callers == For::kAll;
  }
  return false;
}

std::string_view WhoMay(For callers) {
  switch (callers) {
    case For::kClients:
      return "clients and operators";
    case For::kNodes:
      return "nodes and operators";
    case For::kOperators:
      return "operators";
    case For::kAll:
      break;
  }
  return "everybody";
}

Status AsEnded(model::LeaseId id) {
  return LeaseExpired(fmt::format("lease {} has ended", id.value));
}

}  // namespace

Status CheckRole(const rpc::Caller& caller, std::string_view rpc) {
  const CallerRule* rule = FindCallerRule(rpc);
  if (rule == nullptr) return PermissionDenied(fmt::format("{} is nobody's to ask", rpc));
  if (Admits(rule->callers, caller.role)) return OkStatus();
  return PermissionDenied(
      fmt::format("{} is for {}, got {}", rpc, WhoMay(rule->callers), Describe(caller)));
}

Status CheckTenant(const rpc::Caller& caller, std::string_view tenant_id) {
  if (caller.MayName(tenant_id)) return OkStatus();
  return PermissionDenied(
      fmt::format("{} may not name tenant \"{}\"", Describe(caller), tenant_id));
}

Status CheckImport(const rpc::Caller& caller, model::ImportId id, const weights::Catalog& weights) {
  const weights::Revision* revision = weights.FindImport(id);
  const weights::Abort* abort = revision == nullptr ? weights.FindAbort(id) : nullptr;
  const bool own = (revision != nullptr && caller.MayName(revision->identity.tenant_id)) ||
                   (abort != nullptr && caller.MayName(abort->tenant_id));
  if (own) return OkStatus();
  return NotFound(fmt::format("no import {}", id.value));
}

Status CheckLease(const rpc::Caller& caller, model::LeaseId id, const weights::Catalog& weights) {
  const weights::Lease* lease = weights.FindLease(id);
  if (lease == nullptr) return OkStatus();
  const weights::Revision* revision = weights.FindImport(lease->import_id);
  if (revision != nullptr && caller.MayName(revision->identity.tenant_id)) return OkStatus();
  return AsEnded(id);
}

std::string CommandClientId(const rpc::Caller& caller, std::string_view client_id) {
  if (!caller.tenant_id) return std::string(client_id);
  return fmt::format("{}@{}", client_id, UrlEncode(*caller.tenant_id));
}

Status RenewOwnLeases(const rpc::Caller& caller, Engine& engine,
                      const v1::RenewLeasesRequest& request, v1::RenewLeasesReply* reply,
                      Batch& batch) {
  v1::RenewLeasesRequest own;
  v1::RenewLeasesReply renewed;
  // One per lease; OK: it is the next of `own`.
  std::vector<Status> checked;
  for (const uint64_t number : request.lease_ids()) {
    const model::LeaseId id(number);
    checked.push_back(CheckLease(caller, id, engine.state().weights));
    if (checked.back().ok()) own.add_lease_ids(number);
  }
  MC_RETURN_IF_ERROR(engine.Run(own, &renewed, batch));
  int next = 0;
  for (const Status& status : checked) {
    if (status.ok()) {
      *reply->add_leases() = renewed.leases(next++);
    } else {
      rpc::SetStatus(reply->add_leases(), status);
    }
  }
  return OkStatus();
}

void KeepOwnTenant(const rpc::Caller& caller, v1::ListTenantsReply* reply) {
  auto* tenants = reply->mutable_tenants();
  int kept = 0;
  for (int i = 0; i < tenants->size(); ++i) {
    if (!caller.MayName(tenants->Get(i).quota().tenant_id())) continue;
    tenants->SwapElements(i, kept++);
  }
  tenants->DeleteSubrange(kept, tenants->size() - kept);
}

}  // namespace mooncake::master
