// The canonical bytes of the public reshard contracts and the ids and digests made from them.
//
// Pure functions of values made by validate.h; they check nothing. Canonical JSON: keys sorted at
// every level, no whitespace, plain decimal integers. Placements escape every character outside
// 0x20..0x7e; stored manifests keep UTF-8 as it is. Published ids depend on these bytes: they never
// change (tests/golden/reshard_vectors.json).
#pragma once

#include <string>

#include "manifest/types.h"

namespace mooncake::manifest {

// "sha256:" + 64 hex characters. `topology.topology_id` is not read.
std::string TopologyId(const ParallelTopology& topology);

// "sha256:" + 64 hex characters. `fragment.placement_fragment_id` is not read.
std::string PlacementFragmentId(const PlacementFragment& fragment);

// "sha256:" + 64 hex characters. `placement.placement_id` is not read.
std::string PlacementId(const Placement& placement);

std::string PlacementToJson(const Placement& placement);
// 64 hex characters: SHA-256 of PlacementToJson, without building the text. A made placement holds
// it as `digest`.
std::string PlacementDigest(const Placement& placement);

// 64 hex characters: SHA-256 of the canonical {"parts", "placement_geometry": 1, "tensors",
// "topology"} and the extended root keys, so equal for two generations that are cut alike. A made
// placement holds it as `geometry_digest`.
std::string PlacementGeometryDigest(const Placement& placement);

std::string StoredManifestToJson(const StoredManifest& manifest);
// 64 hex characters: SHA-256 of StoredManifestToJson. A made manifest holds it as
// `manifest_digest`.
std::string StoredManifestDigest(const StoredManifest& manifest);
// 64 hex characters: the same for stored manifests, of {"fragments", "stored_geometry": 1,
// "tensors"} with object keys below <group>/payload/. Order counts, as it does in the manifest.
std::string StoredGeometryDigest(const StoredManifest& manifest);

}  // namespace mooncake::manifest
