"""What the store's classes share of the C++ core: its errors, its plain values, and forks."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Mapping
from typing import Any

from mooncake import _core

from .errors import error_for
from .management import (
    WeightAvailability,
    WeightIdentity,
    WeightMigrationMode,
    WeightResidencyState,
    WeightRevisionMetadata,
    WeightStoragePolicy,
)

__all__ = ["metadata_of", "open_cores", "store_errors"]

# What this process has open: a forked child has to keep its hands off it.
# Each holder keeps its core as `_core`.
open_cores: weakref.WeakSet[Any] = weakref.WeakSet()
_own_pid = os.getpid()


class _ParentsCore:
    """Takes the core's place in a forked child, where the parent's threads and channels are not."""

    def __init__(self, parent_pid: int) -> None:
        self._parent_pid = parent_pid

    def close(self) -> None:
        """Nothing here is the child's to close."""

    def __getattr__(self, name: str) -> Any:
        raise error_for(
            "UNAVAILABLE",
            f"this WeightStore was opened by process {self._parent_pid}, before the fork: "
            f"process {os.getpid()} needs its own",
        )


def _leave_cores_to_the_parent() -> None:
    """In a forked child: destroying a core would join threads that only the parent has, for ever,
    and end the parent's publish. So the child never destroys them."""
    global _own_pid
    # Not getppid(): the parent may have ended by now.
    parent_pid, _own_pid = _own_pid, os.getpid()
    for holder in list(open_cores):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder._core))
        holder._core = _ParentsCore(parent_pid)
    open_cores.clear()


os.register_at_fork(after_in_child=_leave_cores_to_the_parent)


class store_errors:
    """Turns the core's errors into `WeightStoreError`s, also contract errors met on the way."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind, error, traceback) -> None:
        if isinstance(error, _core.StoreError):
            code, message = error.args
            raise error_for(code, message) from None


def metadata_of(fields: Mapping[str, Any]) -> WeightRevisionMetadata:
    """The core's plain values as the public dataclass."""
    values = dict(fields)
    values["identity"] = WeightIdentity(*values["identity"])
    values["availability"] = WeightAvailability(values["availability"])
    values["observed_residency"] = WeightResidencyState(values["observed_residency"])
    preferred, ratio, mode = values["policy"]
    values["policy"] = WeightStoragePolicy(
        WeightResidencyState(preferred), ratio, WeightMigrationMode(mode)
    )
    return WeightRevisionMetadata(**values)
