// Grants and permits for tests: what the Master makes of the instance and key that a node
// registered.
#pragma once

#include <string>

#include "model/grant.h"
#include "mooncake/v1/types.pb.h"
#include "node/node.h"

namespace mooncake::node {

struct GrantSpec {
  v1::Access access = v1::ACCESS_WRITE;
  uint64_t import_id = 1;
  uint64_t arena_id = 0;
  uint64_t bytes = 0;
  std::string tenant = "default";
};

inline v1::Grant MakeGrant(const Node& node, const GrantSpec& spec) {
  v1::Grant grant;
  grant.set_instance_id(node.instance_id());
  grant.set_tenant_id(spec.tenant);
  grant.set_import_id(spec.import_id);
  grant.set_arena_id(spec.arena_id);
  grant.set_arena_bytes(spec.bytes);
  grant.set_access(spec.access);
  const model::Grant plain{.instance_id = node.instance_id(),
                           .tenant_id = spec.tenant,
                           .import_id = model::ImportId(spec.import_id),
                           .arena_id = model::ArenaId(spec.arena_id),
                           .arena_bytes = spec.bytes,
                           .access = static_cast<model::Access>(spec.access)};
  const Sha256Digest mac = model::GrantMac(node.grant_key(), plain);
  grant.set_mac(mac.data(), mac.size());
  return grant;
}

struct PermitSpec {
  uint64_t slab_id = 100;
  uint64_t slab_bytes = 1 << 20;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t object_id = 0;
  std::string tenant = "default";
};

inline v1::ExtentPermit MakePermit(const Node& node, const PermitSpec& spec) {
  v1::ExtentPermit permit;
  permit.set_instance_id(node.instance_id());
  permit.set_tenant_id(spec.tenant);
  permit.set_slab_id(spec.slab_id);
  permit.set_slab_bytes(spec.slab_bytes);
  permit.set_offset(spec.offset);
  permit.set_bytes(spec.bytes);
  permit.set_object_id(spec.object_id);
  const model::ExtentPermit plain{.instance_id = node.instance_id(),
                                  .tenant_id = spec.tenant,
                                  .slab_id = model::ArenaId(spec.slab_id),
                                  .slab_bytes = spec.slab_bytes,
                                  .offset = spec.offset,
                                  .bytes = spec.bytes,
                                  .object_id = model::ObjectId(spec.object_id)};
  const Sha256Digest mac = model::PermitMac(node.grant_key(), plain);
  permit.set_mac(mac.data(), mac.size());
  return permit;
}

inline v1::Grant MakeSlabGrant(const Node& node, const PermitSpec& spec) {
  return MakeGrant(node, {.access = v1::ACCESS_SLAB_READ,
                          .import_id = 0,
                          .arena_id = spec.slab_id,
                          .bytes = spec.slab_bytes,
                          .tenant = spec.tenant});
}

}  // namespace mooncake::node
