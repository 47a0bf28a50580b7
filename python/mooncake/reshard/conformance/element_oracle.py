"""An oracle that knows nothing of planning: every element of a tensor is its own global index.

`what_is_wrong_with_plan` runs a plan on such tensors, region by region, and looks at every element
of every target fragment. Memory and time are those of the tensors' elements (8 bytes each): for
small models. `what_is_wrong_with_regions` needs no elements: it compares boxes, for any size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

import numpy

from mooncake.reshard.weight import LogicalTransferPlan, TensorDescriptor, TransferRegion

from .layouts import Box

__all__ = [
    "Wrong",
    "box_text",
    "index_bytes",
    "missing_boxes",
    "what_is_wrong_with_plan",
    "what_is_wrong_with_regions",
]


class Wrong(NamedTuple):
    """One place where a plan or a buffer is not what it must be."""

    tensor: str
    fragment_id: str
    box: str
    expected: str
    got: str


def box_text(offset: Sequence[int], shape: Sequence[int]) -> str:
    """ "[0:4, 8:16]" """
    return "[" + ", ".join(f"{o}:{o + n}" for o, n in zip(offset, shape, strict=True)) + "]"


def global_indices(global_shape: Sequence[int], offset: Sequence[int], shape: Sequence[int]):
    """The global index of each element of a box: an int64 array of `shape`."""
    index = numpy.zeros(tuple(shape), numpy.int64)
    for dim, (whole, begin, extent) in enumerate(zip(global_shape, offset, shape, strict=True)):
        steps = numpy.arange(begin, begin + extent, dtype=numpy.int64)
        around = [1] * len(shape)
        around[dim] = extent
        index = index * whole + steps.reshape(around)
    return index


def index_bytes(
    tensor_id: str, global_shape: Sequence[int], itemsize: int, box: Optional[Box] = None
) -> numpy.ndarray:
    """Content that names its place, for tests with real memory: uint8 of (*shape, itemsize).

    An element of 8 bytes is its global index plus the tensor's own number; a narrower one holds the
    low bytes of that number mixed, so that neighbours at any power of two differ.
    """
    offset, shape = box or ((0,) * len(global_shape), global_shape)
    salt = sum((i + 1) * byte for i, byte in enumerate(tensor_id.encode())) % 65521
    value = global_indices(global_shape, offset, shape).astype(numpy.uint64) + numpy.uint64(salt)
    if itemsize < 8:
        value = value * numpy.uint64(0x9E3779B97F4A7C15)
        value ^= value >> numpy.uint64(29)
    content = numpy.ascontiguousarray(value).view(numpy.uint8).reshape(*value.shape, 8)
    repeats = -(-itemsize // 8)
    return numpy.ascontiguousarray(numpy.tile(content, repeats)[..., :itemsize])


def what_is_wrong_with_plan(
    plan: LogicalTransferPlan, participant: Optional[str] = None
) -> list[Wrong]:
    """Runs the plan element by element. One entry for each target fragment that is not right.

    `participant`: the one that the plan is for; None for all of the target.
    """
    sources = {tensor.tensor_id: tensor for tensor in plan.source_tensors}
    targets = {tensor.tensor_id: tensor for tensor in plan.target_tensors}
    buffers: dict[str, numpy.ndarray] = {}
    cut: dict[str, numpy.ndarray] = {}
    writes: dict[str, int] = {}
    wrong = []
    fragments = _target_fragments(plan, participant)
    for fragment in fragments.values():
        buffers[fragment.fragment_id] = numpy.full(math.prod(fragment.local_shape), -1, numpy.int64)
        writes[fragment.fragment_id] = 0
    for region in plan.operations:
        source_tensor = sources[region.tensor_id]
        source = region.source
        if source.fragment_id not in cut:
            cut[source.fragment_id] = global_indices(
                source_tensor.global_shape, source.global_offset, source.local_shape
            ).reshape(-1)
        fault = _copy(region, source_tensor, cut[source.fragment_id], buffers)
        if fault:
            box = box_text(region.overlap_offset, region.overlap_shape)
            wrong.append(Wrong(region.tensor_id, region.target.fragment_id, box, *fault))
            continue
        writes[region.target.fragment_id] += region.total_bytes // source_tensor.itemsize
    for fragment_id, fragment in fragments.items():
        expected = global_indices(
            targets[fragment.tensor_id].global_shape, fragment.global_offset, fragment.local_shape
        )
        got = buffers[fragment_id].reshape(expected.shape)
        differ = numpy.argwhere(expected != got)
        box = box_text(fragment.global_offset, fragment.local_shape)
        if len(differ):
            at = tuple(differ[0])
            place = tuple(int(o + i) for o, i in zip(fragment.global_offset, at, strict=True))
            expected_text = f"element {place} (index {expected[at]})"
            got_text = "nothing" if got[at] < 0 else f"index {got[at]}"
            wrong.append(Wrong(fragment.tensor_id, fragment_id, box, expected_text, got_text))
        elif writes[fragment_id] != expected.size:
            times = f"{expected.size} elements written once"
            wrong.append(
                Wrong(fragment.tensor_id, fragment_id, box, times, f"{writes[fragment_id]} writes")
            )
    return wrong


def _target_fragments(plan: LogicalTransferPlan, participant: Optional[str]) -> dict:
    """Every fragment that must be filled, whether the plan says anything of it or not."""
    target = plan.target_placement
    fragments: Sequence = target.fragments
    if participant is not None:
        fragments = next(p for p in target.parts if p.participant_id == participant).fragments
    return {fragment.fragment_id: fragment for fragment in fragments if fragment.nbytes}


def _copy(
    region: TransferRegion,
    tensor: TensorDescriptor,
    source: numpy.ndarray,
    buffers: dict[str, numpy.ndarray],
) -> Optional[tuple[str, str]]:
    """Moves the region's elements; (expected, got) when it leaves its buffers."""
    size = tensor.itemsize
    target = buffers.get(region.target.fragment_id)
    if target is None:
        return "a fragment of the target", "one of somebody else"
    numbers = (
        region.source_base_offset,
        region.target_base_offset,
        region.inner_bytes,
        *region.source_strides,
        *region.target_strides,
    )
    if any(number % size for number in numbers):
        return f"multiples of {size} bytes", str(numbers)
    counts = (*region.outer_loop_counts, region.inner_bytes // size)
    views = []
    for flat, base, strides in (
        (source, region.source_base_offset, region.source_strides),
        (target, region.target_base_offset, region.target_strides),
    ):
        steps = [stride // size for stride in strides]
        end = base // size + counts[-1]
        end += sum(step * (count - 1) for step, count in zip(steps, counts, strict=False))
        if end > flat.size or base < 0:
            return f"at most element {flat.size}", f"element {end}"
        views.append(
            numpy.lib.stride_tricks.as_strided(
                flat[base // size :], counts, [8 * step for step in (*steps, 1)]
            )
        )
    views[1][...] = views[0]
    return None


def what_is_wrong_with_regions(
    plan: LogicalTransferPlan, participant: Optional[str] = None
) -> list[Wrong]:
    """Whether the regions' boxes fill each target fragment exactly, and lie in their sources."""
    overlaps: dict[str, list[Box]] = {}
    wrong = []
    for region in plan.operations:
        box = (region.overlap_offset, region.overlap_shape)
        overlaps.setdefault(region.target.fragment_id, []).append(box)
        for side in (region.source, region.target):
            if list(missing_boxes([box], [(side.global_offset, side.local_shape)])):
                wrong.append(
                    Wrong(
                        region.tensor_id,
                        region.target.fragment_id,
                        box_text(*box),
                        f"within {box_text(side.global_offset, side.local_shape)}",
                        "beyond",
                    )
                )
    for fragment_id, fragment in _target_fragments(plan, participant).items():
        whole = (fragment.global_offset, fragment.local_shape)
        boxes = overlaps.get(fragment_id, [])
        missing = next(missing_boxes([whole], boxes), None)
        moved = sum(math.prod(shape) for _, shape in boxes)
        if missing is not None:
            wrong.append(
                Wrong(fragment.tensor_id, fragment_id, box_text(*missing), "a region", "none")
            )
        elif moved != math.prod(fragment.local_shape):
            expected = f"{math.prod(fragment.local_shape)} elements"
            wrong.append(
                Wrong(fragment.tensor_id, fragment_id, box_text(*whole), expected, f"{moved} moved")
            )
    return wrong


def missing_boxes(wanted: Iterable[Box], there: Sequence[Box]) -> Iterator[Box]:
    """The parts of the `wanted` boxes that no box of `there` covers."""
    for box in wanted:
        rest = [box]
        for other in there:
            rest = [piece for part in rest for piece in _without(part, other)]
            if not rest:
                break
        yield from rest


def _without(box: Box, other: Box) -> Iterator[Box]:
    """The pieces of `box` outside of `other`."""
    offset, shape = list(box[0]), list(box[1])
    if any(b >= a + n or a >= b + m for a, n, b, m in zip(*box, *other, strict=True)):
        yield box
        return
    for dim, (begin, extent) in enumerate(zip(*other, strict=True)):
        low, high = max(offset[dim], begin), min(offset[dim] + shape[dim], begin + extent)
        for a, b in ((offset[dim], low), (high, offset[dim] + shape[dim])):
            if a < b:
                piece_offset, piece_shape = list(offset), list(shape)
                piece_offset[dim], piece_shape[dim] = a, b - a
                yield tuple(piece_offset), tuple(piece_shape)
        offset[dim], shape[dim] = low, high - low
