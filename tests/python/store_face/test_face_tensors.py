"""torch tensors as objects (section 11)."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from mooncake.store import (
    MooncakeDistributedStore,
    ParallelAxis,
    ReadTarget,
    ReplicateConfig,
    TensorParallelism,
)
from payloads import Memory
from safetensors.torch import load_file, save_file

DTYPES = [
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]


def _tensor(shape, dtype=torch.int32, start=0):
    """Every element is its own index, as far as the dtype can say it."""
    count = 1
    for extent in shape:
        count *= extent
    return torch.arange(start, start + count).reshape(shape).to(dtype)


def _same(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().view(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("code", range(15))
def test_every_dtype(store, key, code):
    tensor = _tensor((3, 5, 2), DTYPES[code])
    assert store.put_tensor(key, tensor) == 0
    assert _same(store.get_tensor(key), tensor)
    raw = store.get(key)
    assert len(raw) == 304 + tensor.numel() * tensor.element_size()
    assert raw[:4] == (0x4D4F4F4E).to_bytes(4, "little") and raw[8] == code


def test_shapes_and_strides(store, key):
    for i, tensor in enumerate(
        (
            _tensor((7, 9)).t(),
            _tensor((10, 10))[2:8:3, 1:],
            _tensor(()),
            _tensor((0, 4)),
            _tensor((1,) * 8),
        )
    ):
        assert store.put_tensor(f"{key}/{i}", tensor) == 0
        assert _same(store.get_tensor(f"{key}/{i}"), tensor)
    assert store.put_tensor(key, _tensor((1,) * 9)) == -600
    for wrong in (None, [1, 2], torch.zeros(2, dtype=torch.complex64)):
        assert store.put_tensor(key, wrong) == -600
    assert store.get_tensor(key) is None
    store.put(key, b"x" * 400)
    assert store.get_tensor(key) is None  # not a tensor


def test_existing_and_upsert(store, key):
    first, second = _tensor((4,)), _tensor((5,), start=9)
    assert store.put_tensor(key, first) == 0 and store.put_tensor(key, second) == 0
    assert _same(store.get_tensor(key), first)
    assert store.upsert_tensor(key, second) == 0 and _same(store.get_tensor(key), second)
    assert store.upsert_pub_tensor(key, first, ReplicateConfig()) == 0
    assert store.batch_upsert_tensor([key], [second]) == [0]
    assert store.batch_upsert_pub_tensor([key], [first], ReplicateConfig()) == [0]
    assert _same(store.get_tensor(key), first)


def test_batches_and_config(store, key):
    names = [f"{key}/{i}" for i in range(3)]
    tensors = [_tensor((2, i + 1), start=i) for i in range(3)]
    assert store.batch_put_tensor(names, [tensors[0], "no", tensors[2]]) == [0, -600, 0]
    got = store.batch_get_tensor(names)
    assert _same(got[0], tensors[0]) and got[1] is None and _same(got[2], tensors[2])
    assert store.batch_put_tensor(names, tensors[:2]) == [-600] * 3
    config = ReplicateConfig()
    config.preferred_segments = ["a:1", "b:2"]
    assert store.pub_tensor(key, tensors[0], config) == -600  # as many names as copies
    config.replica_num = 2
    assert store.pub_tensor(key, tensors[0], config) == 0
    assert store.batch_pub_tensor([key + "x"], [tensors[1]], ReplicateConfig()) == [0]


def test_the_local_buffer_bounds_tensors(client, key):
    store = client(local_buffer=1 << 16)
    assert store.put_tensor(key, _tensor((1 << 15,))) == -200
    assert store.put_tensor(key, _tensor((1000,))) == 0
    # What was got is the caller's own memory.
    got = [store.get_tensor(key) for _ in range(50)]
    assert all(_same(tensor, _tensor((1000,))) for tensor in got)


def test_shards(store, key):
    tensor = _tensor((4, 6))
    assert store.put_tensor_with_tp(key, tensor, tp_rank=1, tp_size=3, split_dim=1) == 0
    for rank, shard in enumerate(tensor.chunk(3, 1)):
        assert _same(store.get_tensor(f"{key}_tp_{rank}"), shard)
        assert _same(store.get_tensor_with_tp(key, tp_rank=rank, tp_size=3), shard)
    got = store.batch_get_tensor_with_tp([key, "missing"], tp_rank=2, tp_size=3)
    assert _same(got[0], tensor[:, 4:]) and got[1] is None
    assert store.put_tensor_with_tp(key, tensor, tp_size=4, split_dim=1) == -600
    assert store.put_tensor_with_tp(key, tensor, tp_size=2, split_dim=2) == -600
    assert store.put_tensor_with_tp(key + "w", tensor) == 0
    assert _same(store.get_tensor_with_tp(key + "w"), tensor)
    names = [key + "a", key + "b"]
    assert store.batch_put_tensor_with_tp(names, [tensor, tensor.t()], tp_size=2) == [0, 0]
    assert _same(store.get_tensor(names[1] + "_tp_1"), tensor.t()[3:])
    config = ReplicateConfig()
    assert store.pub_tensor_with_tp(key + "c", tensor, config, tp_size=2) == 0
    assert store.batch_pub_tensor_with_tp(names, [tensor], config, tp_size=2) == [-600, -600]


def test_into_and_from(store, key):
    tensor = _tensor((5, 5), torch.float32)
    store.put_tensor(key, tensor)
    memory = Memory(304 + 100 + 12)
    got = store.get_tensor_into(key, memory.ptr, memory.size)
    assert _same(got, tensor) and got.data_ptr() == memory.ptr + 304
    assert memory.untouched(404)
    assert store.get_tensor_into(key, memory.ptr, 403) is None
    assert store.get_tensor_into("missing", memory.ptr, memory.size) is None
    assert store.batch_get_tensor_into([key], [memory.ptr], []) == [-600]
    [got, none] = store.batch_get_tensor_into([key, "missing"], [memory.ptr] * 2, [416] * 2)
    assert _same(got, tensor) and none is None
    # And back again, from that memory.
    assert store.put_tensor_from(key + "2", memory.ptr, memory.size) == 0
    assert _same(store.get_tensor(key + "2"), tensor)
    assert store.get_size(key + "2") == 404
    assert store.put_tensor_from(key + "3", memory.ptr, 403) == -600
    assert store.put_tensor_from(key + "3", 0, 404) == -600
    junk = Memory(500)
    both = [memory.ptr, junk.ptr]
    assert store.batch_put_tensor_from([key + "4", key + "5"], both, [404, 500]) == [-600, -600]
    assert store.upsert_tensor_from(key + "2", memory.ptr, 404) == 0
    assert store.batch_upsert_tensor_from([key + "6"], [memory.ptr], [404]) == [0]
    assert store.put_tensor_with_tp_from(key + "s", memory.ptr, 404, tp_rank=1, tp_size=2) == 0
    got = store.get_tensor_with_tp_into(key + "s", memory.ptr, 416, tp_rank=1, tp_size=2)
    assert _same(got, tensor)
    assert store.get_tensor_into_cuda(key, tensor) == -600


def test_layouts_without_axes_are_the_plain_calls(store, key):
    first, second = _tensor((3, 5)), _tensor((3, 5), start=100)
    none = TensorParallelism()
    assert store.put_tensor_with_parallelism(key, first) == 0
    assert store.put_tensor_with_parallelism(key, second, none) == 0  # it exists: unchanged
    assert _same(store.get_tensor_with_parallelism(key, None, ReadTarget()), first)
    assert store.upsert_tensor_with_parallelism(key, second, none, ReplicateConfig()) == 0
    keys = [key, key + "/b"]
    memory = [Memory(400), Memory(400)]
    at = [m.ptr for m in memory]
    assert store.batch_put_tensor_with_parallelism(keys, [first, first], [none, None]) == [0, 0]
    assert _same(store.get_tensor_with_parallelism_into(key, at[0], 400, none), second)
    got = store.batch_get_tensor_with_parallelism_into(keys, at, [400, 400], targets=[None, None])
    assert _same(got[0], second) and _same(got[1], first)
    new = [key + "/c", key + "/d"]
    assert store.batch_put_tensor_with_parallelism_from(new, at, [400, 400]) == [0, 0]
    assert store.batch_upsert_tensor_with_parallelism_from(new[:1], at[1:], [400]) == [0]
    assert store.put_tensor_with_parallelism_from(key + "/e", at[0], 400) == 0
    assert store.upsert_tensor_with_parallelism_from(key + "/e", at[1], 400, config=None) == 0
    assert store.batch_upsert_tensor_with_parallelism(keys, [first, second]) == [0, 0]
    got = store.batch_get_tensor_with_parallelism([*keys, *new, key + "/e"])
    wanted = [first, second, first, first, first]
    assert all(_same(a, b) for a, b in zip(got, wanted, strict=True))
    grouped = ReplicateConfig()
    grouped.group_ids = ["one", "too many"]
    assert store.put_tensor_with_parallelism_from(key + "/f", at[0], 400, config=grouped) == -600


def test_layouts_with_axes_are_refused_aloud(store, key):
    axes = TensorParallelism([ParallelAxis("tp", 0, 2, 0)])
    tensor = _tensor((4, 4))
    calls = {
        "put_tensor_with_parallelism": (key, tensor, axes),
        "upsert_tensor_with_parallelism": (key, tensor, None, None, axes),
        "put_tensor_with_parallelism_from": (key, 1, 1, axes),
        "upsert_tensor_with_parallelism_from": (key, 1, 1, axes),
        "get_tensor_with_parallelism": (key, None, ReadTarget("shard", axes)),
        "get_tensor_with_parallelism_into": (key, 1, 1, None, ReadTarget("full")),
        "batch_put_tensor_with_parallelism": ([key], [tensor], [axes]),
        "batch_upsert_tensor_with_parallelism": ([key], [tensor], [axes]),
        "batch_put_tensor_with_parallelism_from": ([key], [1], [1], [axes]),
        "batch_upsert_tensor_with_parallelism_from": ([key], [1], [1], [axes]),
        "batch_get_tensor_with_parallelism": ([key], [axes]),
        "batch_get_tensor_with_parallelism_into": ([key], [1], [1], [axes]),
    }
    for name, arguments in calls.items():
        with pytest.raises(NotImplementedError, match=f"{name}: .*not supported"):
            getattr(store, name)(*arguments)
    assert store.get_size(key) == -704


def test_files(store, key, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    key = key.replace("/", "-")
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
        tensor = _tensor((4, 6), dtype)
        assert store.upsert_tensor(key, tensor) == 0
        assert store.save_tensor_to_safetensor(key) == 0
        assert _same(load_file(f"{key}.safetensors")[key], tensor)
        assert _same(store.load_tensor_from_safetensor(key), tensor)
        path = str(tmp_path / "named")
        assert store.save_tensor_to_safetensor(key, path) == 0
        assert _same(store.load_tensor_from_safetensor(file_name=path), tensor)
        assert _same(store.load_tensor_from_safetensor(key.encode(), path), tensor)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["named", f"{key}.safetensors"]
    assert store.save_tensor_to_safetensor("missing") == -1100
    assert store.save_tensor_to_safetensor(key, str(tmp_path / "no" / "folder")) == -1103
    store.put(key + "bytes", b"no tensor")
    assert store.save_tensor_to_safetensor(key + "bytes") == -600
    assert store.load_tensor_from_safetensor() is None
    assert store.load_tensor_from_safetensor("other", path) is None
    assert store.load_tensor_from_safetensor("missing") is None
    (tmp_path / "junk").write_bytes(b"\xff" * 100)
    assert store.load_tensor_from_safetensor(file_name="junk") is None
    save_file({"a": tensor, "b": tensor.clone()}, "two")
    assert store.load_tensor_from_safetensor(file_name="two") is None
    assert _same(store.load_tensor_from_safetensor("b", "two"), tensor)
    closed = MooncakeDistributedStore()
    assert closed.save_tensor_to_safetensor(key) == -600
    assert closed.load_tensor_from_safetensor(key) is None


def test_torch_is_not_needed():
    script = "import sys; sys.modules['torch'] = None; import mooncake.store as s; s.BufferPool"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
