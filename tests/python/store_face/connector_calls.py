"""The call sequences of the connectors that use the ordinary Store, as they make them.

Run as a program, `connector_calls.py NAME MASTER_ADDRESS`, so that each begins in a fresh process,
as it does in production. Every check is on content.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid

from payloads import Memory, payload

MIB = 1 << 20
PAGE = 40_000  # bytes of one page of a KV cache


def _setup(store, address, segment=64 * MIB, local=16 * MIB, **more):
    answer = store.setup(
        "localhost",
        "P2PHANDSHAKE",
        segment,
        local,
        "tcp",
        "",
        address,
        *more.pop("engine", ()),
        **more,
    )
    assert answer == 0, answer


def sglang_hicache(address):
    """Setup with engine and keywords, warm-up, registered pages, batches; never close."""
    from mooncake.store import MooncakeDistributedStore, ReplicateConfig

    store = MooncakeDistributedStore()
    more = {
        "enable_ssd_offload": False,
        "ssd_offload_path": "",
        "tenant_id": "default",
        "enable_client_http_server": False,
        "client_http_port": 9300,
    }
    _setup(store, address, engine=(None,), **more)
    # An older client is tried without what a TypeError names.
    try:
        store.setup("h", "P2PHANDSHAKE", 0, 0, "tcp", "", address, made_up_option=True)
    except TypeError as error:
        assert "made_up_option" in str(error)
    else:
        raise AssertionError("an unknown keyword was taken")

    warm_key = f"warmup-{uuid.uuid4()}"
    warm = bytes(4 * 1024)
    assert any(store.put(warm_key, warm) == 0 for _ in range(10))
    assert store.is_exist(warm_key) == 1
    assert store.get(warm_key) == warm

    host = Memory.of(b"".join(payload(i, PAGE) for i in range(32)))
    assert store.register_buffer(host.ptr, host.size) == 0
    keys = [f"{uuid.uuid4().hex}_{i}_k" for i in range(32)]
    ptrs = [host.ptr + i * PAGE for i in range(32)]
    sizes = [PAGE] * 32
    assert store.batch_is_exist(keys) == [0] * 32
    assert all(code == 0 for code in store.batch_put_from(keys, ptrs, sizes))
    assert all(one == 1 for one in store.batch_is_exist(keys))
    host.array[:] = 0
    assert all(got > 0 for got in store.batch_get_into(keys, ptrs, sizes))
    assert host.read() == b"".join(payload(i, PAGE) for i in range(32))

    # Layer-first pools: each key's bytes lie in pieces; groups when the option is on.
    config = ReplicateConfig()
    assert hasattr(config, "group_ids")
    layers = 8
    piece = PAGE // layers
    all_ptrs = [[host.ptr + (i * layers + j) * piece for j in range(layers)] for i in range(16)]
    all_sizes = [[piece] * layers] * 16
    grouped = [key + "_g" for key in keys[:16]]
    config.group_ids = [f"group{i // 4}" for i in range(16)]
    answer = store.batch_put_from_multi_buffers(grouped, all_ptrs, all_sizes, config)
    assert answer == [0] * 16
    before = host.read()
    host.array[:] = 0
    assert store.batch_get_into_multi_buffers(grouped, all_ptrs, all_sizes) == [PAGE] * 16
    assert host.read(0, 16 * PAGE) == before[: 16 * PAGE]

    # One page evicted or never there: a miss among hits.
    mixed = [keys[0], "missing", keys[2]]
    assert store.batch_is_exist(mixed) == [1, 0, 1]
    got = store.batch_get_into(mixed, ptrs[:3], sizes[:3])
    assert got[0] == got[2] == PAGE and got[1] < 0
    assert store.remove_all() >= 0
    assert store.remove_all(True) >= 48


def sglang_direct_linker(address):
    """Layer-wise loads: one session, ranges of it, an end."""
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    _setup(store, address)
    assert getattr(store, "batch_get_session_start_with_sources", None) is None
    assert getattr(store, "record_prefetched_tokens", None) is None
    layers, pages = 6, 10
    keys = [f"linker/{uuid.uuid4()}/{i}" for i in range(pages)]
    source = Memory.of(b"".join(payload(i, PAGE) for i in range(pages)))
    ptrs = [source.ptr + i * PAGE for i in range(pages)]
    assert store.batch_put_from(keys, ptrs, [PAGE] * pages) == [0] * pages
    assert all(code == 0 for code in store.batch_get_session_start(keys))
    part = PAGE // layers
    target = Memory(PAGE * pages)
    for layer in range(layers):
        offsets = [[layer * part, layer * part + part // 2]] * pages
        sizes = [[part // 2, part - part // 2]] * pages
        to = [[target.ptr + i * PAGE + at for at in offsets[i]] for i in range(pages)]
        read = store.batch_get_into_multi_buffer_ranges(keys, to, sizes, offsets)
        assert read == [part] * pages, read
    assert store.batch_get_session_end(keys) == 0
    for i in range(pages):
        assert target.read(i * PAGE, part * layers) == payload(i, PAGE)[: part * layers]
    store.close()


def sglang_embedding_cache(address):
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    _setup(store, address)
    key = f"embedding/{uuid.uuid4()}"
    assert store.batch_is_exist([key]) == [0]
    source = Memory.of(payload(1, 3 * PAGE))
    assert store.batch_put_from([key], [source.ptr], [3 * PAGE]) == [0]
    target = Memory(3 * PAGE)
    assert store.batch_get_into([key], [target.ptr], [3 * PAGE]) == [3 * PAGE]
    assert target.read() == source.read()
    pieces = [[target.ptr + i * PAGE for i in (2, 0, 1)]]
    assert store.batch_get_into_multi_buffers([key], pieces, [[PAGE] * 3]) == [3 * PAGE]
    assert target.read(2 * PAGE) == source.read(0, PAGE)
    answer = store.batch_put_from_multi_buffers([key + "2"], pieces, [[PAGE] * 3])
    assert answer == [0] and store.get(key + "2") == source.read()


def vllm(address):
    """MooncakeStoreConnector: placement near the writer, pieces of a KV cache, pressure."""
    from mooncake.store import MooncakeDistributedStore, ReplicateConfig

    store = MooncakeDistributedStore()
    _setup(store, address)
    config = ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    cache = Memory(256 * PAGE)
    store.register_buffer(cache.ptr, cache.size)
    for i in range(64):
        cache.array[i * PAGE : (i + 1) * PAGE] = list(payload(i, PAGE))[:PAGE] if i < 2 else i
    keys = [f"model@tp0@{uuid.uuid4().hex}" for _ in range(16)]
    addrs = [[cache.ptr + (i * 4 + j) * PAGE for j in range(4)] for i in range(16)]
    sizes = [[PAGE] * 4 for _ in range(16)]
    assert store.batch_is_exist(keys) == [0] * 16
    answer = store.batch_put_from_multi_buffers(keys, addrs, sizes, config)
    assert not any(code < 0 for code in answer), answer
    before = cache.read()
    for key, replicas in store.batch_get_replica_desc(keys).items():
        assert key in keys
        for replica in replicas:
            assert replica.is_memory_replica()
            assert not replica.is_disk_replica() and not replica.is_local_disk_replica()
            where = replica.get_memory_descriptor().buffer_descriptor
            assert where.transport_endpoint == store.get_hostname()
    cache.array[:] = 0
    exists = store.batch_is_exist(keys)
    assert exists == [1] * 16
    got = store.batch_get_into_multi_buffers(keys, addrs, sizes)
    assert got == [4 * PAGE] * 16
    assert cache.read(0, 64 * PAGE) == before[: 64 * PAGE]
    # More than there is: said with the literal code that stops storing.
    large = Memory(500 * MIB)
    answer = store.batch_put_from_multi_buffers(["large"], [[large.ptr]], [[large.size]], config)
    assert answer == [-200], answer
    assert store.remove_all(force=True) >= 16
    assert store.close() == 0


async def _lmcache(address):
    from mooncake.store import MooncakeDistributedStore, ReplicateConfig

    store = MooncakeDistributedStore()
    _setup(store, address)
    config = ReplicateConfig()
    config.replica_num = 1
    config.preferred_segment = store.get_hostname()
    pool = Memory(64 * PAGE)
    assert store.register_buffer(pool.ptr, pool.size) == 0
    pool.array[:] = 7
    key = f"lmcache@{uuid.uuid4()}"
    assert not store.is_exist(key)
    # Without metadata: by address, in a thread.
    chunk = payload(1, 3 * PAGE)
    pool.array[: 3 * PAGE] = list(chunk)
    await asyncio.to_thread(store.put_from, key, pool.ptr, 3 * PAGE, config)
    assert store.is_exist(key)
    # A partial chunk: fewer bytes than the buffer are what was stored.
    sizes = await asyncio.to_thread(
        store.batch_get_into, [key, "missing"], [pool.ptr + 8 * PAGE] * 2, [4 * PAGE] * 2
    )
    assert sizes[0] == 3 * PAGE and sizes[1] <= 0
    assert pool.read(8 * PAGE, 3 * PAGE) == chunk
    # With metadata: parts, and handles through memoryview.
    meta, data = b"meta" * 7, memoryview(pool.array[: 2 * PAGE])
    await asyncio.to_thread(store.put_parts, key + "p", meta, data)
    [handle, none] = await asyncio.to_thread(store.batch_get_buffer, [key + "p", "missing"])
    view = memoryview(handle)
    assert none is None and bytes(view[:28]) == meta and bytes(view[28:]) == chunk[: 2 * PAGE]
    del view, handle
    assert store.unregister_buffer(pool.ptr) == 0
    assert store.close() == 0


def lmcache(address):
    asyncio.run(_lmcache(address))


def vllm_ascend(address):
    import inspect

    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    assert "enable_ssd_offload" in inspect.signature(store.setup).parameters
    # Its own transport is not here, and that is said.
    refused = store.setup("localhost", "P2PHANDSHAKE", 0, 0, "ascend", "", address, object())
    assert refused == -600
    _setup(store, address, engine=(object(),), enable_ssd_offload=False)
    source, target = Memory.of(payload(3, 4 * PAGE)), Memory(4 * PAGE)
    key = f"ascend/{uuid.uuid4()}"
    pieces = [[source.ptr + i * PAGE for i in range(4)]]
    assert store.batch_is_exist([key]) == [0]
    assert store.batch_put_from_multi_buffers([key], pieces, [[PAGE] * 4]) == [0]
    to = [[target.ptr + i * PAGE for i in range(4)]]
    assert store.batch_get_into_multi_buffers([key], to, [[PAGE] * 4]) == [4 * PAGE]
    assert target.read() == source.read()


def main() -> None:
    name, address = sys.argv[1:]
    globals()[name](address)
    print("done", name, os.getpid(), flush=True)


if __name__ == "__main__":
    main()
