"""LazyTuple is a tuple in every respect but when its items are made."""

import copy
import itertools
import pickle

import pytest
from mooncake.reshard.lazy_tuple import LazyTuple

ITEMS = ("a", "b", "c", "d", "e")


def lazy(log=None):
    def load(begin, end):
        if log is not None:
            log.append((begin, end))
        return list(ITEMS[begin:end])

    return LazyTuple.over(len(ITEMS), load)


def test_len_and_truth_make_nothing():
    log = []
    made = lazy(log)
    assert len(made) == 5 and made and not LazyTuple.over(0, lambda b, e: [])
    assert isinstance(made, tuple)
    assert log == []


def test_single_items_are_made_once():
    log = []
    made = lazy(log)
    assert [made[1], made[-4], made[1]] == ["b", "b", "b"]
    assert made[4:] == ("e",) and type(made[4:]) is tuple
    assert log == [(1, 2), (4, 5)]
    for index in (5, -6):
        with pytest.raises(IndexError):
            made[index]
    with pytest.raises(TypeError):
        made["1"]


def test_items_stay_the_same_objects():
    made = LazyTuple.over(3, lambda begin, end: [object() for _ in range(begin, end)])
    first = made[1]
    everything = list(made)
    assert everything[1] is first and made[1] is first
    assert list(made)[0] is everything[0]


OPERATIONS = [
    lambda t: t == ITEMS,
    lambda t: ITEMS == t,
    lambda t: t != ITEMS,
    lambda t: t == ITEMS[:4],
    lambda t: t == list(ITEMS),
    lambda t: t == t,
    lambda t: hash(t),
    lambda t: {t: 1}[ITEMS],
    lambda t: t + ("f",),
    lambda t: ("z",) + t,
    lambda t: t * 2,
    lambda t: 2 * t,
    lambda t: t < ("b",),
    lambda t: t <= ITEMS,
    lambda t: t > ITEMS,
    lambda t: ITEMS >= t,
    lambda t: ("b",) > t,
    lambda t: repr(t),
    lambda t: str(t),
    lambda t: f"{t}",
    lambda t: t[::-1],
    lambda t: t[1:3],
    lambda t: t[::4],
    lambda t: t[10:],
    lambda t: "c" in t,
    lambda t: "x" in t,
    lambda t: t.index("c"),
    lambda t: t.index("c", 1, 4),
    lambda t: t.count("c"),
    lambda t: tuple(t),
    lambda t: list(t),
    lambda t: set(t),
    lambda t: (*t,),
    lambda t: [*t, *t],
    lambda t: list(reversed(t)),
    lambda t: sorted(t, reverse=True),
    lambda t: max(t),
    lambda t: "".join(t),
    lambda t: dict(enumerate(t)),
    lambda t: list(zip(t, t, strict=True)),
    lambda t: list(itertools.chain(t, t)),
    lambda t: (lambda *args: args)(*t),
    lambda t: pickle.loads(pickle.dumps(t)),
    lambda t: copy.copy(t),
    lambda t: copy.deepcopy(t),
    lambda t: type(t)(["x", "y"]),
    lambda t: frozenset(t),
]


@pytest.mark.parametrize("index", range(len(OPERATIONS)))
def test_every_operation_is_a_tuples(index):
    assert OPERATIONS[index](lazy()) == OPERATIONS[index](ITEMS)


def test_unpacking_and_matching():
    first, *rest = lazy()
    assert (first, rest) == ("a", ["b", "c", "d", "e"])
    match lazy():
        case ("a", *others):
            assert others == ["b", "c", "d", "e"]
        case _:
            raise AssertionError


def test_two_lazy_tuples():
    assert lazy() == lazy() and hash(lazy()) == hash(lazy()) and not lazy() != lazy()
    assert pickle.dumps(lazy()) == pickle.dumps(lazy())
    with pytest.raises(TypeError):
        lazy() + ["x"]
