"""Existence, size, removal, leases, groups, copies, sessions (sections 9 and 10)."""

from __future__ import annotations

import pytest
from mooncake.store import ReplicateConfig
from mooncake.store import _sessions as sessions
from payloads import Memory, payload


def test_existence_and_size(store, key):
    assert store.is_exist(key) == 0 and store.get_size(key) == -704
    store.put(key, payload(1, 77))
    assert store.is_exist(key) == 1 and store.get_size(key) == 77
    assert store.batch_is_exist([key, "missing", key]) == [1, 0, 1]
    assert store.batch_is_exist([]) == []


def test_a_fresh_object_is_removed_at_once_and_a_read_one_is_not(store, key):
    for read in (
        lambda: store.is_exist(key),
        lambda: store.batch_is_exist([key]),
        lambda: store.get(key),
        lambda: store.get_buffer(key),
        lambda: store.get_size(key),
        lambda: store.get_replica_desc(key),
        lambda: store.get_into(key, Memory(100).ptr, 100),
    ):
        assert store.put(key, b"v") == 0
        assert store.remove(key) == 0
        assert store.remove(key) == -704
        assert store.put(key, b"v") == 0
        read()
        assert store.remove(key) == -706
        assert store.batch_remove([key, "missing"]) == [-706, -704]
        assert store.remove(key, force=True) == 0


def test_batch_remove(store, key):
    names = [f"{key}/{i}" for i in range(3)]
    store.put_batch(names, [b"a", b"b", b"c"])
    store.get(names[1])
    assert store.batch_remove(names) == [0, -706, 0]
    assert store.batch_remove(names, True) == [-704, 0, -704]
    assert store.batch_remove([]) == []


def test_remove_by_regex(store):
    names = ["layer.1.k", "layer.2.k", "layer.10.v", "rest"]
    store.put_batch(names, [b"v"] * 4)
    assert store.remove_by_regex("(") == -600
    assert store.remove_by_regex("[z-a]") == -600
    assert store.remove_by_regex("no such key") == 0
    assert store.remove_by_regex(r"layer\.\d\.k$") == 2  # found anywhere, not the whole key
    store.get("layer.10.v")
    assert store.remove_by_regex("e") == 1  # "rest"; the other has a lease
    assert store.remove_by_regex("e", force=True) == 1
    assert store.batch_is_exist(names) == [0] * 4


def test_remove_all(store):
    config = ReplicateConfig()
    config.with_hard_pin = True
    store.put_batch(["a", "b"], [b"v", b"v"], config)
    store.put("c", b"v")
    store.is_exist("c")
    assert store.remove_all() == 2  # pins do not protect, leases do
    assert store.is_exist("c") == 1
    assert store.remove_all(force=True) == 1 and store.remove_all(True) == 0


def test_tenants_see_only_their_own(client, key):
    mine, theirs = client(), client(tenant_id="other")
    mine.put(key, b"mine")
    assert theirs.is_exist(key) == 0 and theirs.put(key, b"theirs") == 0
    assert (mine.get(key), theirs.get(key)) == (b"mine", b"theirs")
    assert theirs.remove_all(True) == 1 and mine.get(key) == b"mine"


def test_groups(store, key):
    config = ReplicateConfig()
    config.group_ids = ["g", "", "g"]
    names = [f"{key}/{i}" for i in range(3)]
    assert store.put_batch(names, [b"a", b"b", b"c"], config) == 0
    # One that is read protects its group.
    store.get(names[0])
    assert store.batch_remove(names) == [-706, 0, -706]
    assert store.batch_remove(names, True) == [0, -704, 0]
    one = ReplicateConfig()
    one.group_ids = ["g"]
    assert store.put(key, b"v", one) == 0
    other = ReplicateConfig()
    other.group_ids = ["h"]
    assert store.upsert(key, b"w", other) == -600 and store.get(key) == b"v"
    assert store.upsert(key, b"w", one) == 0 and store.get(key) == b"w"


def test_copies(store, key):
    content = payload(1, 500)
    store.put(key, content)
    [replica] = store.get_replica_desc(key)
    assert replica.status == 3
    assert replica.get_memory_descriptor().buffer_descriptor.size == 500
    assert store.get_replica_desc("missing") == []
    found = store.batch_get_replica_desc([key, "missing"])
    assert list(found) == [key] and len(found[key]) == 1
    assert store.batch_replica_clear([key]) == []  # it was looked at just now
    store.put(key + "2", content)
    assert store.batch_replica_clear([key + "2", "missing"], "some:1") == []
    assert store.batch_replica_clear([key + "2", "missing"]) == [key + "2"]


class TestSessions:
    def test_ranges(self, store, key):
        content = payload(3, 10_000)
        store.put(key, content)
        target = Memory(300)
        assert store.batch_get_session_start([key, "missing"]) == [0, -704]
        answer = store.batch_get_into_multi_buffer_ranges(
            [key, "missing"],
            [[target.ptr, target.ptr + 100], [target.ptr]],
            [[100, 200], [1]],
            [[9900, 5], [0]],
        )
        assert answer == [300, -600]
        assert target.read() == content[9900:] + content[5:205]
        for offsets, sizes in (([9999], [2]), ([10_001], [1]), ([0, 1], [1])):
            ptrs = [target.ptr] * len(sizes)
            answer = store.batch_get_into_multi_buffer_ranges([key], [ptrs], [sizes], [offsets])
            assert answer == [-600]
        assert store.batch_get_session_end([key, "missing"]) == 0
        answer = store.batch_get_into_multi_buffer_ranges([key], [[target.ptr]], [[1]], [[0]])
        assert answer == [-600]

    def test_lists_of_different_lengths(self, store, key):
        store.put(key, b"v")
        store.batch_get_session_start([key])
        assert store.batch_get_into_multi_buffer_ranges([key], [], [], []) == [-600]
        assert store.batch_get_session_start([]) == []

    def test_the_lease_is_not_renewed(self, store, key, monkeypatch):
        store.put(key, payload(1, 10))
        assert store.batch_get_session_start([key]) == [0]
        target = Memory(10)
        arguments = ([key], [[target.ptr]], [[10]], [[0]])
        assert store.batch_get_into_multi_buffer_ranges(*arguments) == [10]
        later = sessions.time.monotonic() + 11
        monkeypatch.setattr(sessions.time, "monotonic", lambda: later)
        assert store.batch_get_into_multi_buffer_ranges(*arguments) == [-707]
        assert store.batch_get_into_multi_buffer_ranges(*arguments) == [-600]  # and dropped

    def test_an_object_that_was_replaced(self, store, key):
        store.put(key, payload(1, 10))
        store.batch_get_session_start([key])
        store.upsert(key, payload(2, 10))
        target = Memory(10)
        answer = store.batch_get_into_multi_buffer_ranges([key], [[target.ptr]], [[10]], [[0]])
        assert answer == [-707] and target.untouched()
        store.batch_get_session_start([key])
        store.remove(key, force=True)
        answer = store.batch_get_into_multi_buffer_ranges([key], [[target.ptr]], [[10]], [[0]])
        assert answer == [-707]


@pytest.mark.parametrize("method", ["is_exist", "get_size", "get_buffer", "get", "remove"])
def test_wrong_types(store, method):
    for wrong in (1, None, 1.5):
        with pytest.raises(TypeError):
            getattr(store, method)(wrong)
