"""Reading objects part by part, over many calls, under one lease; and writing them so."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any, Optional

from . import _codes as codes
from ._client import Key, ReplicateConfig, StoreClient, same_for_all

__all__ = ["Sessions"]


@dataclasses.dataclass
class _Reading:
    object_id: int
    until: float  # time.monotonic(), when its lease ends


def _pieces(
    addresses: Sequence[int], sizes: Sequence[int], offsets: Sequence[int]
) -> Optional[int]:
    """The bytes of one key's pieces; None: the three lists differ in length."""
    if not len(addresses) == len(sizes) == len(offsets):
        return None
    return sum(sizes)


class Sessions(StoreClient):
    def __init__(self) -> None:
        super().__init__()
        self._reading: dict[Key, _Reading] = {}

    def batch_get_session_start(self, keys: Sequence[Key]) -> list[int]:
        """Takes a lease on each object, once: 0, or -704, -703, -702 (no copy can be read)."""
        core = self._core
        if core is None:
            return []
        begun = time.monotonic()
        answers = []
        for key, found in zip(keys, core.locate(keys), strict=True):
            if isinstance(found, int):
                answers.append(found)
                continue
            object_id, _, _, lease_ms = found
            with self._lock:
                self._reading[key] = _Reading(object_id, begun + lease_ms / 1000)
            answers.append(codes.OK)
        return answers

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: Sequence[Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_src_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        """Reads, for each key, pieces of its object from their offsets to their addresses.

        The bytes read per key, or -600: no session, or a piece beyond the object; -707: the lease
        is over (it is not renewed), and with it the session.
        """
        core = self._core
        if core is None:
            return []
        answers = same_for_all(keys, codes.INVALID_PARAMS)
        if not len(keys) == len(all_buffer_ptrs) == len(all_sizes) == len(all_src_offsets):
            return answers
        flat: tuple[list, list, list, list, list] = ([], [], [], [], [])
        owners: list[int] = []
        now = time.monotonic()
        for i, key in enumerate(keys):
            pieces = (all_src_offsets[i], all_buffer_ptrs[i], all_sizes[i])
            reading = self._session_of(key, now)
            if reading is None or isinstance(reading, int) or _pieces(*pieces) is None:
                answers[i] = reading if isinstance(reading, int) else codes.INVALID_PARAMS
                continue
            answers[i] = 0
            owners += [i] * len(pieces[0])
            for column, values in zip(flat[1:4], pieces, strict=True):
                column += values
            flat[0].extend([key] * len(pieces[0]))
            flat[4].extend([reading.object_id] * len(pieces[0]))
        self._add_up(answers, owners, core.get_ranges(*flat))
        for key, answer in zip(keys, answers, strict=True):
            if answer == codes.LEASE_EXPIRED:
                self._drop_session(key)
        return answers

    @staticmethod
    def _add_up(answers: list[int], owners: Sequence[int], read: Sequence[int]) -> None:
        for i, answer in zip(owners, read, strict=True):
            if answers[i] < 0:
                continue
            # An object that is gone was protected by a lease: the session was over.
            gone = answer in (codes.OBJECT_NOT_FOUND, codes.REPLICA_IS_NOT_READY)
            answers[i] = codes.LEASE_EXPIRED if gone else min(answer, 0) or answers[i] + answer

    def _session_of(self, key: Key, now: float) -> Any:
        """The session, a code, or None where there is none."""
        with self._lock:
            reading = self._reading.get(key)
            if reading is not None and now >= reading.until:
                del self._reading[key]
                return codes.LEASE_EXPIRED
            return reading

    def _drop_session(self, key: Key) -> None:
        with self._lock:
            self._reading.pop(key, None)

    def batch_get_session_end(self, keys: Sequence[Key]) -> int:
        """Ends the sessions of these keys, open or not: 0. -1: the store is not set up."""
        if self._core is None:
            return codes.INTERNAL_ERROR
        for key in keys:
            self._drop_session(key)
        return codes.OK

    # ---- writing ----

    # A part is written once: one over an earlier part is -600, and so is any part once an end was
    # tried. After a transfer that failed (-800) the session can only be revoked.

    def batch_put_session_start(
        self, keys: Sequence[Key], sizes: Sequence[int], config: Optional[ReplicateConfig] = None
    ) -> list[int]:
        """Reserves objects of so many bytes, to be written in parts: 0 per key, -705: it exists, or
        somebody writes it; -600: a session of this store has the key, or an argument; -200: no
        room. Nothing is readable before the session's end."""
        core = self._core
        if core is None:
            return []
        answers = same_for_all(keys, codes.INVALID_PARAMS)
        placed, refusal = self._check_config(config, len(answers))
        if len(sizes) != len(answers):
            return answers
        if refusal:
            return same_for_all(keys, refusal)
        return core.put_session_start(keys, sizes, placed)

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: Sequence[Key],
        all_buffer_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_dst_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        """Writes, for each key, pieces from their addresses to their offsets in its object.

        The bytes written per key, or -600: no session, or a piece beyond the object or over an
        earlier one, and none of that key's pieces was written; -800: the transfer failed.
        """
        core = self._core
        if core is None:
            return []
        return core.put_session_write(keys, all_buffer_ptrs, all_sizes, all_dst_offsets)

    def batch_put_session_end(self, keys: Sequence[Key]) -> list[int]:
        """Makes the objects readable: 0 per key; -600: no session. What no piece brought is zeros.
        After another failure the session is still there, and the end may be tried again."""
        core = self._core
        return [] if core is None else core.put_session_end(keys)

    def batch_put_session_revoke(self, keys: Sequence[Key]) -> list[int]:
        """Gives the objects up: 0 per key; -600: no session."""
        core = self._core
        return [] if core is None else core.put_session_revoke(keys)
