"""What every family of the store's methods stands on: the core's client, and what setup said."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence
from typing import Any, Optional, Union

from mooncake import _core

from . import _codes as codes

__all__ = ["Key", "StoreClient", "check_config"]

Key = Union[str, bytes]
SOFT_PIN_TTL_MS_MAX = 86_400_000

ReplicateConfig = _core.ReplicateConfig


def check_config(
    config: Optional[ReplicateConfig],
    keys: int,
    *,
    tenant_id: str,
    same_node: bool = False,
) -> tuple[ReplicateConfig, int]:
    """(the config of a write of so many keys, 0 or why it is refused). None is the default.

    `same_node`: prefer_alloc_in_same_node has a meaning for this write. TypeError: no config.
    """
    if config is None:
        return ReplicateConfig(), codes.OK
    if not isinstance(config, ReplicateConfig):
        raise TypeError(f"config must be a ReplicateConfig, got {type(config).__name__}")
    return config, _refusal(config, keys, tenant_id, same_node)


def _refusal(config: ReplicateConfig, keys: int, tenant_id: str, same_node: bool) -> int:
    if config.nof_replica_num > 0 or config.replica_num == 0:
        return codes.INVALID_PARAMS  # all copies are in memory
    if config.dfs_replica_num > 0:
        usable = config.dfs_replica_num == 1 and tenant_id == "default"
        return codes.DFS_SERVICE_UNAVAILABLE if usable else codes.INVALID_PARAMS
    ttl_ms = config.soft_pin_ttl_ms
    enable = config.soft_pin_action == _core.SoftPinAction.ENABLE
    if ttl_ms is not None and (not enable or ttl_ms > SOFT_PIN_TTL_MS_MAX):
        return codes.INVALID_PARAMS
    if config.prefer_alloc_in_same_node and (not same_node or config.replica_num != 1):
        return codes.INVALID_PARAMS
    if config.group_ids is not None and len(config.group_ids) != keys:
        return codes.INVALID_PARAMS
    return codes.OK


class StoreClient:
    """Owns the core's client between setup and close, and the regions that were registered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._core: Optional[_core.ObjectStore] = None
        self._tenant_id = "default"
        self._region_starts: list[int] = []
        self._region_ends: list[int] = []

    # ---- registered memory ----

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Announces memory of this process, from address `buffer_ptr`, `size` bytes.

        0; -600: null, empty, or overlapping a registered region. This store reads and writes any
        memory of the process; what is registered is what get_into_ranges may write to.
        """
        begin, size = _address(buffer_ptr, "buffer_ptr"), _address(size, "size")
        with self._lock:
            if self._core is None or begin == 0 or size == 0 or begin + size > 2**64:
                return codes.INVALID_PARAMS
            at = bisect.bisect_right(self._region_starts, begin)
            before = at > 0 and self._region_ends[at - 1] > begin
            behind = at < len(self._region_starts) and self._region_starts[at] < begin + size
            if before or behind:
                return codes.INVALID_PARAMS
            self._region_starts.insert(at, begin)
            self._region_ends.insert(at, begin + size)
            return codes.OK

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """0; -600: no registered region begins at that address."""
        begin = _address(buffer_ptr, "buffer_ptr")
        with self._lock:
            at = bisect.bisect_left(self._region_starts, begin)
            if at == len(self._region_starts) or self._region_starts[at] != begin:
                return codes.INVALID_PARAMS
            del self._region_starts[at], self._region_ends[at]
            return codes.OK

    def _registered_from(self, address: int) -> int:
        """Bytes from `address` to the end of its region; 0: it is in none."""
        with self._lock:
            at = bisect.bisect_right(self._region_starts, address) - 1
            if at >= 0 and address < self._region_ends[at]:
                return self._region_ends[at] - address
        core = self._core
        return 0 if core is None else core.handle_bytes_from(address)

    def _forget_regions(self) -> None:
        self._region_starts, self._region_ends = [], []

    # ---- what answers have in common ----

    def _check_config(
        self, config: Optional[ReplicateConfig], keys: int, same_node: bool = False
    ) -> tuple[ReplicateConfig, int]:
        return check_config(config, keys, tenant_id=self._tenant_id, same_node=same_node)


def _address(value: Any, name: str) -> int:
    """`value` as an int that is not negative; TypeError otherwise."""
    try:
        number = value.__index__()
    except AttributeError:
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}") from None
    if number < 0:
        raise TypeError(f"{name}: expected 0 or more, got {number}")
    return number


def same_for_all(keys: Sequence[Any], code: int) -> list[int]:
    """`code` for every key."""
    if isinstance(keys, (str, bytes)):
        raise TypeError("keys: expected a sequence of keys, got one key")
    return [code] * len(keys)
