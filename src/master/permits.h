// Permits: the grants and node addresses that one reply carries, each once.
//
// A grant is only made for a node that is registered and alive, with the key it registered with.
// Single-threaded; lives for one request.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "master/node_registry.h"
#include "model/grant.h"
#include "mooncake/v1/types.pb.h"
#include "objects/catalog.h"

namespace mooncake::master {

class Permits {
 public:
  using Grants = google::protobuf::RepeatedPtrField<v1::Grant>;
  using Addresses = google::protobuf::RepeatedPtrField<v1::NodeAddress>;

  // All grants are for this tenant and import.
  Permits(const objects::Catalog& catalog, const NodeRegistry& registry, std::string tenant_id,
          model::ImportId import_id, Grants* grants, Addresses* addresses)
      : catalog_(catalog),
        registry_(registry),
        tenant_id_(std::move(tenant_id)),
        import_id_(import_id),
        grants_(grants),
        addresses_(addresses) {}

  // kRead or kWrite. UNAVAILABLE: its node is not here (yet, or any more). NOT_READY: its memory is
  // lost.
  Status AddArena(model::ArenaId arena_id, model::Access access);
  // kMetadataRead or kMetadataWrite. UNAVAILABLE as above.
  Status AddMetadata(std::string_view node_id, model::Access access);

 private:
  Status Add(const objects::Node& node, const model::Grant& grant);

  const objects::Catalog& catalog_;
  const NodeRegistry& registry_;
  const std::string tenant_id_;
  const model::ImportId import_id_;
  Grants* const grants_;
  Addresses* const addresses_;
  std::set<model::ArenaId> arenas_;
  std::set<std::pair<std::string, model::Access>> metadata_nodes_;
  std::set<std::string, std::less<>> addressed_;
};

}  // namespace mooncake::master
