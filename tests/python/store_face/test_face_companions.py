"""BufferPool, the asyncio face, launchers' settings."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake.buffer_pool import BufferPool
from mooncake.mooncake_config import MooncakeConfig
from payloads import payload

KIB = 1 << 10


def test_pool_leases(store, key):
    with BufferPool(store, alignment=64 * KIB) as pool:
        with pool.acquire(10_000) as lease:
            assert lease.size == 10_000 and lease.ptr % (64 * KIB) == 0
            lease.buffer[:] = payload(1, 10_000)
            assert store.put_from(key, lease.ptr, lease.size) == 0
            with pool.buffer(10_000) as other:
                assert other.ptr != lease.ptr
                # It is registered: ranges may be read into it.
                read = store.get_into_ranges([other.ptr], [[key]], [[[0]]], [[[0]]], [[[10_000]]])
                assert read == [[[10_000]]]
                assert bytes(other.buffer) == payload(1, 10_000)
        with pytest.raises(RuntimeError, match="released"):
            lease.buffer  # noqa: B018
        lease.release()  # a second time does nothing
        again = pool.acquire(10_000)
        view = again.buffer[5:10]
        with pytest.raises(RuntimeError, match="viewed"):
            again.release()
        view.release()
        with pytest.raises(RuntimeError, match="leases"):
            pool.close()
        again.release()
    with pytest.raises(RuntimeError, match="closed"):
        pool.acquire(1)


def test_pool_limits(store):
    limits = {"max_bytes": 128 * KIB, "alignment": 64 * KIB}
    pool = BufferPool(store, **limits, block_on_exhaustion=False)
    held = [pool.acquire(64 * KIB) for _ in range(2)]
    with pytest.raises(RuntimeError, match="exhausted"):
        pool.acquire(1)
    with pytest.raises(TimeoutError):
        pool.acquire(1, block=True, timeout=0.01)
    with pytest.raises(ValueError):
        pool.acquire(0)
    waiting = threading.Thread(target=lambda: pool.acquire(5, block=True).release())
    waiting.start()
    held.pop().release()
    waiting.join(timeout=30)
    assert not waiting.is_alive()
    held.pop().release()
    pool.close()
    with BufferPool(store, max_size_class=64 * KIB, alignment=64 * KIB, max_regions=1) as pool:
        with pytest.raises(RuntimeError, match="max_size_class"):
            pool.acquire(64 * KIB + 1)
        pool.prewarm(1000, 1)
        with pytest.raises(RuntimeError, match="limits"):
            pool.prewarm(1000, 2)


def test_asyncio(cluster, key):
    async def calls():
        store = MooncakeDistributedStoreAsync()
        arguments = ("localhost", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", cluster.address)
        assert await store.async_setup(*arguments) == 0
        names = [f"{key}/{i}" for i in range(20)]
        puts = [store.async_put(name, payload(i, 999)) for i, name in enumerate(names)]
        assert await asyncio.gather(*puts) == [0] * 20
        got = await asyncio.gather(*(store.async_get(name) for name in names))
        assert got == [payload(i, 999) for i in range(20)]
        assert await store.async_batch_is_exist(keys=[*names, "none"]) == [1] * 20 + [0]
        with pytest.raises(AttributeError):
            store.async_no_such_method  # noqa: B018
        assert await store.async_close() == 0

    asyncio.run(calls())


def test_settings_of_launchers(tmp_path, monkeypatch):
    for name in ("MOONCAKE_CONFIG_PATH", "MOONCAKE_MASTER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="MOONCAKE_MASTER"):
        MooncakeConfig.load_from_env()
    monkeypatch.setenv("MOONCAKE_MASTER", "m:1")
    config = MooncakeConfig.load_from_env()
    assert (config.local_hostname, config.metadata_server) == ("localhost", "P2PHANDSHAKE")
    assert (config.global_segment_size, config.local_buffer_size) == (3355443200, 1073741824)
    assert (config.master_server_address, config.protocol) == ("m:1", "tcp")
    assert config.tenant_id == "default" and config.client_http_port == 9300
    monkeypatch.setenv("MOONCAKE_OFFLOAD_ENABLED", "true")
    assert MooncakeConfig.load_from_env().enable_ssd_offload is True
    path = tmp_path / "mooncake.json"
    monkeypatch.setenv("MOONCAKE_CONFIG_PATH", str(path))
    written = {"local_hostname": "h", "metadata_server": "P2PHANDSHAKE", "other": 1}
    path.write_text(json.dumps(written))
    with pytest.raises(ValueError, match="master_server_address"):
        MooncakeConfig.load_from_env()
    written |= {"master_server_address": "f:2", "global_segment_size": "1024", "device_name": "d"}
    path.write_text(json.dumps(written))
    config = MooncakeConfig.load_from_env()  # the file wins
    assert (config.master_server_address, config.global_segment_size) == ("f:2", 1024)
    assert config.device_name == "d" and config.local_buffer_size == 1073741824
