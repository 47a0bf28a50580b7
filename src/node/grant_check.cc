#include "node/grant_check.h"

namespace mooncake::node {
namespace {

Status CheckInstance(const GrantAuthority& authority, const std::string& instance_id,
                     const char* what) {
  if (instance_id == authority.instance_id) return OkStatus();
  return Unavailable("node " + authority.node_id + " is instance " + authority.instance_id +
                     ", the " + what + " is for instance " + instance_id);
}

}  // namespace

Result<model::Grant> CheckGrant(const GrantAuthority& authority, const v1::Grant& grant,
                                model::Access wanted) {
  MC_RETURN_IF_ERROR(CheckInstance(authority, grant.instance_id(), "grant"));
  model::Grant checked;
  MC_ASSIGN_OR_RETURN(checked.access, model::AccessFromNumber(grant.access()));
  checked.instance_id = grant.instance_id();
  checked.tenant_id = grant.tenant_id();
  checked.import_id = model::ImportId(grant.import_id());
  checked.arena_id = model::ArenaId(grant.arena_id());
  checked.arena_bytes = grant.arena_bytes();
  if (!model::GrantMacMatches(authority.key, checked, grant.mac())) {
    return InvalidArgument("the grant of " + std::string(model::Name(checked.access)) +
                           " on import " + std::to_string(checked.import_id.value) +
                           " is not authentic");
  }
  if (checked.access != wanted) {
    return InvalidArgument("expected a grant of " + std::string(model::Name(wanted)) + ", got " +
                           std::string(model::Name(checked.access)));
  }
  return checked;
}

Result<model::ExtentPermit> CheckPermit(const GrantAuthority& authority,
                                        const v1::ExtentPermit& permit) {
  MC_RETURN_IF_ERROR(CheckInstance(authority, permit.instance_id(), "permit"));
  model::ExtentPermit checked;
  checked.instance_id = permit.instance_id();
  checked.tenant_id = permit.tenant_id();
  checked.slab_id = model::ArenaId(permit.slab_id());
  checked.slab_bytes = permit.slab_bytes();
  checked.offset = permit.offset();
  checked.bytes = permit.bytes();
  checked.object_id = model::ObjectId(permit.object_id());
  if (!model::PermitMacMatches(authority.key, checked, permit.mac())) {
    return InvalidArgument("the permit for object " + std::to_string(checked.object_id.value) +
                           " at " + std::to_string(checked.offset) + " of slab " +
                           std::to_string(checked.slab_id.value) + " is not authentic");
  }
  return checked;
}

}  // namespace mooncake::node
