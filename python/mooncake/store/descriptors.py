"""Where the copies of an object are, and what became of background tasks: plain values."""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Union

__all__ = [
    "Descriptor",
    "DiskDescriptor",
    "MemoryDescriptor",
    "QueryTaskResponse",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "TaskStatus",
    "TaskType",
]


class ReplicaStatus(IntEnum):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(IntEnum):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(IntEnum):
    PENDING = 0
    PROCESSING = 1
    SUCCESS = 2
    FAILED = 3


@dataclasses.dataclass(frozen=True)
class Descriptor:
    """Memory of a segment: bytes, where in the segment, and the segment's name."""

    size: int
    buffer_address: int
    transport_endpoint: str


@dataclasses.dataclass(frozen=True)
class MemoryDescriptor:
    buffer_descriptor: Descriptor


@dataclasses.dataclass(frozen=True)
class DiskDescriptor:
    file_path: str
    object_size: int


@dataclasses.dataclass(frozen=True)
class ReplicaDescriptor:
    """One copy of an object."""

    status: ReplicaStatus
    _where: Union[MemoryDescriptor, DiskDescriptor]

    def is_memory_replica(self) -> bool:
        return isinstance(self._where, MemoryDescriptor)

    def is_disk_replica(self) -> bool:
        return isinstance(self._where, DiskDescriptor)

    def is_local_disk_replica(self) -> bool:
        return False

    def get_memory_descriptor(self) -> MemoryDescriptor:
        """RuntimeError: it is not in memory."""
        if not isinstance(self._where, MemoryDescriptor):
            raise RuntimeError("this copy is not in memory")
        return self._where

    def get_disk_descriptor(self) -> DiskDescriptor:
        """RuntimeError: it is not on disk."""
        if not isinstance(self._where, DiskDescriptor):
            raise RuntimeError("this copy is not on disk")
        return self._where


@dataclasses.dataclass(frozen=True)
class QueryTaskResponse:
    """A background task, times in milliseconds since 1970."""

    id: tuple[int, int]
    type: TaskType
    status: TaskStatus
    created_at_ms_epoch: int
    last_updated_at_ms_epoch: int
    assigned_client: tuple[int, int]
    message: str
