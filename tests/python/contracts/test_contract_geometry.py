"""The public geometry face, against elements counted one by one."""

import itertools
import random
import time
import types

import pytest
from contract_samples import refused, tensor
from hypothesis import given
from hypothesis import strategies as st
from mooncake.reshard import geometry
from mooncake.reshard.geometry import (
    box_contains,
    boxes_exactly_cover,
    boxes_overlap,
    regions_exactly_cover,
)


def elements(offset, shape):
    return set(itertools.product(*(range(o, o + n) for o, n in zip(offset, shape, strict=True))))


def boxes_of_rank(rank):
    interval = st.tuples(st.integers(0, 3), st.integers(1, 3))
    box = st.lists(interval, min_size=rank, max_size=rank).map(
        lambda intervals: tuple(zip(*intervals, strict=True))
    )
    return st.lists(box, min_size=1, max_size=6)


@given(st.integers(1, 4).flatmap(boxes_of_rank))
def test_against_elements(boxes):
    covered = [elements(*box) for box in boxes]
    overlap = sum(map(len, covered)) != len(set().union(*covered))
    answer = boxes_overlap(boxes)
    assert answer is overlap
    (outer, *inner) = boxes
    for box, inside in zip(boxes, covered, strict=True):
        assert box_contains(*outer, *box) is (inside <= covered[0])
    volume = sum(map(len, covered[1:]))
    wanted = set().union(*covered[1:]) == covered[0] and volume == len(covered[0])
    assert boxes_exactly_cover(*outer, inner) is wanted


@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_tilings(rank, seed):
    """A box cut at random is covered; without a piece, or with one twice, it is not."""
    rng = random.Random(seed)
    whole = ((1,) * rank, tuple(rng.randint(1, 5) for _ in range(rank)))
    pieces = [whole]
    for _ in range(6):
        offset, shape = pieces.pop(rng.randrange(len(pieces)))
        dim = rng.randrange(rank)
        if shape[dim] == 1:
            pieces.append((offset, shape))
            continue
        at = rng.randint(1, shape[dim] - 1)
        left = tuple(at if d == dim else n for d, n in enumerate(shape))
        right = tuple(n - at if d == dim else n for d, n in enumerate(shape))
        moved = tuple(o + at if d == dim else o for d, o in enumerate(offset))
        pieces += [(offset, left), (moved, right)]
    rng.shuffle(pieces)
    assert boxes_exactly_cover(*whole, pieces)
    assert not boxes_exactly_cover(*whole, pieces[1:])
    assert not boxes_exactly_cover(*whole, [*pieces, pieces[0]])
    assert boxes_overlap([*pieces, pieces[0]])


def test_answers_are_bools():
    assert boxes_overlap([]) is False
    assert boxes_overlap([((0,), (1,))]) is False
    assert boxes_exactly_cover((0,), (1,), []) is False
    assert boxes_exactly_cover((0,), (2,), [((1,), (2,))]) is False  # outside
    assert boxes_exactly_cover((0,), (1,), iter([([0], [1])])) is True


def test_different_lengths():
    with refused("zip() arguments have different lengths"):
        box_contains((0, 0), (1, 1), (0,), (1,))
    with refused("zip() arguments have different lengths"):
        boxes_exactly_cover((0, 0), (1, 1), [((0,), (1,))])
    with refused("zip() arguments have different lengths"):
        boxes_overlap([((0,), (1,)), ((0, 0), (1, 1))])


def test_whole_numbers():
    with refused("a box is made of integers"):
        boxes_overlap([((0.5,), (1,)), ((0,), (1,))])
    with refused("must fit in a signed 64-bit integer"):
        box_contains((1 << 63,), (1,), (0,), (1,))
    assert box_contains((0,), (5,), (5,), (0,)) is True
    numpy = pytest.importorskip("numpy")
    assert box_contains(numpy.zeros(2, int), numpy.array([4, 4]), (1, 1), (2, 2)) is True


def test_regions_are_ducks():
    target = types.SimpleNamespace(global_offset=(2, 0), local_shape=(2, 2))

    def regions(*offsets):
        return [types.SimpleNamespace(overlap_offset=o, overlap_shape=(1, 2)) for o in offsets]

    assert regions_exactly_cover(target, regions((3, 0), (2, 0))) is True
    assert regions_exactly_cover(target, regions((3, 0))) is False
    assert regions_exactly_cover(target, regions((3, 0), (4, 0))) is False
    assert boxes_overlap([target, target]) is True  # a LogicalBox is a box too
    with pytest.raises(TypeError):
        isinstance(tensor(), geometry.LogicalBox)  # not runtime_checkable


def test_budget_of_many_dimensions(monkeypatch):
    boxes = [((i, 0, 0), (2, 1, 1)) for i in range(0, 20, 2)] + [((0, 1, 0), (20, 1, 1))]
    assert boxes_overlap(boxes) is False
    monkeypatch.setattr(geometry, "_MAX_HIGH_DIMENSIONAL_PAIRWISE_COMPARISONS", 3)
    with refused("high-dimensional overlap budget exceeded before validation"):
        boxes_overlap(boxes)
    assert boxes_overlap([box for box in boxes if box[1][0] == 2]) is False
    flat = [(offset[:2], shape[:2]) for offset, shape in boxes]
    assert boxes_overlap(flat) is False  # one and two dimensions have no budget


def test_many_rows_are_quick():
    rows = [((row, 0), (1, 64)) for row in range(4096)]
    random.Random(7).shuffle(rows)
    began = time.process_time()
    assert boxes_exactly_cover((0, 0), (4096, 64), rows)
    assert time.process_time() - began < 2
