"""Memory of this process that other processes of the store could share."""

from __future__ import annotations

import mmap
import threading

from mooncake import _core

__all__ = ["MooncakeHostMemAllocator", "address_of"]


def address_of(memory: mmap.mmap) -> int:
    """Where a mapping begins."""
    return _core.buffer_address(memory)


class MooncakeHostMemAllocator:
    """Whole pages of shared memory. Usable by this process until they are freed, whatever becomes
    of the allocator."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, mmap.mmap] = {}

    def alloc(self, size: int) -> int:
        """The address of `size` zeroed bytes; RuntimeError: they cannot be had."""
        if size <= 0:
            raise RuntimeError(f"cannot allocate {size} bytes")
        try:
            memory = mmap.mmap(-1, size)
        except (OSError, OverflowError, ValueError) as error:
            raise RuntimeError(f"cannot allocate {size} bytes: {error}") from None
        address = address_of(memory)
        with self._lock:
            self._held[address] = memory
        return address

    def free(self, ptr: int) -> int:
        """0; -1: no allocation of this allocator begins there."""
        with self._lock:
            memory = self._held.pop(ptr, None)
        if memory is None:
            return -1
        memory.close()
        return 0

    def __del__(self) -> None:
        # Memory that is still out must outlive us: its users have addresses, not references.
        for memory in getattr(self, "_held", {}).values():
            _kept.append(memory)


_kept: list[mmap.mmap] = []
