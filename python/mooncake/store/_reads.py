"""get, whole objects and ranges of them; existence and sizes.

All of it renews the leases of what it finds, so that nothing is evicted or removed under its
reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from mooncake import _core

from . import _codes as codes
from ._client import Key, StoreClient, _address, same_for_all

__all__ = ["Reads"]

BufferHandle = _core.BufferHandle
# Per buffer, per key, per fragment.
Nested = Sequence[Sequence[Sequence[int]]]


class Reads(StoreClient):
    # ---- whole objects ----

    def get(self, key: Key) -> bytes:
        """The object; b"" when it is missing, unreadable, or does not fit the local buffer."""
        core = self._core
        return b"" if core is None else core.get_values([key])[0]

    def get_batch(self, keys: Sequence[Key]) -> list[bytes]:
        """get for many; of an empty list [b""]."""
        core = self._core
        if core is None or len(keys) == 0:
            return [b""]
        return core.get_values(keys)

    def get_buffer(self, key: Key) -> Optional[BufferHandle]:
        """The object in a part of the local buffer, which is free again when the handle goes."""
        core = self._core
        return None if core is None else core.get_handles([key])[0]

    def batch_get_buffer(self, keys: Sequence[Key]) -> list[Optional[BufferHandle]]:
        """get_buffer for many."""
        core = self._core
        return [None] * len(keys) if core is None else core.get_handles(keys)

    def get_into(self, key: Key, buffer_ptr: int, size: int) -> int:
        """Reads the object to address `buffer_ptr`; the object's bytes, which may be fewer than
        `size`, or a code. -600: it has more than `size` bytes, and nothing was written."""
        core = self._core
        if core is None:
            return codes.INVALID_PARAMS
        return core.get_pointers([key], [buffer_ptr], [size])[0]

    def batch_get_into(
        self, keys: Sequence[Key], buffer_ptrs: Sequence[int], sizes: Sequence[int]
    ) -> list[int]:
        """get_into for many."""
        core = self._core
        if core is None:
            return same_for_all(keys, codes.INVALID_PARAMS)
        return core.get_pointers(keys, buffer_ptrs, sizes)

    def batch_get_into_multi_buffers(
        self,
        keys: Sequence[Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]:
        """Scatters each object over its pieces, in order: its bytes, or a code. The pieces must
        add up to exactly the object (-600: too small, -800: too large)."""
        core = self._core
        if core is None:
            return same_for_all(keys, codes.INVALID_PARAMS)
        return core.get_pieces(keys, all_buffer_ptrs, all_sizes)

    # ---- ranges ----

    def get_into_ranges(
        self,
        buffer_ptrs: Sequence[int],
        all_keys: Sequence[Sequence[Key]],
        all_dst_offsets: Nested,
        all_src_offsets: Nested,
        all_sizes: Nested,
    ) -> list[list[list[int]]]:
        """Reads parts of objects into parts of buffers.

        Buffer i gets, for its key j and each fragment k, `all_sizes[i][j][k]` bytes from
        `all_src_offsets[i][j][k]` of the object at `all_dst_offsets[i][j][k]`. The answer has that
        shape: bytes, or a code. Buffers must be registered. Checksums, which are of whole objects,
        are not looked at.
        """
        lists = (all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        fits = all(len(one) == len(buffer_ptrs) for one in lists)
        answer: list[list[list[int]]] = []
        wanted = _Wanted()
        for i, buffer_ptr in enumerate(buffer_ptrs):
            rows = _rows(i, *lists)
            answer.append([[codes.INVALID_PARAMS] * row for row in rows])
            if not fits or self._core is None:
                continue
            if any(len(one[i]) != len(rows) for one in lists[1:]):
                continue
            begin = _address(buffer_ptr, "buffer_ptr")
            room = self._registered_from(begin)
            for j, key in enumerate(all_keys[i]):
                fragments = (all_dst_offsets[i][j], all_src_offsets[i][j], all_sizes[i][j])
                if room and len({len(f) for f in fragments}) == 1:
                    wanted.add(answer[i][j], key, begin, room, *fragments)
        wanted.read(self._core)
        return answer

    # ---- existence and size ----

    def is_exist(self, key: Key) -> int:
        """1: it can be read; 0: not, also while it is being written; a code: nobody could say."""
        core = self._core
        return codes.INVALID_PARAMS if core is None else core.exists([key])[0]

    def batch_is_exist(self, keys: Sequence[Key]) -> list[int]:
        """is_exist for many."""
        core = self._core
        return same_for_all(keys, codes.INVALID_PARAMS) if core is None else core.exists(keys)

    def get_size(self, key: Key) -> int:
        """The object's bytes; -704: there is none; -703: it is being written."""
        core = self._core
        return codes.INVALID_PARAMS if core is None else core.sizes([key])[0]


def _rows(i: int, all_keys: Any, dst: Any, *_: Any) -> list[int]:
    """How many answers each key of buffer i gets, as far as the arguments say; 1 where they do
    not."""
    keys = len(all_keys[i]) if i < len(all_keys) else 1
    known = dst[i] if i < len(dst) else ()
    return [len(known[j]) if j < len(known) else 1 for j in range(keys)]


class _Wanted:
    """Fragments to read, and where their answers go."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._offsets: list[int] = []
        self._addresses: list[int] = []
        self._sizes: list[int] = []
        self._places: list[tuple[list[int], int]] = []

    def add(
        self,
        row: list[int],
        key: Key,
        begin: int,
        room: int,
        dst: Sequence[int],
        src: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        for k, (to, from_, size) in enumerate(zip(dst, src, sizes, strict=True)):
            to, size = _address(to, "all_dst_offsets"), _address(size, "all_sizes")
            if to + size > room:
                continue
            self._keys.append(key)
            self._offsets.append(from_)
            self._addresses.append(begin + to)
            self._sizes.append(size)
            self._places.append((row, k))

    def read(self, core: Optional[_core.ObjectStore]) -> None:
        if core is None or not self._keys:
            return
        answers = core.get_ranges(self._keys, self._offsets, self._addresses, self._sizes)
        for (row, k), answer in zip(self._places, answers, strict=True):
            row[k] = answer
