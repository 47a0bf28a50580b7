"""A fragment's live memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from mooncake import _core
from mooncake.reshard.contracts.identity import PlacementFragmentId, RuntimeFragmentId


@dataclass(frozen=True)
class RuntimeBindingFragment:
    """One placement fragment in one process's memory: a strided view of one allocation.

    `address` is the view's first byte, `storage_*` the allocation it lies in. `owner` keeps the
    memory alive; it is neither compared nor shown nor pickled.
    """

    placement_fragment_id: PlacementFragmentId
    fragment_id: RuntimeFragmentId
    address: int
    nbytes: int
    worker_id: str
    endpoint: str
    device: str
    itemsize: int
    local_shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    storage_address: int
    storage_nbytes: int
    storage_offset_bytes: int
    owner: Optional[object] = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _core.check_runtime_binding_fragment(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that bytes from elsewhere are checked again; without the
        # owner, which means nothing in another process.
        return type(self), (
            self.placement_fragment_id,
            self.fragment_id,
            self.address,
            self.nbytes,
            self.worker_id,
            self.endpoint,
            self.device,
            self.itemsize,
            self.local_shape,
            self.strides_bytes,
            self.storage_address,
            self.storage_nbytes,
            self.storage_offset_bytes,
        )
