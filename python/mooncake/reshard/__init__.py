"""Placements, runtime bindings, stored manifests and the N-D planner (docs/contracts.md)."""

from mooncake.reshard.contracts import (
    PlacementManifest,
    ResourceKind,
    ResourceManifest,
    RuntimeBindingManifest,
)

__all__ = [
    "ResourceKind",
    "ResourceManifest",
    "PlacementManifest",
    "RuntimeBindingManifest",
]
