"""Runtime bindings: where one participant's fragments live right now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mooncake import _core
from mooncake.reshard.contracts import (
    LeaseId,
    ParticipantId,
    PlacementId,
    ResourceId,
    ResourceKind,
    RevisionId,
    RuntimeBindingFragment,
    RuntimeInstanceId,
)


@dataclass(frozen=True)
class WeightRuntimeBindingManifest:
    """The addresses of one participant's fragments, sorted by placement_fragment_id.

    Made for exactly one placement (`placement_digest`); moving memory needs a new binding, never a
    new plan. Keeps the fragments' owners alive.
    """

    resource_id: ResourceId
    placement_id: PlacementId
    placement_digest: str
    instance_id: RuntimeInstanceId
    generation: int
    lease_id: LeaseId
    revision: RevisionId
    participant_id: ParticipantId
    fragments: tuple[RuntimeBindingFragment, ...]

    def __post_init__(self) -> None:
        vars(self)["_handle"] = _core.make_runtime_binding(self)

    @property
    def resource_kind(self) -> ResourceKind:
        return ResourceKind.MODEL_WEIGHT

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.resource_id,
            self.placement_id,
            self.placement_digest,
            self.instance_id,
            self.generation,
            self.lease_id,
            self.revision,
            self.participant_id,
            self.fragments,
        )
