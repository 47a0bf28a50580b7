"""LazyTuple: a tuple whose items are made when somebody looks at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


class LazyTuple(tuple):
    """The fields of big manifests and plans: `len()` is free, items appear on access and stay.

    A tuple, because the contract says that the field is one: comparison, hashing, slicing,
    concatenation, isinstance and dataclasses.asdict all see the real items. The slots below hold
    None until then (C code that reads a tuple's memory must call tuple(...) first).
    """

    _load: Callable[[int, int], Sequence[Any]]
    _made: dict[int, Any]  # single items made so far; unused once all are there
    _all: tuple[Any, ...] | None

    def __new__(cls, items: Iterable[Any] = ()) -> tuple[Any, ...]:  # type: ignore[misc]
        # What generic code that rebuilds "the same kind of tuple" calls.
        return tuple(items)

    @classmethod
    def over(cls, length: int, load: Callable[[int, int], Sequence[Any]]) -> LazyTuple:
        """`load(begin, end)` makes the items of that range; called at most once for each item."""
        self = super().__new__(cls, (None,) * length)
        self._load = load
        self._made = {}
        self._all = None
        return self

    def _items(self) -> tuple[Any, ...]:
        if self._all is None:
            items = list(self._load(0, len(self)))
            for index, item in self._made.items():
                items[index] = item
            self._all = tuple(items)
            self._made = {}
        return self._all

    def _item(self, index: int) -> Any:
        item = self._made.get(index)
        if item is None:
            # setdefault: of two threads that make it at once, both get the same one.
            item = self._made.setdefault(index, self._load(index, index + 1)[0])
        return item

    def __getitem__(self, index: Any) -> Any:
        if self._all is not None:
            return self._all[index]
        if isinstance(index, slice):
            chosen = range(len(self))[index]
            if len(chosen) * 2 > len(self):
                return self._items()[index]
            return tuple(self._item(i) for i in chosen)
        return self._item(range(len(self))[index])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items())

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._items())

    def __contains__(self, item: object) -> bool:
        return item in self._items()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, tuple):
            return NotImplemented
        return len(self) == len(other) and self._items() == tuple(other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash(self._items())

    def __lt__(self, other: Any) -> bool:
        return self._items() < other

    def __le__(self, other: Any) -> bool:
        return self._items() <= other

    def __gt__(self, other: Any) -> bool:
        return self._items() > other

    def __ge__(self, other: Any) -> bool:
        return self._items() >= other

    def __add__(self, other: Any) -> tuple[Any, ...]:
        return self._items() + tuple(other) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> tuple[Any, ...]:
        return tuple(other) + self._items() if isinstance(other, tuple) else NotImplemented

    def __mul__(self, count: Any) -> tuple[Any, ...]:
        return self._items() * count

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(self._items())

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return tuple, (list(self._items()),)

    def count(self, item: Any) -> int:
        return self._items().count(item)

    def index(self, item: Any, *bounds: Any) -> int:
        return self._items().index(item, *bounds)
