"""put and upsert in all their forms (section 5)."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from mooncake.store import ReplicateConfig
from payloads import Memory, payload

MIB = 1 << 20


@pytest.mark.parametrize("size", [1, 7, 63, 64, 65, 4097, 65_537, 3_000_001])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_put_and_get(store, key, size, kind):
    content = payload(size, size)
    value = kind(content) if kind is not np.frombuffer else np.frombuffer(content, np.uint8)
    assert store.put(key, value) == 0
    assert store.get(key) == content
    assert store.get_size(key) == size


def test_keys(store):
    for name in ("é/ü\n", "a" * 10_000, b"\xff\x00raw", "x"):
        assert store.put(name, b"v") == 0 and store.get(name) == b"v"
    assert store.put(b"x", b"other") == 0 and store.get(b"x") == b"v"  # the same key
    assert store.put("", b"v") == -600 and store.put(b"", b"v") == -600
    assert store.put_batch(["", "y"], [b"a", b"b"]) == -600 and store.get("y") == b"b"
    for wrong in (1, None, ["k"], bytearray(b"k")):
        with pytest.raises(TypeError):
            store.put(wrong, b"v")
    for wrong in ("keys", b"keys", 3):
        with pytest.raises(TypeError):
            store.batch_is_exist(wrong)
    assert store.batch_is_exist(("x", b"x", "none")) == [1, 1, 0]
    assert store.batch_is_exist(np.array(["x", "none"], dtype=object)) == [1, 0]


def test_an_existing_key_is_left_alone(store, key):
    first = payload(1, 100)
    memory = Memory.of(payload(2, 1000))
    assert store.put(key, first) == 0
    assert store.put(key, payload(2, 1000)) == 0
    assert store.put_parts(key, b"a", b"b") == 0
    assert store.put_batch([key], [b"b"]) == 0
    assert store.put_from(key, memory.ptr, 1000) == 0
    assert store.batch_put_from([key], [memory.ptr], [1000]) == [0]
    assert store.batch_put_from_multi_buffers([key], [[memory.ptr]], [[10]]) == [0]
    assert store.put_from_with_metadata(key, memory.ptr, memory.ptr, 10, 10) == 0
    assert store.get(key) == first


def test_upserts_replace(store, key):
    memory = Memory.of(payload(2, 1000))
    assert store.upsert(key, payload(1, 100)) == 0  # an absent key is put
    for expected, call in (
        (payload(2, 1000), lambda: store.upsert(key, value=payload(2, 1000))),
        (payload(3, 1000), lambda: store.upsert(key, payload(3, 1000))),
        (b"abc", lambda: store.upsert_parts(key, b"a", b"bc")),
        (b"batch", lambda: store.upsert_batch([key], [b"batch"])),
        (memory.read(), lambda: store.upsert_from(key, memory.ptr, 1000)),
        (memory.read(0, 8), lambda: store.batch_upsert_from([key], [memory.ptr], [8])),
    ):
        assert call() in (0, [0])
        assert store.get(key) == expected


def test_zero_sizes(store, key):
    memory = Memory(8)
    assert store.put(key, b"") == -600
    assert store.upsert(key, b"") == -600
    assert store.put_batch([key, key + "x"], [b"v", b""]) == -600
    assert store.upsert_batch([key, key + "x"], [b"v", b""]) == -600
    assert store.put_from(key, memory.ptr, 0) == 0
    assert store.upsert_from(key, memory.ptr, 0) == 0
    assert store.put_from_with_metadata(key, memory.ptr, memory.ptr, 0, 8) == 0
    assert store.put_parts(key) == 0
    assert store.put_parts(key, b"", b"") == 0
    assert store.upsert_parts(key, b"") == 0
    assert store.is_exist(key) == 0
    other = key + "other"
    for method in (store.batch_put_from, store.batch_upsert_from):
        assert method([key, other], [memory.ptr] * 2, [0, 8]) == [-600, 0]
    pieces = [[memory.ptr, memory.ptr], [memory.ptr]]
    answer = store.batch_put_from_multi_buffers([key, other + "m"], pieces, [[0, 0], [8]])
    assert answer == [-600, 0]
    assert store.is_exist(key) == 0 and store.is_exist(other) == 1


def test_empty_lists(store):
    assert store.put_batch([], []) == 0 and store.upsert_batch([], []) == 0
    assert store.batch_put_from([], [], []) == [] and store.batch_upsert_from([], [], []) == []
    assert store.batch_put_from_multi_buffers([], [], []) == []


def test_lists_of_different_lengths(store, key):
    memory = Memory(8)
    keys = [key, key + "2"]
    assert store.put_batch(keys, [b"v"]) == -600
    assert store.put_batch([], [b"v"]) == -600
    assert store.batch_put_from(keys, [memory.ptr], [8, 8]) == [-600, -600]
    assert store.batch_put_from(keys, [memory.ptr] * 2, [8]) == [-600, -600]
    assert store.batch_put_from([], [memory.ptr], [8]) == []
    ptrs, sizes = [[memory.ptr], [memory.ptr]], [[8], [8, 8]]
    # One key's lists of different lengths are all keys' failure.
    assert store.batch_put_from_multi_buffers(keys, ptrs, sizes) == [-600, -600]
    assert store.batch_put_from_multi_buffers(keys, ptrs, [[8]]) == [-600, -600]
    assert store.batch_is_exist(keys) == [0, 0]
    config = ReplicateConfig()
    config.group_ids = ["g"]
    assert store.batch_put_from(keys, [memory.ptr] * 2, [8, 8], config) == [-600, -600]


def test_duplicate_keys(store, key):
    memory = Memory.of(payload(1, 8) + payload(2, 8) + payload(3, 8))
    ptrs = [memory.ptr, memory.ptr + 8, memory.ptr + 16]
    keys = [key, key + "other", key]
    assert store.batch_put_from(keys, ptrs, [8, 8, 8]) == [0, 0, 0]
    assert store.get(key) == payload(3, 8)  # the last buffer
    batch = [key + "b", key + "b"]
    assert store.put_batch(batch, [b"first", b"second"]) == 0
    assert store.get(key + "b") == b"first"
    config = ReplicateConfig()
    config.group_ids = ["g1", "g2", "g3"]
    grouped = [key + "g", key + "h", key + "g"]
    assert store.batch_put_from(grouped, ptrs, [8, 8, 8], config) == [0, 0, 0]
    assert store.get(key + "g") == payload(3, 8)


def test_elements_count_as_bytes(store, key):
    array = np.arange(100, dtype=np.uint32)
    assert store.put(key, array) == 0
    assert store.get(key) == array.tobytes()[:100]  # a quarter of it
    assert store.put(key + "2", array.reshape(4, 25)) == 0
    assert store.get_size(key + "2") == 100
    # Strides are ignored; what would lie outside of the value's memory is refused.
    bytes_ = np.arange(100, dtype=np.uint8)
    assert store.put(key + "3", bytes_[::2]) == 0
    assert store.get(key + "3") == bytes_.tobytes()[:50]
    for value in (bytes_[::-1], np.broadcast_to(bytes_[:1], (100,))):
        assert store.put(key + "4", value) == -600
    for value in ("text", 5, None, [1, 2]):
        with pytest.raises(TypeError):
            store.put(key + "5", value)
        with pytest.raises(TypeError):
            store.put_batch([key + "5"], [value])


def test_parts(store, key):
    parts = [payload(1, 100), bytearray(b""), memoryview(payload(2, 13)), np.arange(9, dtype="u1")]
    assert store.put_parts(key, *parts) == 0
    assert store.get(key) == b"".join(bytes(part) for part in parts)
    config = ReplicateConfig()
    assert store.put_parts(key + "2", b"ab", config=config) == 0
    assert store.put_parts(key + "3", b"ab", config=None) == 0
    for wrong in (np.arange(4, dtype=np.uint32), np.zeros((2, 2), np.uint8), np.arange(9)[::2]):
        with pytest.raises(RuntimeError):
            store.put_parts(key + "4", b"good", wrong)
    with pytest.raises(TypeError):
        store.put_parts(key + "4", b"good", 7)
    assert store.is_exist(key + "4") == 0


def test_addresses(store, key):
    memory = Memory.of(payload(7, 4096))
    assert store.put_from(key, np.uint64(memory.ptr), np.int64(4096)) == 0
    assert store.get(key) == memory.read()
    for wrong in (1.0, -1, "1", None, 1 << 64):
        with pytest.raises(TypeError):
            store.put_from(key + "2", wrong, 8)
        with pytest.raises(TypeError):
            store.batch_put_from([key + "2"], [wrong], [8])
        with pytest.raises(TypeError):
            store.batch_put_from_multi_buffers([key + "2"], [[wrong]], [[8]])
    assert store.put_from(key + "2", 0, 8) == -600  # a null pointer
    assert store.batch_put_from([key + "2", key + "3"], [0, memory.ptr], [8, 8]) == [-600, 0]
    # Source memory is free again when the call returns.
    memory.array[:] = 0
    assert store.get(key) == payload(7, 4096)


def test_metadata_before_data(store, key):
    meta, data = Memory.of(b"meta!"), Memory.of(payload(1, 1000))
    assert store.put_from_with_metadata(key, data.ptr, meta.ptr, 1000, 5) == 0
    assert store.get(key) == b"meta!" + payload(1, 1000)
    assert store.put_from_with_metadata(key + "2", 0, meta.ptr, 1000, 5) == 600
    config = ReplicateConfig()
    config.replica_num = 0
    assert store.put_from_with_metadata(key + "2", data.ptr, meta.ptr, 1000, 5, config) == 600


def test_pieces(store, key):
    memory = Memory.of(payload(1, 1000) + payload(2, 1000))
    keys = [key, key + "2"]
    ptrs = [[memory.ptr + 1000, memory.ptr], [memory.ptr + 5]]
    sizes = [[1000, 1000], [10]]
    assert store.batch_put_from_multi_buffers(keys, ptrs, sizes) == [0, 0]
    assert store.get(key) == payload(2, 1000) + payload(1, 1000)
    assert store.get(key + "2") == payload(1, 1000)[5:15]


def test_what_does_not_fit_the_local_buffer(client, key):
    store = client(local_buffer=MIB)
    content = payload(1, MIB + 1)
    memory = Memory.of(content)
    assert store.put(key, content) == -600
    assert store.put_parts(key, content[:MIB], b"x") == -600
    assert store.upsert(key, content) == -600
    half = content[: MIB // 2 + 1]
    assert store.put_batch([key, key + "2"], [half, half]) == -600
    assert store.batch_is_exist([key, key + "2"]) == [0, 0]
    # By address it goes, and comes back into memory, but not as bytes.
    assert store.put_from(key, memory.ptr, MIB + 1) == 0
    assert store.get(key) == b"" and store.get_buffer(key) is None
    target = Memory(MIB + 1)
    assert store.get_into(key, target.ptr, target.size) == MIB + 1
    assert target.read() == content
    # Exactly as much as there is.
    assert store.put(key + "3", content[:MIB]) == 0 and store.get(key + "3") == content[:MIB]
    # Handles that are held shrink it.
    held = store.get_buffer(key + "3")
    assert held is not None and store.put(key + "4", b"x") == -600 and store.get(key + "3") == b""
    del held
    assert store.put(key + "4", b"x") == 0
    assert store.get(key + "3") == content[:MIB]


def test_no_local_buffer(client, key):
    store = client(local_buffer=0)
    memory = Memory.of(payload(1, 100))
    assert store.put(key, b"x") == -600 and store.put_batch([key], [b"x"]) == -600
    assert store.put_parts(key, b"x") == -600 and store.upsert(key, b"x") == -600
    assert store.put_from(key, memory.ptr, 100) == 0
    assert store.get(key) == b"" and store.get_buffer(key) is None
    target = Memory(100)
    assert store.batch_get_into([key], [target.ptr], [100]) == [100]
    assert target.read() == memory.read()


def test_a_full_pool_says_so_at_once(store, key):
    content = Memory(200 * MIB)
    keys = [f"{key}/{i}" for i in range(3)]
    answers = [store.put_from(name, content.ptr, content.size) for name in keys]
    assert answers[0] == 0 and answers[1] == -200
    assert store.remove_all(True) >= 1
    assert store.put_from(keys[2], content.ptr, content.size) == 0


def test_many_threads(store, key):
    failures = []

    def work(number):
        for i in range(25):
            name, content = f"{key}/{number}/{i}", payload(number * 100 + i, 1 + 997 * i)
            if store.put(name, content) != 0 or store.get(name) != content:
                failures.append(name)
            target = Memory(len(content) + 8)
            if store.get_into(name, target.ptr, target.size) != len(content):
                failures.append(name)
            if target.read(0, len(content)) != content or not target.untouched(len(content)):
                failures.append(name)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
