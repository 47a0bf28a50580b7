"""Registered host memory in pieces, used again and again.

Memory comes in regions of at least `alignment` bytes, registered with the store once and cut into
pieces of one size class (powers of two from `min_size_class`). Nothing goes back to the system
before close().
"""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
import weakref
from typing import Any, Optional

__all__ = [
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
]

BufferLeaseView = memoryview


class BufferLease:
    """`size` bytes of the pool at address `ptr`, until release() or the end of a with block."""

    def __init__(self, pool: BufferPool, piece: _Piece, size: int) -> None:
        self._pool: Optional[BufferPool] = pool
        self._piece = piece
        self.ptr = piece.address
        self.size = size
        self._array: Any = (ctypes.c_ubyte * size).from_address(piece.address)
        self._buffer: Optional[memoryview] = memoryview(self._array).cast("B")

    @property
    def buffer(self) -> memoryview:
        """The memory; RuntimeError once it is released."""
        if self._buffer is None:
            raise RuntimeError("this lease is released")
        return self._buffer

    def release(self) -> None:
        """Gives the memory back; a second time does nothing. RuntimeError: somebody still views
        it, and nothing changes."""
        pool = self._pool
        if pool is None:
            return
        # Whoever made a view from ours keeps the array alive.
        self._buffer.release()
        self._buffer = None
        watched = weakref.ref(self._array)
        self._array = None
        array = watched()
        if array is not None:
            self._array, self._buffer = array, memoryview(array).cast("B")
            raise RuntimeError("this lease's memory is still viewed")
        self._pool = None
        pool._take_back(self._piece)

    def __enter__(self) -> BufferLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Piece:
    def __init__(self, address: int, size_class: int) -> None:
        self.address = address
        self.size_class = size_class


class BufferPool:
    """Hands out leases on registered memory; any thread may ask.

    `max_bytes` (0: no limit) and `max_regions` bound what is taken from the system. When they are
    reached, acquire() waits for a release (`block_on_exhaustion`), for `default_timeout` seconds
    at most (None: for ever).
    """

    def __init__(
        self,
        store: Any,
        max_bytes: int = 0,
        min_size_class: int = 65536,
        max_size_class: Optional[int] = None,
        alignment: int = 8 << 20,
        block_on_exhaustion: bool = True,
        default_timeout: Optional[float] = None,
        max_regions: Optional[int] = None,
        prewarm_size: Optional[int] = None,
        prewarm_count: int = 0,
    ) -> None:
        if min_size_class <= 0 or alignment <= 0 or alignment & (alignment - 1):
            raise ValueError("min_size_class must be positive, alignment a power of two")
        self._store = store
        self._max_bytes = max_bytes
        self._min_class = 1 << (min_size_class - 1).bit_length()
        self._max_class = max_size_class
        self._alignment = alignment
        self._block = block_on_exhaustion
        self._timeout = default_timeout
        self._max_regions = max_regions
        self._changed = threading.Condition()
        self._free: dict[int, list[_Piece]] = {}
        self._regions: list[tuple[mmap.mmap, int]] = []  # and where each is registered
        self._bytes = 0
        self._leased = 0
        self._closed = False
        if prewarm_size is not None and prewarm_count > 0:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(
        self, size: int, block: Optional[bool] = None, timeout: Optional[float] = None
    ) -> BufferLease:
        """`size` bytes. RuntimeError: closed, larger than max_size_class, or the pool is exhausted
        and waiting was not wanted; TimeoutError: it was, for long enough."""
        size_class = self._class_of(size)
        block = self._block if block is None else block
        timeout = self._timeout if timeout is None else timeout
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                self._check_open()
                pieces = self._free.setdefault(size_class, [])
                if pieces or self._grow(size_class):
                    self._leased += 1
                    return BufferLease(self, pieces.pop(), size)
                if not block:
                    raise RuntimeError(f"the pool is exhausted: {self._bytes} bytes are leased")
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"no {size} bytes of the pool were free in {timeout} s")
                self._changed.wait(left)

    buffer = acquire

    def prewarm(self, size: int, count: int) -> None:
        """Takes memory for `count` leases of `size` bytes now. RuntimeError: the limits forbid."""
        size_class = self._class_of(size)
        with self._changed:
            self._check_open()
            pieces = self._free.setdefault(size_class, [])
            while len(pieces) < count:
                if not self._grow(size_class):
                    raise RuntimeError(
                        f"the pool's limits leave no room for {count} x {size} bytes"
                    )

    def close(self) -> None:
        """Gives all memory back. RuntimeError: something is leased."""
        with self._changed:
            if self._leased:
                raise RuntimeError(f"{self._leased} leases of the pool are out")
            self._closed = True
            for _, address in self._regions:
                self._store.unregister_buffer(address)
            self._free.clear()
            regions, self._regions = self._regions, []
            self._changed.notify_all()
        for memory, _ in regions:
            memory.close()

    def __enter__(self) -> BufferPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _class_of(self, size: int) -> int:
        if size <= 0:
            raise ValueError(f"expected a size of at least 1 byte, got {size}")
        size_class = max(self._min_class, 1 << (size - 1).bit_length())
        if self._max_class is not None and size > self._max_class:
            raise RuntimeError(f"{size} bytes are more than max_size_class, {self._max_class}")
        return size_class

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the pool is closed")

    def _grow(self, size_class: int) -> bool:
        region = -(-size_class // self._alignment) * self._alignment
        if self._max_bytes and self._bytes + region > self._max_bytes:
            # What alignment would add is not worth refusing for.
            region = size_class
        over = self._max_bytes and self._bytes + region > self._max_bytes
        if over or (self._max_regions is not None and len(self._regions) >= self._max_regions):
            return False
        from mooncake import _core

        memory = mmap.mmap(-1, region + self._alignment)
        begin = _core.buffer_address(memory)
        address = -(-begin // self._alignment) * self._alignment
        if self._store.register_buffer(address, region) != 0:
            memory.close()
            raise RuntimeError(f"the store does not register {region} bytes of the pool")
        self._regions.append((memory, address))
        self._bytes += region
        pieces = self._free.setdefault(size_class, [])
        for offset in range(0, region - size_class + 1, size_class):
            pieces.append(_Piece(address + offset, size_class))
        return True

    def _take_back(self, piece: _Piece) -> None:
        with self._changed:
            self._leased -= 1
            self._free[piece.size_class].append(piece)
            self._changed.notify_all()


RegisteredBufferPool = BufferPool
RegisteredBufferLease = BufferLease
RegisteredBufferLeaseView = BufferLeaseView
