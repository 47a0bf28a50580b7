"""What the module exports, and its value types (sections 2 and 4)."""

from __future__ import annotations

import copy

import mooncake.store as module
import numpy as np
import pytest
from mooncake.store import (
    MooncakeHostMemAllocator,
    ObjectDataType,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)
from mooncake.store import _codes as codes
from payloads import payload

EXPORTS = """
MooncakeDistributedStore ReplicateConfig SoftPinAction ObjectDataType ReplicaStatus
ReplicaDescriptor MemoryDescriptor DiskDescriptor Descriptor TaskType TaskStatus
QueryTaskResponse BufferHandle BufferPool BufferLease BufferLeaseView RegisteredBufferPool
RegisteredBufferLease RegisteredBufferLeaseView MooncakeHostMemAllocator ParallelAxis
TensorParallelism ReadTarget MooncakeDistributedNoFRegister EngramStore EngramStoreConfig
bind_to_numa_node get_alloc_func_addr get_free_func_addr
"""


def test_every_name_is_there():
    for name in EXPORTS.split():
        assert hasattr(module, name), name
    from mooncake.async_store import MooncakeDistributedStoreAsync
    from mooncake.buffer_pool import BufferPool
    from mooncake.mooncake_config import MooncakeConfig

    assert issubclass(MooncakeDistributedStoreAsync, module.MooncakeDistributedStore)
    assert BufferPool is module.BufferPool and MooncakeConfig
    # Codes are compared with bare ints and are no names of the module.
    assert not hasattr(module, "NO_AVAILABLE_HANDLE") and not hasattr(module, "ErrorCode")


def test_what_is_not_built_says_so():
    unbuilt = (
        module.MooncakeDistributedNoFRegister,
        module.EngramStore,
        module.EngramStoreConfig,
        module.get_alloc_func_addr,
        module.get_free_func_addr,
    )
    for make in unbuilt:
        with pytest.raises(NotImplementedError, match="not supported"):
            make()


def test_enum_values():
    assert [int(a) for a in SoftPinAction] == [0, 1, 2]
    assert [a.name for a in SoftPinAction] == ["PRESERVE", "ENABLE", "DISABLE"]
    names = "UNKNOWN KVCACHE TENSOR WEIGHT SAMPLE ACTIVATION GRADIENT OPTIMIZER_STATE METADATA"
    assert [t.name for t in ObjectDataType] == [*names.split(), "GENERAL"]
    assert [int(t) for t in ObjectDataType] == list(range(10))
    names = "UNDEFINED INITIALIZED PROCESSING COMPLETE REMOVED FAILED"
    assert [s.name for s in ReplicaStatus] == names.split()
    assert [int(s) for s in ReplicaStatus] == list(range(6))
    assert [t.name for t in TaskType] == ["REPLICA_COPY", "REPLICA_MOVE"]
    assert [s.name for s in TaskStatus] == ["PENDING", "PROCESSING", "SUCCESS", "FAILED"]
    assert module.KVCACHE == ObjectDataType.KVCACHE and module.COMPLETE == ReplicaStatus.COMPLETE
    assert not hasattr(module, "PRESERVE")


def test_config_defaults_and_types():
    config = ReplicateConfig()
    assert config.replica_num == 1
    assert config.nof_replica_num == 0 and config.dfs_replica_num == 0
    assert config.soft_pin_action == SoftPinAction.PRESERVE and config.soft_pin_ttl_ms is None
    assert config.with_hard_pin is False and config.prefer_alloc_in_same_node is False
    assert config.preferred_segments == [] and config.preferred_segment == ""
    assert config.preferred_nof_segments == [] and config.group_ids is None
    assert config.data_type == ObjectDataType.UNKNOWN
    config.preferred_segments = ["a:1", "b:2"]
    config.group_ids = ["g", ""]
    config.soft_pin_ttl_ms = 5
    config.data_type = ObjectDataType.KVCACHE
    copied = copy.copy(config)
    copied.replica_num = 3
    assert (config.replica_num, copied.group_ids) == (1, ["g", ""])
    for text in ("replica_num: 1", "a:1 b:2", "soft_pin_ttl_ms: 5", "KVCACHE"):
        assert text in str(config)
    config.group_ids = config.soft_pin_ttl_ms = None
    assert config.group_ids is None and config.soft_pin_ttl_ms is None


def test_config_refuses_other_attributes_and_types():
    config = ReplicateConfig()
    with pytest.raises(AttributeError):
        config.with_soft_pin = True
    assert not hasattr(config, "with_soft_pin") and hasattr(config, "group_ids")
    for name, wrong in (
        ("replica_num", "2"),
        ("replica_num", -1),
        ("preferred_segment", 3),
        ("group_ids", "ab"),
    ):
        with pytest.raises(TypeError):
            setattr(config, name, wrong)


