"""What every placement, runtime binding and stored manifest offers, whatever its resource kind.

Structural types only: concrete manifests do not inherit from them.
"""

from typing import Protocol

from mooncake.reshard.contracts.identity import (
    LeaseId,
    PlacementId,
    ResourceId,
    ResourceKind,
    RuntimeInstanceId,
)


class ResourceManifest(Protocol):
    """Anything that names the resource it describes."""

    @property
    def resource_id(self) -> ResourceId: ...

    @property
    def resource_kind(self) -> ResourceKind: ...


class PlacementManifest(ResourceManifest, Protocol):
    """How a resource is cut over participants, free of addresses."""

    @property
    def placement_id(self) -> PlacementId: ...

    @property
    def digest(self) -> str: ...


class RuntimeBindingManifest(ResourceManifest, Protocol):
    """Where one participant's fragments of a placement live right now."""

    @property
    def placement_id(self) -> PlacementId: ...

    @property
    def placement_digest(self) -> str: ...

    @property
    def instance_id(self) -> RuntimeInstanceId: ...

    @property
    def generation(self) -> int: ...

    @property
    def lease_id(self) -> LeaseId: ...


class StoredResourceManifest(ResourceManifest, Protocol):
    """What a store holds of a resource, and under which keys."""

    @property
    def namespace(self) -> str: ...

    @property
    def group_id(self) -> str: ...

    @property
    def manifest_key(self) -> str: ...

    @property
    def created_at(self) -> str: ...


def validate_resource_binding_identity(
    placement: PlacementManifest, binding: RuntimeBindingManifest
) -> None:
    """Raises ValueError unless `binding` was made for exactly `placement`."""
    if placement.resource_kind != binding.resource_kind:
        raise ValueError("placement and runtime binding resource_kind differ")
    if placement.resource_id != binding.resource_id:
        raise ValueError("placement and runtime binding resource_id differ")
    if placement.placement_id != binding.placement_id:
        raise ValueError("placement_id and runtime binding placement_id differ")
    if placement.digest != binding.placement_digest:
        raise ValueError("placement digest and runtime binding placement digest differ")
