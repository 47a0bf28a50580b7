"""Payloads in which every eight bytes say whose and which they are, and memory to read into."""

from __future__ import annotations

import numpy as np


def payload(number: int, size: int) -> bytes:
    """Word i of payload `number` is number * 2^40 + i; a last word that is cut has its first
    bytes."""
    words = np.arange(-(-size // 8), dtype="<u8") + (number << 40)
    return words.tobytes()[:size]


class Memory:
    """Writable bytes of this process, filled with a byte that no payload begins with."""

    FILL = 0xEE

    def __init__(self, size: int) -> None:
        self.array = np.full(size, self.FILL, dtype=np.uint8)
        self.ptr = self.array.ctypes.data
        self.size = size

    @classmethod
    def of(cls, content: bytes) -> Memory:
        memory = cls(len(content))
        memory.array[:] = np.frombuffer(content, dtype=np.uint8)
        return memory

    def read(self, begin: int = 0, size: int | None = None) -> bytes:
        end = self.size if size is None else begin + size
        return self.array[begin:end].tobytes()

    def untouched(self, begin: int = 0) -> bool:
        return bool((self.array[begin:] == self.FILL).all())
