"""A straightforward planner of the base contract in pure Python: the baseline of `./x bench plan`.

It follows docs/contracts.md step by step: fragments by tensor in a dict, complete replicas, N-D
intersection, one canonical region for each pair of boxes. Source boxes are looked for by the first
dimension alone (sorted, bisected); nothing else is clever. Explicit ownership is not its business.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

__all__ = ["PlainSource", "Region", "plan"]


class Region(NamedTuple):
    """A region with the numbers of the contract's TransferRegion, and both fragment ids."""

    target: str
    target_base: int
    source: str
    source_base: int
    inner_bytes: int
    counts: tuple[int, ...]
    source_strides: tuple[int, ...]
    target_strides: tuple[int, ...]


class _Tiling(NamedTuple):
    """One replica of a tensor: distinct boxes by offset, the extent of the longest first side."""

    begins: list[int]
    fragments: list[Any]
    longest: int


class PlainSource:
    """The fragments of a source placement, by tensor and dp rank."""

    def __init__(self, placement: Any) -> None:
        volumes = {t.tensor_id: math.prod(t.global_shape) for t in placement.tensors}
        self.itemsizes = {t.tensor_id: t.itemsize for t in placement.tensors}
        # The first of equal boxes by (dp, pp, ep, tp, fragment id).
        first: dict[tuple, Any] = {}
        for fragment in placement.fragments:
            rank = fragment.rank
            key = (fragment.tensor_id, rank.dp, fragment.global_offset, fragment.local_shape)
            known = first.get(key)
            if known is None or _order(fragment) < _order(known):
                first[key] = fragment
        groups: dict[tuple[str, int], list[Any]] = {}
        for (tensor, dp, _, _), fragment in first.items():
            groups.setdefault((tensor, dp), []).append(fragment)
        self._tilings: dict[tuple[str, int], _Tiling] = {}
        incomplete = set()
        dps = {fragment.rank.dp for fragment in first.values()}
        for dp in dps:
            for tensor, volume in volumes.items():
                held = groups.get((tensor, dp), [])
                if sum(math.prod(f.local_shape) for f in held) != volume:
                    incomplete.add(dp)
                    continue
                held.sort(key=lambda f: f.global_offset)
                self._tilings[tensor, dp] = _Tiling(
                    [f.global_offset[0] for f in held], held, max(f.local_shape[0] for f in held)
                )
        self._complete = sorted(dps - incomplete)
        if not self._complete:
            raise ValueError("the source has no complete replica")

    def tiling_for(self, tensor: str, replica: int) -> _Tiling:
        """What the target's replica of that number reads."""
        return self._tilings[tensor, self._complete[replica % len(self._complete)]]


def _order(fragment: Any) -> tuple:
    rank = fragment.rank
    return rank.dp, rank.pp, rank.ep, rank.tp, fragment.placement_fragment_id


def plan(
    source: PlainSource, target: Any, fragments: Optional[Iterable[Any]] = None
) -> list[Region]:
    """The regions that fill `fragments` (default: all of the target's), in the contract's order."""
    dps = sorted({part.rank.dp for part in target.parts if len(part.fragments)})
    replicas = {dp: number for number, dp in enumerate(dps)}
    regions: list[Region] = []
    for fragment in target.fragments if fragments is None else fragments:
        tiling = source.tiling_for(fragment.tensor_id, replicas[fragment.rank.dp])
        itemsize = source.itemsizes[fragment.tensor_id]
        covered = 0
        for held in _candidates(tiling, fragment):
            overlap = _intersect(held, fragment)
            if overlap is not None:
                covered += math.prod(overlap[1])
                regions.append(_region(held, fragment, *overlap, itemsize))
        if covered != math.prod(fragment.local_shape):
            raise ValueError(f"target fragment is not fully covered: {fragment.tensor_id}")
    regions.sort(key=lambda r: (r.target, r.target_base, r.source, r.source_base))
    return regions


def _candidates(tiling: _Tiling, fragment: Any) -> Sequence[Any]:
    """The source fragments whose first dimension may reach the target's."""
    begin = fragment.global_offset[0]
    first = bisect_right(tiling.begins, begin - tiling.longest)
    return tiling.fragments[first : bisect_left(tiling.begins, begin + fragment.local_shape[0])]


def _intersect(a: Any, b: Any) -> Optional[tuple[tuple[int, ...], tuple[int, ...]]]:
    offset, shape = [], []
    for p, n, q, m in zip(
        a.global_offset, a.local_shape, b.global_offset, b.local_shape, strict=True
    ):
        begin, end = max(p, q), min(p + n, q + m)
        if begin >= end:
            return None
        offset.append(begin)
        shape.append(end - begin)
    return tuple(offset), tuple(shape)


def _region(
    source: Any, target: Any, offset: tuple[int, ...], shape: tuple[int, ...], itemsize: int
) -> Region:
    bases, strides = [], []
    for fragment in (source, target):
        steps, step = [], itemsize
        for extent in reversed(fragment.local_shape):
            steps.append(step)
            step *= extent
        steps.reverse()
        strides.append(steps)
        bases.append(
            sum((o - f) * s for o, f, s in zip(offset, fragment.global_offset, steps, strict=True))
        )
    # Trailing dimensions are one run while both sides are dense there.
    inner, dim = itemsize, len(shape)
    while dim > 0 and strides[0][dim - 1] == inner and strides[1][dim - 1] == inner:
        dim -= 1
        inner *= shape[dim]
    loops = range(dim)
    return Region(
        target.placement_fragment_id,
        bases[1],
        source.placement_fragment_id,
        bases[0],
        inner,
        tuple(shape[d] for d in loops),
        tuple(strides[0][d] for d in loops),
        tuple(strides[1][d] for d in loops),
    )
