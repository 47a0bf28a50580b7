"""get in all its forms, registered memory, ranges (sections 6 to 8)."""

from __future__ import annotations

import numpy as np
import pytest
from mooncake.store import BufferHandle
from payloads import Memory, payload


@pytest.fixture
def objects(store, key):
    """Three keys with payloads of different sizes, and what they hold."""
    contents = {f"{key}/{size}": payload(size, size) for size in (10, 1000, 100_003)}
    for name, content in contents.items():
        assert store.put(name, content) == 0
    return contents


def test_bytes_and_handles(store, objects):
    names = [*objects, "missing"]
    expected = [*objects.values(), b""]
    assert [store.get(name) for name in names] == expected
    assert store.get_batch(names) == expected
    assert store.get_batch([]) == [b""]
    handles = store.batch_get_buffer(names)
    assert [h is None for h in handles] == [False, False, False, True]
    assert all(isinstance(h, BufferHandle) for h in handles[:3])
    assert [bytes(h) for h in handles[:3]] == expected[:3]
    assert store.get_buffer("missing") is None and store.batch_get_buffer([]) == []


def test_into_memory(store, objects):
    for name, content in objects.items():
        for room in (len(content), len(content) + 7):
            target = Memory(room)
            assert store.get_into(name, target.ptr, room) == len(content)
            assert target.read(0, len(content)) == content and target.untouched(len(content))
        small = Memory(len(content) - 1)
        assert store.get_into(name, small.ptr, small.size) == -600 and small.untouched()
        assert store.get_into(name, 0, len(content)) == -600
    assert store.get_into("missing", Memory(1).ptr, 1) == -704


def test_many_into_memory(store, objects):
    names = list(objects)
    targets = [Memory(len(content)) for content in objects.values()]
    ptrs, sizes = [t.ptr for t in targets], [t.size for t in targets]
    assert store.batch_get_into(names, ptrs, sizes) == sizes
    assert [t.read() for t in targets] == list(objects.values())
    # One that is missing and one that does not fit leave the others alone.
    targets = [Memory(10), Memory(999), Memory(200_000), Memory(5)]
    ptrs, sizes = [t.ptr for t in targets], [t.size for t in targets]
    assert store.batch_get_into([*names, "missing"], ptrs, sizes) == [10, -600, 100_003, -704]
    assert targets[1].untouched() and targets[3].untouched()
    assert targets[2].read(0, 100_003) == objects[names[2]]
    assert store.batch_get_into(names, ptrs, sizes) == [-600] * 3  # lists of different lengths
    assert store.batch_get_into([], [], []) == []
    for wrong in (1.5, -1, "p"):
        with pytest.raises(TypeError):
            store.batch_get_into(names[:1], [wrong], [10])


def test_scattered(store, objects):
    [_, middle, large] = objects
    target = Memory(1000)
    cuts = [(900, 100), (0, 1), (1, 899)]
    ptrs, sizes = [target.ptr + at for at, _ in cuts], [size for _, size in cuts]
    assert store.batch_get_into_multi_buffers([middle], [ptrs], [sizes]) == [1000]
    got = b"".join(target.read(at, size) for at, size in cuts)
    assert got == objects[middle]
    # The pieces must add up to exactly the object.
    assert store.batch_get_into_multi_buffers([middle], [[target.ptr]], [[999]]) == [-600]
    larger = Memory(1001)
    assert store.batch_get_into_multi_buffers([middle], [[larger.ptr]], [[1001]]) == [-800]
    assert larger.untouched()
    answer = store.batch_get_into_multi_buffers(
        [middle, "missing", large],
        [[target.ptr], [target.ptr], [target.ptr]],
        [[1000], [5], [5]],
        prefer_alloc_in_same_node=True,
    )
    assert answer == [1000, -704, -600]
    assert store.batch_get_into_multi_buffers([middle], [ptrs], [sizes[:2]]) == [-600]
    assert store.batch_get_into_multi_buffers([middle], [], []) == [-600]


