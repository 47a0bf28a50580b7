#include "node/grant_check.h"

namespace mooncake::node {

Result<model::Grant> CheckGrant(const GrantAuthority& authority, const v1::Grant& grant,
                                model::Access wanted) {
  if (grant.instance_id() != authority.instance_id) {
    return Unavailable("node " + authority.node_id + " is instance " + authority.instance_id +
                       ", the grant is for instance " + grant.instance_id());
  }
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

}  // namespace mooncake::node
