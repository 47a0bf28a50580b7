"""The extended forms: layouts that the base contract has no way to say (docs/extended_forms.md).

Each class is its base's in every use; what it says beyond the base is explicit in JSON and ids. The
rules are C++'s, as for the base; a violation is a ValueError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Optional

from mooncake import _core
from mooncake.reshard.contracts import ParticipantId, RuntimeBindingFragment, TensorId
from mooncake.reshard.geometry import boxes_overlap
from mooncake.reshard.weight.placement import WeightPlacementManifest
from mooncake.reshard.weight.storage_manifest import StoredFragment
from mooncake.reshard.weight.types import PlacementFragment, TensorDescriptor

__all__ = [
    "BlockScales",
    "ExtendedFragment",
    "ExtendedTensor",
    "OwnedBox",
    "Packing",
    "Section",
    "Sections",
    "SharedStoredFragment",
    "StridedBindingFragment",
    "logical_box",
    "omit_tensors",
    "own_boxes",
    "packed_box",
]

Box = tuple[tuple[int, ...], tuple[int, ...]]  # offset, shape


@dataclass(frozen=True)
class OwnedBox:
    """A box of a tensor and every participant that holds it; k times for one with k copies."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]
    owners: tuple[ParticipantId, ...]

    def __post_init__(self) -> None:
        _core.check_owned_box(self)


@dataclass(frozen=True)
class Section:
    """The part [begin, end) of a fused tensor's dimension."""

    name: str
    begin: int
    end: int

    def __post_init__(self) -> None:
        _core.check_section(self)


@dataclass(frozen=True)
class Sections:
    """Named parts that fill dimension `dim` in order; no fragment crosses from one to another."""

    dim: int
    parts: tuple[Section, ...]

    def __post_init__(self) -> None:
        _core.check_sections(self)


@dataclass(frozen=True)
class BlockScales:
    """One element of tensor `scale_tensor_id` for each block of this one.

    `shareable` says that a fragment may begin inside a block; both sides then hold its scale.
    """

    scale_tensor_id: TensorId
    block_shape: tuple[int, ...]
    shareable: bool = True

    def __post_init__(self) -> None:
        _core.check_block_scales(self)


@dataclass(frozen=True)
class Packing:
    """An item of `itemsize` bytes holds `factor` elements along `dim`, of `extent` in all.

    Shapes and boxes of a packed tensor count items.
    """

    dim: int
    extent: int
    factor: int

    def __post_init__(self) -> None:
        _core.check_packing(self)


@dataclass(frozen=True)
class ExtendedTensor(TensorDescriptor):
    """A tensor that may be a scalar or empty, and says more than its parallel axes can.

    With `ownership` (tilings of owned boxes) there are no parallel axes; it is kept in canonical
    order. `padded_shape` is what the framework allocates, `global_shape` what counts.
    """

    ownership: tuple[tuple[OwnedBox, ...], ...] = ()
    padded_shape: Optional[tuple[int, ...]] = None
    sections: Optional[Sections] = None
    block_scales: Optional[BlockScales] = None
    packing: Optional[Packing] = None


@dataclass(frozen=True)
class ExtendedFragment(PlacementFragment):
    """A fragment of an ExtendedTensor: may be empty, may name its slot of a grouped buffer."""

    slot: Optional[int] = None


@dataclass(frozen=True)
class SharedStoredFragment(StoredFragment):
    """A stored fragment in the same bytes as the others of its alias group."""


@dataclass(frozen=True)
class StridedBindingFragment(RuntimeBindingFragment):
    """A view whose strides are what they say. `nbytes` counts its elements, not what it spans."""


def omit_tensors(
    placement: WeightPlacementManifest, tensor_ids: Sequence[TensorId]
) -> WeightPlacementManifest:
    """`placement` as a target that leaves out these tensors of the resource on purpose."""
    return WeightPlacementManifest._of(_core.omit_tensors(placement, tensor_ids))


def logical_box(
    global_shape: Sequence[int], padded_offset: Sequence[int], padded_shape: Sequence[int]
) -> Optional[Box]:
    """The part of a padded box that holds logical elements; None when there is none."""
    shape = tuple(
        min(begin + extent, whole) - begin
        for whole, begin, extent in zip(global_shape, padded_offset, padded_shape, strict=True)
    )
    return None if any(extent <= 0 for extent in shape) else (tuple(padded_offset), shape)


def packed_box(packing: Packing, offset: Sequence[int], shape: Sequence[int]) -> Box:
    """A box of elements as a box of items. ValueError when it would cut an item."""
    begin, end = offset[packing.dim], offset[packing.dim] + shape[packing.dim]
    for cut in (begin, end):
        if cut % packing.factor and cut != packing.extent:
            raise ValueError(
                f"a cut at element {cut} of dimension {packing.dim} is inside an item of "
                f"{packing.factor} elements"
            )
    first = begin // packing.factor
    items = -(-end // packing.factor) - first
    packed_offset = [*offset]
    packed_shape = [*shape]
    packed_offset[packing.dim], packed_shape[packing.dim] = first, items
    return tuple(packed_offset), tuple(packed_shape)


def own_boxes(
    held: Mapping[ParticipantId, Iterable[Box]],
) -> tuple[tuple[OwnedBox, ...], dict[ParticipantId, list[Box]]]:
    """One tiling from what each participant holds, and each one's boxes in it.

    Boxes that overlap are cut along each other's edges, so that a part which several hold becomes a
    box of its own with several owners; boxes that nobody else touches stay whole.
    """
    cells = {
        participant: [(tuple(offset), tuple(shape)) for offset, shape in group]
        for participant, group in held.items()
    }
    boxes = {box for group in cells.values() for box in group}
    if len(boxes) > 1 and boxes_overlap(boxes):
        clusters = _clusters(boxes)
        cells = {
            participant: [cell for box in group for cell in _cut(box, clusters[box])]
            for participant, group in cells.items()
        }
    owners: dict[Box, list[ParticipantId]] = {}
    for participant, group in cells.items():
        for cell in group:
            owners.setdefault(cell, []).append(participant)
    tiling = tuple(OwnedBox(*box, tuple(sorted(names))) for box, names in sorted(owners.items()))
    return tiling, cells


def _overlap(a: Box, b: Box) -> bool:
    return all(pa < pb + eb and pb < pa + ea for pa, ea, pb, eb in zip(*a, *b, strict=True))


def _clusters(boxes: set[Box]) -> dict[Box, list[Box]]:
    """Each box's cluster: all that its overlaps, and theirs, connect it with."""
    cluster_of: dict[Box, list[Box]] = {}
    rest = set(boxes)
    while rest:
        cluster = [rest.pop()]
        for box in cluster:  # grows while it is walked
            near = [other for other in rest if _overlap(box, other)]
            rest.difference_update(near)
            cluster += near
        cluster_of.update((box, cluster) for box in cluster)
    return cluster_of


def _cut(whole: Box, cluster: list[Box]) -> list[Box]:
    """`whole` along the edges of all boxes of its cluster."""
    cells: list[Box] = [((), ())]
    for dim, (begin, extent) in enumerate(zip(*whole, strict=True)):
        edges = {begin, begin + extent}
        for offset, shape in cluster:
            edges |= {
                edge
                for edge in (offset[dim], offset[dim] + shape[dim])
                if begin < edge < begin + extent
            }
        cuts = sorted(edges)
        cells = [
            ((*offset, a), (*shape, b - a)) for offset, shape in cells for a, b in pairwise(cuts)
        ]
    return cells