def test_registering(store):
    memory = Memory(1000)
    ptr = memory.ptr
    assert store.register_buffer(0, 10) == -600
    assert store.register_buffer(ptr, 0) == -600
    assert store.register_buffer(ptr + 100, 100) == 0
    for begin, size in ((100, 100), (0, 101), (199, 1), (150, 10), (0, 1000)):
        assert store.register_buffer(ptr + begin, size) == -600
    assert store.register_buffer(ptr, 100) == 0 and store.register_buffer(ptr + 200, 800) == 0
    assert store.unregister_buffer(ptr + 1) == -600
    assert store.unregister_buffer(np.uint64(ptr)) == 0
    assert store.unregister_buffer(ptr) == -600
    assert store.register_buffer(ptr, 50) == 0
    with pytest.raises(TypeError):
        store.register_buffer(1.5, 10)
    with pytest.raises(TypeError):
        store.register_buffer(-1, 10)


class TestRanges:
    @pytest.fixture
    def buffers(self, store):
        made = [Memory(1000), Memory(500)]
        for memory in made:
            assert store.register_buffer(memory.ptr, memory.size) == 0
        yield made
        for memory in made:
            store.unregister_buffer(memory.ptr)

    def test_fragments(self, store, objects, buffers):
        [small, middle, large] = objects
        a, b = buffers
        answer = store.get_into_ranges(
            [a.ptr, b.ptr + 100],
            [[small, large], [middle, "missing"]],
            [[[0], [10, 500]], [[0, 50], [1, 2]]],
            [[[0], [100_000, 7]], [[990, 1], [0, 0]]],
            [[[10], [3, 400]], [[10, 20], [1, 2]]],
        )
        assert answer == [[[10], [3, 400]], [[10, 20], [-704, -704]]]
        assert a.read(0, 10) == objects[small]
        assert a.read(10, 3) == objects[large][100_000:]
        assert a.read(500, 400) == objects[large][7:407]
        assert b.read(100, 10) == objects[middle][990:]
        assert b.read(150, 20) == objects[middle][1:21]
        assert a.untouched(900) and b.read(0, 100) == bytes([Memory.FILL]) * 100

    def test_refused_fragments(self, store, objects, buffers):
        [small, middle, _] = objects
        a, b = buffers
        unregistered = Memory(100)
        answer = store.get_into_ranges(
            [a.ptr, 0, unregistered.ptr, b.ptr],
            [[small, middle], [small], [small], [small]],
            [[[0, 999, 991], [0, 0, 0]], [[0]], [[0, 1]], [[0]]],
            [[[1, 0, 0], [1000, 999, 0]], [[0]], [[0, 0]], [[0]]],
            [[[10, 1, 10], [1, 2, 0]], [[1]], [[1, 1]], [[10]]],
        )
        # Past the object, in the last byte, past the buffer; past the object twice, nothing.
        expected = [[-600, 1, -600], [-600, -600, 0]]
        assert answer == [expected, [[-600]], [[-600, -600]], [[10]]]
        assert unregistered.untouched() and b.read(0, 10) == objects[small]

    def test_shapes_of_mismatches(self, store, objects, buffers):
        [small, middle, _] = objects
        a, b = buffers
        # A key whose lists differ in length fails alone.
        answer = store.get_into_ranges(
            [a.ptr], [[small, middle]], [[[0, 1], [0]]], [[[0], [0]]], [[[1, 1], [1]]]
        )
        assert answer == [[[-600, -600], [1]]]
        # A buffer whose lists differ fails alone; what its keys have is one entry each.
        answer = store.get_into_ranges(
            [a.ptr, b.ptr],
            [[small, middle], [small]],
            [[[0, 1]], [[0]]],
            [[[0, 1]], [[0]]],
            [[[1, 1]], [[1]]],
        )
        assert answer == [[[-600, -600], [-600]], [[1]]]
        # Different numbers of buffers fail all.
        answer = store.get_into_ranges([a.ptr, b.ptr], [[small]], [[[0, 1]]], [[[0]]], [[[1]]])
        assert answer == [[[-600, -600]], [[-600]]]
        assert store.get_into_ranges([], [], [], [], []) == []

    def test_the_local_buffer_counts_as_registered(self, store, objects):
        [small, middle, _] = objects
        handle = store.get_buffer(middle)
        answer = store.get_into_ranges(
            [handle.ptr() + 10], [[small]], [[[0, 990]]], [[[0, 0]]], [[[10, 1]]]
        )
        assert answer == [[[10, -600]]]
        assert bytes(handle)[10:20] == objects[small]
