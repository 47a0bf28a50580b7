"""Placements from columns: what an adapter of a large model builds, without one object a fragment.

A column of numbers is anything with the buffer protocol (numpy arrays, array.array) and an integer
type of 1, 2, 4 or 8 bytes, or a sequence of ints. Ragged columns (shapes, offsets) are flat: the
first tensor's extents, then the second's, and so on.

The extended forms (docs/extended_forms.md) have columns too: what many tensors have in common is
in an `ExtendedKind`, who holds what of an owned tensor follows from the fragments.
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
    """What many ExtendedTensors have in common.

    `owned`: explicit ownership, which is what the tensors' fragments say (see `tiling_of`); there
    are no parallel axes then. `block_shape` and `shareable` are those of BlockScales; each tensor's
    scales are named by `TensorColumns.scale_of`. The other fields are ExtendedTensor's.
    """

    owned: bool = False
    padded_shape: Optional[tuple[int, ...]] = None
    sections: Optional[Sections] = None
    block_shape: Optional[tuple[int, ...]] = None
    shareable: bool = True
    packing: Optional[Packing] = None


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
    scale_of: Optional[IntColumn] = None  # row of the tensor's block scales, -1: none


@dataclass(frozen=True)
class FragmentColumns:
    """One row a fragment, in any order. Byte sizes follow from the shapes.

    The rows of an owned tensor are its ownership: each box with everyone who has a row of it, and a
    row more for each further copy on one participant (told apart by `slots`). Where replicas are
    cut differently, `tiling_of` says which of the tensor's tilings a row belongs to. An extent of 0
    is an empty shard.
    """

    tensor_of: IntColumn  # row of the tensor
    participant_of: IntColumn  # index into the topology's participants
    offsets: IntColumn  # flat
    shapes: IntColumn  # flat
    pipeline_stage_ids: Optional[IntColumn] = None  # -1: none
    alias_groups: Sequence[Sequence[str]] = ()
    alias_group_of: Optional[IntColumn] = None  # index into `alias_groups`, -1: none
    slots: Optional[IntColumn] = None  # place in a grouped buffer (ExtendedFragment), -1: none
    tiling_of: Optional[IntColumn] = None  # number of the tiling within its tensor; absent: all 0


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
    """The placement that `from_fragments` would build from the same rows, with the same ids.

    `omitted_tensors` are left out on purpose, as by `omit_tensors`.
    """
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
