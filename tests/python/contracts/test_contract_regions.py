"""Transfer regions: canonical form, segments, the rules of hand-made ones."""

import dataclasses
import inspect
import itertools
import pickle

import pytest
from contract_samples import fragment, refused
from hypothesis import given
from hypothesis import strategies as st
from mooncake.reshard.weight import TransferRegion


def region_of(source_box, target_box, itemsize=2, **changes):
    """The canonical region of two boxes ((offset, shape) each), derived here step by step."""
    (so, ss), (to, ts) = source_box, target_box
    begin = [max(a, b) for a, b in zip(so, to, strict=True)]
    shape = [min(a + c, b + d) - e for a, c, b, d, e in zip(so, ss, to, ts, begin, strict=True)]

    def strides(extents):
        made = [itemsize] * len(extents)
        for dim in range(len(extents) - 2, -1, -1):
            made[dim] = made[dim + 1] * extents[dim + 1]
        return made

    s, t = strides(ss), strides(ts)
    inner, outer = shape[-1] * itemsize, len(shape) - 1
    while outer > 0 and s[outer - 1] == inner == t[outer - 1]:
        outer -= 1
        inner *= shape[outer]
    fields = {
        "tensor_id": "w",
        "source": fragment(so, ss, itemsize=itemsize),
        "target": fragment(to, ts, itemsize=itemsize),
        "overlap_offset": tuple(begin),
        "overlap_shape": tuple(shape),
        "source_base_offset": sum((b - o) * k for b, o, k in zip(begin, so, s, strict=True)),
        "target_base_offset": sum((b - o) * k for b, o, k in zip(begin, to, t, strict=True)),
        "inner_bytes": inner,
        "outer_loop_counts": tuple(shape[:outer]),
        "source_strides": tuple(s[:outer]),
        "target_strides": tuple(t[:outer]),
    }
    return TransferRegion(**(fields | changes))


BOXES = (((0, 0, 0), (4, 1, 8)), ((0, 0, 0), (4, 1, 4)))


def test_region_properties():
    region = region_of(*BOXES)
    assert (region.outer_loop_counts, region.inner_bytes) == ((4, 1), 8)
    assert (region.segment_count, region.repeat, region.total_bytes) == (4, 4, 32)
    assert (region.nbytes, region.source_offset, region.target_offset) == (8, 0, 0)
    with refused("N-D transfer region has multiple source strides"):
        region.source_stride  # noqa: B018
    with refused("N-D transfer region has multiple target strides"):
        region.target_stride  # noqa: B018
    flat = region_of(((2, 0), (2, 4)), ((0, 0), (4, 4)))
    assert (flat.segment_count, flat.source_stride, flat.target_stride) == (1, 0, 0)
    assert flat.target_base_offset == 16 and flat.inner_bytes == 16
    rows = region_of(((0, 0), (4, 4)), ((0, 2), (4, 2)))
    assert (rows.outer_loop_counts, rows.source_stride, rows.target_stride) == ((4,), 8, 4)
    assert rows.validate_bounds() is None
    assert TransferRegion[int, int] is not None
    assert pickle.loads(pickle.dumps(rows)) == rows and hash(rows) == hash(
        dataclasses.replace(rows)
    )


def test_segments():
    region = region_of(((0, 0, 0), (2, 3, 4)), ((0, 1, 2), (2, 2, 2)))
    segments = region.iter_segments(max_segments=100)
    assert inspect.isgenerator(segments)
    assert list(segments) == [
        (12 + 24 * i + 8 * j, 8 * i + 4 * j, 4) for i in range(2) for j in range(2)
    ]
    for bad in (0, -1, True, 1.0, None):
        lazy = region.iter_segments(max_segments=bad)  # nothing happens yet
        with refused("max_segments must be a positive integer"):
            next(lazy)
    with refused("transfer region exceeds max_segments: 4 > 3"):
        next(region.iter_segments(max_segments=3))


REGION_ERRORS = [
    ({"overlap_offset": "000"}, "transfer region overlap_offset must contain integers"),
    ({"overlap_shape": b"414"}, "transfer region overlap_shape must contain integers"),
    ({"outer_loop_counts": 4}, "transfer region outer_loop_counts must contain integers"),
    ({"tensor_id": ""}, "tensor_id must be a non-empty string"),
    ({"tensor_id": "x"}, "transfer region tensor mismatch"),
    ({"overlap_offset": (0, 0)}, "transfer region logical rank mismatch"),
    ({"overlap_shape": (4, 0, 4)}, "transfer region logical box is invalid"),
    ({"overlap_offset": (-1, 0, 0)}, "transfer region logical box is invalid"),
    ({"overlap_offset": (0, 0, 5)}, "transfer region exceeds source logical fragment"),
    ({"overlap_offset": (0, 0, 4)}, "transfer region exceeds target logical fragment"),
    ({"source_base_offset": -1}, "source_base_offset must be at least 0"),
    ({"inner_bytes": 0}, "inner_bytes must be at least 1"),
    ({"source_strides": (16,)}, "transfer region loop ranks differ"),
    ({"outer_loop_counts": (4, 0)}, "outer_loop_counts must be at least 1"),
    ({"target_strides": (-8, 8)}, "strides must be at least 0"),
    ({"inner_bytes": 4}, "transfer region loop geometry does not match overlap"),
    ({"source_base_offset": 2}, "transfer region source base offset is inconsistent"),
    ({"target_base_offset": 2}, "transfer region target base offset is inconsistent"),
    (
        {"outer_loop_counts": (4,), "source_strides": (16,), "target_strides": (8,)},
        "transfer region loop geometry is not canonical",
    ),
    ({"source": fragment((0, 0, 0), (4, 1, 8), itemsize=4)}, "itemsize"),
]


@pytest.mark.parametrize("changes,message", REGION_ERRORS)
def test_region_rules(changes, message):
    with refused(message):
        region_of(*BOXES, **changes)


def test_any_iterable_becomes_a_tuple():
    region = region_of(*BOXES, overlap_shape=iter([4, 1, 4]), outer_loop_counts=[4, 1])
    assert region.overlap_shape == (4, 1, 4) and region.outer_loop_counts == (4, 1)
    assert type(region.outer_loop_counts) is tuple


def boxes_of_rank(rank):
    interval = st.tuples(st.integers(0, 3), st.integers(1, 4))
    box = st.lists(interval, min_size=rank, max_size=rank).map(
        lambda b: tuple(zip(*b, strict=True))
    )
    return st.tuples(box, box)


@given(st.integers(1, 4).flatmap(boxes_of_rank), st.sampled_from([1, 2, 8]))
def test_segments_copy_exactly_the_overlap(boxes, itemsize):
    (so, ss), (to, ts) = boxes
    both = [
        set(range(a, a + c)) & set(range(b, b + d))
        for a, c, b, d in zip(so, ss, to, ts, strict=True)
    ]
    if not all(both):
        return
    region = region_of(*boxes, itemsize=itemsize)

    def position(element, offset, shape):
        at = 0
        for e, o, n in zip(element, offset, shape, strict=True):
            at = at * n + e - o
        return at

    copied = {}
    for source, target, nbytes in region.iter_segments(max_segments=1000):
        for byte in range(nbytes):
            assert target + byte not in copied
            copied[target + byte] = source + byte
    wanted = {}
    for element in itertools.product(*map(sorted, both)):
        for byte in range(itemsize):
            at = position(element, to, ts) * itemsize + byte
            wanted[at] = position(element, so, ss) * itemsize + byte
    assert copied == wanted
    assert region.total_bytes == len(copied)
