"""One participant's share of a placement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mooncake import _core
from mooncake.reshard.contracts import (
    ParticipantId,
    PlacementSetId,
    ResourceId,
    RevisionId,
    TopologyId,
)
from mooncake.reshard.lazy_tuple import LazyTuple
from mooncake.reshard.weight.types import ParallelRank, PlacementFragment, TensorDescriptor


@dataclass(frozen=True)
class WeightPlacementPart:
    """What one participant holds: possibly nothing, or only pieces of its tensors.

    Tensors are sorted by tensor_id, fragments by placement_fragment_id.
    """

    resource_id: ResourceId
    revision: RevisionId
    weight_generation: int
    placement_set_id: PlacementSetId
    topology_id: TopologyId
    participant_id: ParticipantId
    rank: ParallelRank
    tensors: tuple[TensorDescriptor, ...]
    fragments: tuple[PlacementFragment, ...]

    def __post_init__(self) -> None:
        _core.check_placement_part(self)

    @classmethod
    def _of(cls, placement: _core.Placement, index: int) -> WeightPlacementPart:
        """Part `index` of a checked placement; its items are made on access."""
        self = object.__new__(cls)
        fields: dict[str, Any] = placement.part(index)
        fields["tensors"] = LazyTuple.over(
            placement.part_tensor_count(index),
            lambda begin, end: placement.part_tensors(index, begin, end),
        )
        fields["fragments"] = LazyTuple.over(
            placement.part_fragment_count(index),
            lambda begin, end: placement.part_fragments(index, begin, end),
        )
        vars(self).update(fields)
        return self
