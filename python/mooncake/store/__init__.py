"""The ordinary Store: objects under keys, with the names, arguments and answers that KV-cache
connectors call it by.

    store = MooncakeDistributedStore()
    store.setup("host", "P2PHANDSHAKE", 1 << 30, 64 << 20, "tcp", "", "master:50051")
    store.put("key", b"value")
    store.get("key")

Failures are numbers, not exceptions. docs/store.md has every method and where it differs from the
module that it stands in for.
"""

from __future__ import annotations

from mooncake import _core

from ..buffer_pool import (
    BufferLease,
    BufferLeaseView,
    BufferPool,
    RegisteredBufferLease,
    RegisteredBufferLeaseView,
    RegisteredBufferPool,
)
from ._parallelism import ParallelAxis, ReadTarget, TensorParallelism
from ._unsupported import (
    EngramStore,
    EngramStoreConfig,
    MooncakeDistributedNoFRegister,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
)
from .descriptors import (
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    QueryTaskResponse,
    ReplicaDescriptor,
    ReplicaStatus,
    TaskStatus,
    TaskType,
)
from .distributed import MooncakeDistributedStore
from .host_memory import MooncakeHostMemAllocator

BufferHandle = _core.BufferHandle
ReplicateConfig = _core.ReplicateConfig
SoftPinAction = _core.SoftPinAction
ObjectDataType = _core.ObjectDataType

# The members of the enums but SoftPinAction are names of the module, too.
for _enum in (ObjectDataType, ReplicaStatus, TaskType, TaskStatus):
    globals().update({member.name: member for member in _enum})
del _enum

__all__ = [
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "EngramStore",
    "EngramStoreConfig",
    "MemoryDescriptor",
    "MooncakeDistributedNoFRegister",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
]
