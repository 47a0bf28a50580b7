"""How the store sees somebody's tensor: an address, a shape, strides and a dtype name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["TensorMemory", "dtype_name", "memory_of"]

# numpy's names of types whose torch (and contract) names differ.
_DTYPE_NAMES = {"bool_": "bool"}


@dataclass(frozen=True)
class TensorMemory:
    """A tensor's memory. Bytes: `itemsize`, `strides_bytes`, `nbytes`; elements: `shape`.

    `owner` keeps the memory alive; `device` is "cpu" for host memory. `storage` is the allocation
    (address, bytes) that the tensor is a view of, as far as its library tells.
    """

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    dtype: str
    itemsize: int
    nbytes: int
    device: str
    owner: Any
    storage: tuple[int, int]

    @property
    def contiguous(self) -> bool:
        """Dense and row-major (strides of extent-1 dimensions do not matter, nor any of none)."""
        if self.nbytes == 0:
            return True
        expected = self.itemsize
        for extent, stride in zip(reversed(self.shape), reversed(self.strides_bytes), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


def dtype_name(dtype: Any) -> str:
    """The contract's name of a torch, numpy or ml_dtypes dtype: "bfloat16", "float8_e4m3fn", ..."""
    name = str(dtype)
    name = name.rsplit(".", 1)[-1] if name.startswith(("torch.", "jax.")) else name
    return _DTYPE_NAMES.get(name, name)


def memory_of(tensor: Any, *, writable: bool = False) -> TensorMemory:
    """Describes `tensor` (torch, numpy, or anything with DLPack or the buffer protocol).

    Nothing is copied. Host memory only. ValueError when the object offers none of these, when it
    is not in host memory, or when `writable` is asked for and its memory is read-only.
    """
    if hasattr(tensor, "data_ptr") and hasattr(tensor, "element_size"):
        return _torch_memory(tensor)
    if hasattr(tensor, "__array_interface__"):
        return _numpy_memory(tensor, writable)
    if hasattr(tensor, "__dlpack__"):
        return _dlpack_memory(tensor, writable)
    try:
        view = memoryview(tensor)
    except TypeError:
        raise ValueError(
            "a tensor must offer DLPack or the buffer protocol, "
            f"got {type(tensor).__module__}.{type(tensor).__qualname__}"
        ) from None
    import numpy

    return _numpy_memory(numpy.asarray(view), writable)


def check_torch_memory(tensor: Any) -> None:
    """ValueError unless the bytes in the torch tensor's memory are its values."""
    if str(tensor.layout) != "torch.strided" or getattr(tensor, "is_nested", False):
        kind = "torch.nested" if getattr(tensor, "is_nested", False) else tensor.layout
        raise ValueError(f"a tensor of layout {kind} has no plain memory: make it dense")
    if getattr(tensor, "is_quantized", False):
        raise ValueError(
            f"a quantized tensor ({tensor.dtype}) has values that its memory alone does not say: "
            "pass int_repr() and the scales"
        )
    if tensor.device.type != "cpu":
        raise ValueError(f"a tensor must be in host memory, got device {tensor.device}")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("a tensor with a pending conjugate or negation has no plain memory")


def _torch_memory(tensor: Any) -> TensorMemory:
    check_torch_memory(tensor)
    itemsize = tensor.element_size()
    storage = tensor.untyped_storage()
    return TensorMemory(
        address=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        strides_bytes=tuple(stride * itemsize for stride in tensor.stride()),
        dtype=dtype_name(tensor.dtype),
        itemsize=itemsize,
        nbytes=tensor.numel() * itemsize,
        device="cpu",
        owner=tensor,
        storage=(storage.data_ptr(), storage.nbytes()),
    )


def _numpy_memory(array: Any, writable: bool) -> TensorMemory:
    interface = array.__array_interface__
    address, read_only = interface["data"]
    if writable and read_only:
        raise ValueError("a target tensor must be writable, got a read-only array")
    itemsize = array.dtype.itemsize
    return TensorMemory(
        address=address,
        shape=tuple(array.shape),
        strides_bytes=tuple(array.strides),
        dtype=dtype_name(array.dtype),
        itemsize=itemsize,
        nbytes=array.size * itemsize,
        device="cpu",
        owner=array,
        storage=_numpy_storage(array),
    )


def _numpy_storage(array: Any) -> tuple[int, int]:
    whole = array
    while hasattr(whole.base, "__array_interface__"):
        whole = whole.base
    span = whole.itemsize + sum(
        (extent - 1) * stride for extent, stride in zip(whole.shape, whole.strides, strict=True)
    )
    return whole.__array_interface__["data"][0], max(span, whole.nbytes)


def _dlpack_memory(tensor: Any, writable: bool) -> TensorMemory:
    import numpy

    array = numpy.from_dlpack(tensor)
    memory = _numpy_memory(array, writable)
    # numpy spells types it does not know (bfloat16) as raw bytes; the tensor's own name is right.
    name = dtype_name(getattr(tensor, "dtype", array.dtype))
    return TensorMemory(**{**vars(memory), "dtype": name, "owner": (tensor, array)})
