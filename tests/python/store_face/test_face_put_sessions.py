"""Objects that are written in parts, between the start and the end of a session (section 9)."""

from __future__ import annotations

import pytest
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from payloads import Memory, payload

SIZE = 300_000
LAYER = 30_000


@pytest.fixture
def memory():
    return Memory.of(payload(1, SIZE))


def test_layer_by_layer(store, client, key, memory):
    keys = [key, key + "/b"]
    assert store.batch_put_session_start(keys, [SIZE, SIZE]) == [0, 0]
    other = client()
    for begin in range(0, SIZE, LAYER):
        ptrs = [[memory.ptr + begin, memory.ptr + begin + 10_000]] * 2
        sizes = [[10_000, LAYER - 10_000]] * 2
        offsets = [[begin, begin + 10_000]] * 2
        written = store.batch_put_from_multi_buffer_ranges(keys, ptrs, sizes, offsets)
        assert written == [LAYER, LAYER]
        assert other.is_exist(key) == 0 and other.get_size(key) == -703
    assert store.batch_put_session_end(keys) == [0, 0]
    assert other.get_batch(keys) == [payload(1, SIZE)] * 2
    assert store.batch_put_session_end(keys) == [-600, -600]


def test_parts_need_not_cover_the_object(store, key, memory):
    assert store.batch_put_session_start([key], [100]) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[memory.ptr]], [[8]], [[50]]) == [8]
    assert store.batch_put_session_end([key]) == [0]
    assert store.get(key) == bytes(50) + payload(1, 8) + bytes(42)


def test_start(store, client, key, memory):
    assert store.put(key, b"there") == 0
    keys = [key, key + "/a", key + "/a", key + "/none"]
    assert store.batch_put_session_start(keys, [8, 8, 8, 0]) == [-705, 0, -600, -600]
    assert store.batch_put_session_start([key + "/a"], [8]) == [-600]
    # Somebody else's unfinished one: a session says so, a put is content.
    assert client().batch_put_session_start([key + "/a"], [8]) == [-705]
    assert client().put(key + "/a", b"other") == 0
    assert store.batch_put_session_start([key + "/big"], [1 << 40]) == [-200]
    assert store.batch_put_session_start([], []) == []
    assert store.batch_put_session_start([key + "/c", key + "/d"], [8]) == [-600, -600]
    assert store.batch_put_session_revoke([key + "/a"]) == [0]
    assert store.batch_put_session_start([key + "/a"], [8]) == [0]
    with pytest.raises(TypeError):
        store.batch_put_session_start([key + "/e"], [8.0])
    with pytest.raises(TypeError):
        store.batch_put_session_start("key", [8])


def test_config(store, key, memory):
    def start(**attributes):
        config = ReplicateConfig()
        for name, value in attributes.items():
            setattr(config, name, value)
        return store.batch_put_session_start([key], [8], config)

    assert start(nof_replica_num=1) == [-600] and start(dfs_replica_num=1) == [-1601]
    assert start(prefer_alloc_in_same_node=True) == [-600]
    assert start(group_ids=["a", "b"]) == [-600] and start(group_ids=["a"]) == [0]
    store.batch_put_session_revoke([key])
    assert start(replica_num=3, with_hard_pin=True) == [0]
    assert store.batch_put_from_multi_buffer_ranges([key], [[memory.ptr]], [[8]], [[0]]) == [8]
    assert store.batch_put_session_end([key]) == [0] and store.get(key) == payload(1, 8)
    with pytest.raises(TypeError):
        store.batch_put_session_start([key], [8], {"replica_num": 1})


def test_writes_that_are_refused(store, key, memory):
    write = store.batch_put_from_multi_buffer_ranges
    store.batch_put_session_start([key], [100])
    ptr = memory.ptr
    # Beyond the object; no session; lists of different lengths, of one key and of all.
    assert write([key, "none"], [[ptr], [ptr]], [[101], [1]], [[0], [0]]) == [-600, -600]
    assert write([key, key], [[ptr, ptr], [ptr]], [[1], [10]], [[0], [90]]) == [-600, 10]
    assert write([key], [[ptr], [ptr]], [[1]], [[0]]) == [-600]
    # Over an earlier part, null, no memory of the process, and nothing at all.
    assert write([key], [[ptr]], [[5]], [[95]]) == [-600]
    assert write([key], [[0]], [[5]], [[0]]) == [-600] == write([key], [[8]], [[5]], [[0]])
    assert write([key], [[]], [[]], [[]]) == [0] == write([key], [[ptr]], [[0]], [[0]])
    assert write([], [], [], []) == []
    assert write([key], [[ptr]], [[90]], [[0]]) == [90]
    assert store.batch_put_session_end([key]) == [0]
    assert store.get(key) == payload(1, 90) + payload(1, 10)


def test_revoke(store, key, memory):
    store.batch_put_session_start([key], [100])
    store.batch_put_from_multi_buffer_ranges([key], [[memory.ptr]], [[8]], [[0]])
    assert store.batch_put_session_revoke([key, "none"]) == [0, -600]
    assert store.batch_put_session_end([key]) == [-600] and store.get_size(key) == -704
    assert store.put(key, b"v") == 0 and store.get(key) == b"v"


def test_a_store_that_is_closed_takes_its_sessions_back(client, key):
    store = client()
    assert MooncakeDistributedStore().batch_put_session_start([key], [8]) == []
    assert MooncakeDistributedStore().batch_put_session_revoke([key]) == []
    store.batch_put_session_start([key], [100])
    store.close()
    assert store.batch_put_session_start([key], [8]) == []
    assert store.batch_put_from_multi_buffer_ranges([key], [[1]], [[1]], [[1]]) == []
    assert store.batch_put_session_end([key]) == []
    other = client()
    assert other.get_size(key) == -704 and other.put(key, b"v") == 0