def _config(**attributes):
    config = ReplicateConfig()
    for name, value in attributes.items():
        setattr(config, name, value)
    return config


@pytest.mark.parametrize(
    ("attributes", "answer"),
    [
        ({"replica_num": 0}, codes.INVALID_PARAMS),
        ({"nof_replica_num": 1}, codes.INVALID_PARAMS),
        ({"dfs_replica_num": 1}, codes.DFS_SERVICE_UNAVAILABLE),
        ({"dfs_replica_num": 2}, codes.INVALID_PARAMS),
        ({"dfs_replica_num": 1, "replica_num": 0}, codes.INVALID_PARAMS),
        ({"soft_pin_ttl_ms": 1000}, codes.INVALID_PARAMS),
        (
            {"soft_pin_action": SoftPinAction.ENABLE, "soft_pin_ttl_ms": 86_400_001},
            codes.INVALID_PARAMS,
        ),
        ({"soft_pin_action": SoftPinAction.ENABLE, "soft_pin_ttl_ms": 86_400_000}, 0),
        ({"soft_pin_action": SoftPinAction.ENABLE}, 0),
        ({"soft_pin_action": SoftPinAction.ENABLE, "soft_pin_ttl_ms": 0}, 0),
        ({"soft_pin_action": SoftPinAction.DISABLE}, 0),
        ({"with_hard_pin": True, "data_type": ObjectDataType.WEIGHT}, 0),
        ({"prefer_alloc_in_same_node": True}, codes.INVALID_PARAMS),
        ({"group_ids": ["g"]}, 0),
        ({"group_ids": [""]}, 0),
        ({"group_ids": []}, codes.INVALID_PARAMS),
        ({"group_ids": ["a", "b"]}, codes.INVALID_PARAMS),
        ({"replica_num": 3}, 0),  # best effort: one node, one copy
        ({"replica_num": 1 << 40}, 0),
        ({"preferred_segment": "nobody:1"}, 0),
        ({"preferred_segments": ["nobody:1", "nobody:2"]}, 0),
    ],
)
def test_config_of_a_put(store, key, attributes, answer):
    config = _config(**attributes)
    assert store.put(key, b"value", config) == answer
    assert store.is_exist(key) == (1 if answer == 0 else 0)
    assert store.batch_put_from([key + "b"], [config_memory.ctypes.data], [8], config) == [answer]


config_memory = np.zeros(8, dtype=np.uint8)


def test_config_may_be_none_and_nothing_else(store, key):
    assert store.put(key, b"v", None) == 0
    assert store.put(key, b"v", config=None) == 0
    assert store.put_batch([key], [b"v"], None) == 0
    for wrong in ({}, 1, "config"):
        with pytest.raises(TypeError, match="config"):
            store.put(key, b"v", wrong)


def test_hard_pins_can_be_removed_by_their_owner(store, key):
    assert store.put(key, b"v", _config(with_hard_pin=True)) == 0
    assert store.remove(key) == 0


def test_same_node_is_for_pieces(store, key):
    config = _config(prefer_alloc_in_same_node=True)
    memory = config_memory.ctypes.data
    assert store.batch_put_from_multi_buffers([key], [[memory]], [[8]], config) == [0]
    assert store.put_from_with_metadata(key, memory, memory, 8, 8, config) == -1
    config.replica_num = 2
    answer = store.batch_put_from_multi_buffers([key + "2"], [[memory]], [[8]], config)
    assert answer == [codes.INVALID_PARAMS]


def test_handles(store, key):
    content = payload(5, 100_000)
    store.put(key, content)
    handle = store.get_buffer(key)
    assert handle.size() == len(handle) == len(content)
    view = memoryview(handle)
    assert (view.format, view.itemsize, view.ndim, view.readonly) == ("b", 1, 1, False)
    assert bytes(handle) == content
    array = np.asarray(handle)
    assert array.ctypes.data == handle.ptr() and array.tobytes() == content
    # A view keeps the memory, whatever becomes of handle and store.
    del handle, view
    store.close()
    assert array.tobytes() == content


def test_host_memory():
    allocator = MooncakeHostMemAllocator()
    address = allocator.alloc(10_000)
    assert address > 0 and address % 4096 == 0
    assert allocator.free(address) == 0
    assert allocator.free(address) == -1
    for size in (0, -1, 1 << 62):
        with pytest.raises(RuntimeError):
            allocator.alloc(size)
