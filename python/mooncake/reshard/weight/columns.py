"""Placements from columns: what an adapter of a large model builds, without one object a fragment.

A column of numbers is anything with the buffer protocol (numpy arrays, array.array) and an integer
type of 1, 2, 4 or 8 bytes, or a sequence of ints. Ragged columns (shapes, offsets) are flat: the
first tensor's extents, then the second's, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from mooncake import _core
from mooncake.reshard.contracts import PlacementSetId, ResourceId, RevisionId, TensorId
from mooncake.reshard.weight.extended import Packing, Sections
from mooncake.reshard.weight.placement import WeightPlacementManifest
from mooncake.reshard.weight.topology import ParallelTopology
from mooncake.reshard.weight.types import ParallelAxis

__all__ = [
    "ExtendedKind",
    "FragmentColumns",
    "IntColumn",
    "TensorColumns",
    "TensorKind",
    "placement_from_columns",
]

IntColumn = Any  # see above


@dataclass(frozen=True)
class TensorKind:
    """What many tensors have in common; `shard_dims` follow from the split axes."""

    dtype: str
    itemsize: int
    layout_fingerprint: str
    parallel_axes: tuple[ParallelAxis, ...] = ()


@dataclass(frozen=True)
class ExtendedKind(TensorKind):
    """What many tensors of the extended forms (docs/extended_forms.md) have in common.

    `owned` tensors have no parallel axes: their one tiling is what their fragments are, each box
    with all participants that hold it. So a box that nobody holds is refused, as is one that
    overlaps another; a holder that was left out is not seen. Tensors of a kind with a `block_shape`
    name the tensor of their scales in `TensorColumns.scale_of`.
    """

    owned: bool = False
    padded_shape: Optional[tuple[int, ...]] = None
    sections: Optional[Sections] = None
    packing: Optional[Packing] = None
    block_shape: Optional[tuple[int, ...]] = None
    shareable: bool = True


@dataclass(frozen=True)
class TensorColumns:
    """One row a tensor, in any order."""

    tensor_ids: Sequence[str]
    ranks: IntColumn  # number of dimensions
    shapes: IntColumn  # flat
    kinds: Sequence[TensorKind]
    kind_of: IntColumn  # index into `kinds`
    layer_ids: Optional[IntColumn] = None  # -1: none
    expert_ids: Optional[IntColumn] = None  # -1: none
    scale_of: Optional[IntColumn] = None  # row of the tensor of its block scales, -1: none


@dataclass(frozen=True)
class FragmentColumns:
    """One row a fragment, in any order. Byte sizes follow from the shapes."""

    tensor_of: IntColumn  # row of the tensor
    participant_of: IntColumn  # index into the topology's participants
    offsets: IntColumn  # flat
    shapes: IntColumn  # flat
    pipeline_stage_ids: Optional[IntColumn] = None  # -1: none
    alias_groups: Sequence[Sequence[str]] = ()
    alias_group_of: Optional[IntColumn] = None  # index into `alias_groups`, -1: none
    slots: Optional[IntColumn] = None  # of extended tensors' fragments, -1: none


def placement_from_columns(
    *,
    resource_id: ResourceId,
    revision: RevisionId,
    weight_generation: int,
    placement_set_id: PlacementSetId,
    topology: ParallelTopology,
    tensors: TensorColumns,
    fragments: FragmentColumns,
    omitted_tensors: Sequence[TensorId] = (),
) -> WeightPlacementManifest:
    """The placement that `from_fragments` would build from the same rows, with the same ids."""
    handle = _core.placement_from_columns(
        resource_id,
        revision,
        weight_generation,
        placement_set_id,
        topology,
        tensors,
        fragments,
        omitted_tensors,
    )
    return WeightPlacementManifest._of(handle, topology)
