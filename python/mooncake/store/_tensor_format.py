"""Tensors as objects: a header of 304 bytes, then the elements, contiguous, row-major.

Little-endian, in this order:
  u32 magic 0x4d4f4f4e    u32 version 1        i32 dtype code        i32 dimensions (at most 8)
  i32 layout (0: dense)   i32 axes (at most 4) u64 data offset (304) u64 data bytes
  8 bytes of zeros
  i64[8] global shape     i64[8] local shape, unused ones 0
  4 axes of i32 kind, rank, size, split_dim, expert_id, stage_id and 8 bytes of zeros; none is used
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any, Optional

__all__ = ["HEADER_BYTES", "TensorHeader", "torch_or_none"]

HEADER_BYTES = 304
_MAGIC = 0x4D4F4F4E
_VERSION = 1
_DIMS_MAX = 8
_FIXED = struct.Struct("<IIiiiiQQ8x8q8q128x")
assert _FIXED.size == HEADER_BYTES
# By code.
_DTYPES = (
    "float32",
    "float64",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "bool",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)


def torch_or_none() -> Optional[Any]:
    """The torch module, where it is installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


@dataclasses.dataclass(frozen=True)
class TensorHeader:
    """What a stored tensor says about itself: its torch dtype's name, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    @classmethod
    def of(cls, tensor: Any) -> Optional[TensorHeader]:
        """None: no torch tensor, or of a dtype or rank that has no place in the header."""
        torch = torch_or_none()
        if torch is None or not isinstance(tensor, torch.Tensor):
            return None
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype not in _DTYPES or tensor.dim() > _DIMS_MAX:
            return None
        return cls(dtype, tuple(tensor.shape), tensor.numel() * tensor.element_size())

    @classmethod
    def parse(cls, head: bytes, total: int) -> Optional[TensorHeader]:
        """None: no header of a tensor that fits in an object of `total` bytes."""
        torch = torch_or_none()
        if torch is None or len(head) < HEADER_BYTES:
            return None
        magic, version, code, dims, layout, axes, offset, nbytes, *shapes = _FIXED.unpack_from(head)
        if (magic, version, layout, axes, offset) != (_MAGIC, _VERSION, 0, 0, HEADER_BYTES):
            return None
        if not (0 <= code < len(_DTYPES) and 0 <= dims <= _DIMS_MAX):
            return None
        shape = tuple(shapes[_DIMS_MAX : _DIMS_MAX + dims])
        elements = 1
        for extent in shape:
            if extent < 0:
                return None
            elements *= extent
        dtype = getattr(torch, _DTYPES[code], None)
        if dtype is None or elements * dtype.itemsize != nbytes or nbytes > total - HEADER_BYTES:
            return None
        return cls(_DTYPES[code], shape, nbytes)

    def pack(self) -> bytes:
        padded = list(self.shape) + [0] * (_DIMS_MAX - len(self.shape))
        return _FIXED.pack(
            _MAGIC,
            _VERSION,
            _DTYPES.index(self.dtype),
            len(self.shape),
            0,
            0,
            HEADER_BYTES,
            self.nbytes,
            *padded,
            *padded,
        )

    def view(self, buffer: Any) -> Any:
        """The tensor in `buffer`, which begins with this header; it keeps the buffer alive."""
        torch = torch_or_none()
        dtype = getattr(torch, self.dtype)
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=dtype)
        data = torch.frombuffer(buffer, dtype=torch.uint8, count=self.nbytes, offset=HEADER_BYTES)
        return data.view(dtype).reshape(self.shape)
