"""Boxes of whole numbers: containment, overlap, exact cover. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from mooncake import _core

__all__ = [
    "LogicalBox",
    "OverlapRegion",
    "box_contains",
    "boxes_exactly_cover",
    "boxes_overlap",
    "regions_exactly_cover",
]

# Boxes of three and more dimensions are compared pairwise along the first one, at most so often.
_MAX_HIGH_DIMENSIONAL_PAIRWISE_COMPARISONS = 1_000_000

Offset = Sequence[int]
Shape = Sequence[int]


class LogicalBox(Protocol):
    """Anything that covers a box of a tensor: placement and stored fragments do."""

    @property
    def global_offset(self) -> tuple[int, ...]: ...

    @property
    def local_shape(self) -> tuple[int, ...]: ...


class OverlapRegion(Protocol):
    """Anything that fills a part of a target box: transfer regions do."""

    @property
    def overlap_offset(self) -> tuple[int, ...]: ...

    @property
    def overlap_shape(self) -> tuple[int, ...]: ...


def box_contains(
    outer_offset: Offset, outer_shape: Shape, inner_offset: Offset, inner_shape: Shape
) -> bool:
    """Whether every element of the inner box is one of the outer box's."""
    return _core.box_contains(outer_offset, outer_shape, inner_offset, inner_shape)


def boxes_overlap(boxes: Iterable[tuple[Offset, Shape]]) -> bool:
    """Whether some two of the (offset, shape) boxes share an element.

    ValueError when boxes of three or more dimensions need more comparisons than the budget.
    """
    return _core.boxes_overlap(boxes, _MAX_HIGH_DIMENSIONAL_PAIRWISE_COMPARISONS)


def boxes_exactly_cover(
    container_offset: Offset, container_shape: Shape, boxes: Iterable[tuple[Offset, Shape]]
) -> bool:
    """Whether the (offset, shape) boxes are disjoint, inside the container, and fill it."""
    return _core.boxes_exactly_cover(
        container_offset, container_shape, boxes, _MAX_HIGH_DIMENSIONAL_PAIRWISE_COMPARISONS
    )


def regions_exactly_cover(target: LogicalBox, regions: Iterable[OverlapRegion]) -> bool:
    """Whether the regions' overlap boxes are disjoint, inside `target`'s box, and fill it."""
    return boxes_exactly_cover(
        target.global_offset,
        target.local_shape,
        [(region.overlap_offset, region.overlap_shape) for region in regions],
    )
