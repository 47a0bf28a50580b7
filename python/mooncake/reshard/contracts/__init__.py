"""Contracts shared by every kind of resource: identities, manifest protocols, live memory."""

from mooncake.reshard.contracts.identity import (
    LeaseId,
    ParticipantId,
    PlacementFragmentId,
    PlacementId,
    PlacementSetId,
    ResourceId,
    ResourceKind,
    RevisionId,
    RuntimeFragmentId,
    RuntimeInstanceId,
    StoredFragmentId,
    TensorId,
    TopologyId,
)
from mooncake.reshard.contracts.manifests import (
    PlacementManifest,
    ResourceManifest,
    RuntimeBindingManifest,
    StoredResourceManifest,
    validate_resource_binding_identity,
)
from mooncake.reshard.contracts.runtime import RuntimeBindingFragment

__all__ = [
    "LeaseId",
    "ParticipantId",
    "PlacementFragmentId",
    "PlacementId",
    "PlacementManifest",
    "PlacementSetId",
    "ResourceId",
    "ResourceKind",
    "ResourceManifest",
    "RevisionId",
    "RuntimeBindingManifest",
    "RuntimeBindingFragment",
    "RuntimeFragmentId",
    "RuntimeInstanceId",
    "StoredFragmentId",
    "TensorId",
    "TopologyId",
    "StoredResourceManifest",
    "validate_resource_binding_identity",
]
