"""Complete placements: how a parallel run holds a model, free of addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from mooncake import _core
from mooncake.reshard.contracts import (
    PlacementId,
    PlacementSetId,
    ResourceId,
    ResourceKind,
    RevisionId,
    TensorId,
)
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight.part import WeightPlacementPart
from mooncake.reshard.weight.topology import ParallelTopology
from mooncake.reshard.weight.types import PlacementFragment, TensorDescriptor


@dataclass(frozen=True, init=False)
class WeightPlacementManifest:
    """Every participant's part, proved to hold each tensor completely.

    Its id is derived from its content; one that is given must equal it. The content lives in C++;
    `parts`, `tensors` and `fragments` make their items on access where nobody has made them yet.
    """

    resource_id: ResourceId
    placement_id: PlacementId
    revision: RevisionId
    weight_generation: int
    placement_set_id: PlacementSetId
    topology: ParallelTopology
    parts: tuple[WeightPlacementPart, ...]
    tensors: tuple[TensorDescriptor, ...]
    fragments: tuple[PlacementFragment, ...]
    _digest_cache: Optional[str] = field(default=None, init=False, repr=False, compare=False)

    def __init__(
        self,
        *,
        resource_id: ResourceId,
        revision: RevisionId,
        weight_generation: int,
        placement_set_id: PlacementSetId,
        topology: ParallelTopology,
        parts: Sequence[WeightPlacementPart],
        placement_id: Optional[PlacementId] = None,
    ) -> None:
        handle, made_parts, tensors, fragments = _core.make_placement(
            resource_id,
            revision,
            weight_generation,
            placement_set_id,
            topology,
            parts,
            placement_id,
        )
        self._adopt(handle, topology, made_parts, tensors, fragments)

    @classmethod
    def from_fragments(
        cls,
        *,
        resource_id: ResourceId,
        revision: RevisionId,
        weight_generation: int,
        placement_set_id: PlacementSetId,
        topology: ParallelTopology,
        tensors: Sequence[TensorDescriptor],
        fragments: Sequence[PlacementFragment],
        placement_id: Optional[PlacementId] = None,
    ) -> WeightPlacementManifest:
        """From one inventory for all participants: a fragment belongs to whoever has its rank."""
        handle, made_tensors, made_fragments = _core.make_placement_from_fragments(
            resource_id,
            revision,
            weight_generation,
            placement_set_id,
            topology,
            tensors,
            fragments,
            placement_id,
        )
        self = object.__new__(cls)
        self._adopt(handle, topology, _lazy_parts(handle), made_tensors, made_fragments)
        return self

    @classmethod
    def _of(
        cls, handle: _core.Placement, topology: Optional[ParallelTopology] = None
    ) -> WeightPlacementManifest:
        """The Python face of a checked C++ placement."""
        self = object.__new__(cls)
        self._adopt(
            handle,
            handle.topology() if topology is None else topology,
            _lazy_parts(handle),
            LazyTuple.over(handle.tensor_count, handle.tensors),
            LazyTuple.over(handle.fragment_count, handle.fragments),
        )
        return self

    def _adopt(
        self,
        handle: _core.Placement,
        topology: ParallelTopology,
        parts: tuple[WeightPlacementPart, ...],
        tensors: tuple[TensorDescriptor, ...],
        fragments: tuple[PlacementFragment, ...],
    ) -> None:
        vars(self).update(
            resource_id=handle.resource_id,
            placement_id=handle.placement_id,
            revision=handle.revision,
            weight_generation=handle.weight_generation,
            placement_set_id=handle.placement_set_id,
            topology=topology,
            parts=parts,
            tensors=tensors,
            fragments=fragments,
            _digest_cache=None,
            _handle=handle,
        )

    @property
    def resource_kind(self) -> ResourceKind:
        return ResourceKind.MODEL_WEIGHT

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the placement's JSON."""
        if self._digest_cache is None:
            vars(self)["_digest_cache"] = vars(self)["_handle"].digest
        digest: str = vars(self)["_digest_cache"]
        return digest

    @property
    def geometry_digest(self) -> str:
        """SHA-256, in hex, of what plans depend on: equal for generations that are cut alike."""
        digest: str = vars(self)["_handle"].geometry_digest
        return digest

    @property
    def extended(self) -> bool:
        """Whether it uses an extended form (mooncake.reshard.weight.extended)."""
        extended: bool = vars(self)["_handle"].extended
        return extended

    @property
    def omitted_tensors(self) -> tuple[TensorId, ...]:
        """Tensors of the resource that are left out on purpose."""
        omitted: tuple[TensorId, ...] = vars(self)["_handle"].omitted_tensors()
        return omitted

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        equal: bool = vars(self)["_handle"] == vars(other)["_handle"]
        return equal

    def __hash__(self) -> int:
        return hash((self.resource_id, self.placement_id))  # the id covers all content

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_json, (vars(self)["_handle"].to_json(),)


def _lazy_parts(handle: _core.Placement) -> LazyTuple:
    return LazyTuple.over(
        handle.part_count,
        lambda begin, end: [WeightPlacementPart._of(handle, i) for i in range(begin, end)],
    )


def _from_json(text: str) -> WeightPlacementManifest:
    return WeightPlacementManifest._of(_core.placement_from_json(text))
