"""Removal, and where copies lie: segments, copies, tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Optional, Union

from . import _codes as codes
from ._client import Key, StoreClient, same_for_all
from .descriptors import (
    Descriptor,
    MemoryDescriptor,
    QueryTaskResponse,
    ReplicaDescriptor,
    ReplicaStatus,
)

__all__ = ["Placement"]

logger = logging.getLogger("mooncake.store")

TaskAnswer = tuple[tuple[int, int], int]


class Placement(StoreClient):
    def __init__(self) -> None:
        super().__init__()
        self._segments = 0  # that were mounted, ever
        self._mounted: set[str] = set()

    # ---- removal ----

    def remove(self, key: Key, force: bool = False) -> int:
        """0; -704: there is none; -706: a reader's lease protects it (not with `force`), or it is
        part of a weight revision; -703: it is being written."""
        core = self._core
        return codes.INVALID_PARAMS if core is None else core.remove([key], force)[0]

    def batch_remove(self, keys: Sequence[Key], force: bool = False) -> list[int]:
        """remove for many."""
        core = self._core
        return (
            same_for_all(keys, codes.INVALID_PARAMS) if core is None else core.remove(keys, force)
        )

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """Removes what the pattern (ECMAScript, without back-references) is found in: how many;
        -600: no pattern. What has a lease (without `force`) or is being written stays."""
        core = self._core
        return codes.INVALID_PARAMS if core is None else core.remove_by_regex(regex_pattern, force)

    def remove_all(self, force: bool = False) -> int:
        """Removes all of this tenant, pinned or not: how many. Leased ones stay, unless `force`."""
        core = self._core
        return codes.INVALID_PARAMS if core is None else core.remove_all(force)

    # ---- copies ----

    def get_replica_desc(self, key: Key) -> list[ReplicaDescriptor]:
        """Its readable copies; [] when there is none."""
        return next(iter(self.batch_get_replica_desc([key]).values()), [])

    def batch_get_replica_desc(self, keys: Sequence[Key]) -> dict[Key, list[ReplicaDescriptor]]:
        """get_replica_desc for many; missing keys are left out."""
        core = self._core
        if core is None:
            return {}
        found = {}
        for key, object_ in zip(keys, core.locate(keys), strict=True):
            if isinstance(object_, int):
                continue
            _, size, replicas, _ = object_
            found[key] = [
                ReplicaDescriptor(
                    ReplicaStatus.COMPLETE, MemoryDescriptor(Descriptor(size, offset, node_id))
                )
                for node_id, _slab, offset in replicas
            ]
        return found

    def batch_replica_clear(self, keys: Sequence[Key], segment_name: str = "") -> list[Key]:
        """Removes all copies of what nobody reads, and says of which keys. Copies of one segment
        alone are not removed: [] with a segment's name."""
        core = self._core
        if core is None:
            return []
        if segment_name:
            logger.warning("batch_replica_clear: single copies are not removed here")
            return []
        codes_ = core.remove(keys, False)
        return [key for key, code in zip(keys, codes_, strict=True) if code == codes.OK]

    # ---- segments ----

    def allocate_and_mount_segment(
        self, size: int, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Lends `size` more bytes of this process: {"ret": 0 or -1, "segment_ids": [id],
        "allocated_size": size}."""
        with self._lock:
            self._segments += 1
            name = f"{self.get_hostname()}-{self._segments}"
        if protocol != "tcp" or self._lend(name, size) != codes.OK:
            return {"ret": codes.INTERNAL_ERROR, "segment_ids": [], "allocated_size": 0}
        with self._lock:
            self._mounted.add(name)
        return {"ret": codes.OK, "segment_ids": [name], "allocated_size": size}

    def unmount_and_free_segment(
        self, segment_ids: Sequence[str], grace_period_seconds: int = 0
    ) -> int:
        """Takes lent memory back, with the copies in it, at once: 0, or -101 for an id that is
        none."""
        return self.unmount_segment(segment_ids, grace_period_seconds)

    def unmount_segment(self, segment_ids: Sequence[str], grace_period_seconds: int = 0) -> int:
        """As unmount_and_free_segment."""
        answer = codes.OK
        for name in segment_ids:
            core = self._core
            with self._lock:
                known = name in self._mounted
                self._mounted.discard(name)
            if known and core is not None:
                core.unlend(name)
            elif answer == codes.OK:
                answer = codes.SEGMENT_NOT_FOUND
        return answer

    def mount_segment(
        self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """Files are not lent as memory: always {"ret": -1, "segment_ids": []}."""
        logger.warning("mount_segment: memory is lent by allocate_and_mount_segment only")
        return {"ret": codes.INTERNAL_ERROR, "segment_ids": []}

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """There is none: -1012."""
        return codes.NOT_SUPPORTED

    def alloc_from_mem_pool(self, size: int) -> int:
        """A pool exists only behind setup_dummy: always 0."""
        return 0

    def get_offload_rpc_read_count(self) -> int:
        """Nothing is offloaded to disk: 0."""
        return 0

    # ---- tasks ----

    def create_copy_task(self, key: Key, targets: Sequence[str]) -> TaskAnswer:
        """Copies are made by put alone: ((0, 0), -1012)."""
        return (0, 0), codes.NOT_SUPPORTED

    def create_move_task(self, key: Key, source: str, target: str) -> TaskAnswer:
        """As create_copy_task."""
        return (0, 0), codes.NOT_SUPPORTED

    def query_task(
        self, task_id: Union[tuple[int, int], Any]
    ) -> tuple[Optional[QueryTaskResponse], int]:
        """There are no tasks: (None, -1400)."""
        return None, codes.TASK_NOT_FOUND

    # ---- given by the store ----

    def get_hostname(self) -> str:
        raise NotImplementedError

    def _lend(self, name: str, size: int) -> int:
        raise NotImplementedError
