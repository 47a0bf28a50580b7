"""setup, close and what is answered outside of them (sections 1 and 3)."""

from __future__ import annotations

import inspect
import threading

import pytest
from mooncake.cli.status import cluster_status
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from mooncake.store._setup import HeldPort, SetupRefused, from_dict

P2P = "P2PHANDSHAKE"


@pytest.fixture
def fresh():
    made = MooncakeDistributedStore()
    yield made
    made.close()


def test_positional_setup(fresh, cluster):
    assert fresh.get_hostname() == "" and fresh.health_check() == 1
    assert fresh.setup("localhost", P2P, 0, 1 << 20, "tcp", "", cluster.address) == 0
    host, _, port = fresh.get_hostname().partition(":")
    assert host == "localhost" and 12300 <= int(port) <= 14300
    assert fresh.health_check() == 0
    assert fresh.close() == 0 and fresh.close() == 0
    assert fresh.health_check() == 1 and fresh.get_hostname() == ""
    # Again, after a close, and over a live client.
    for host in ("localhost:23456", "localhost"):
        assert fresh.setup(host, P2P, 0, 1 << 20, "tcp", "", cluster.address) == 0
        assert fresh.put("again", b"v") == 0 and fresh.remove("again") == 0
    assert fresh.get_hostname() != "localhost:23456"


def test_keywords_and_their_absence(fresh, cluster):
    arguments = {
        "local_hostname": "localhost",
        "metadata_server": P2P,
        "global_segment_size": 0,
        "local_buffer_size": 1 << 20,
        "protocol": "tcp",
        "rdma_devices": "",
        "master_server_addr": cluster.address,
    }
    more = {
        "engine": object(),
        "enable_ssd_offload": False,
        "ssd_offload_path": "",
        "tenant_id": "",
        "enable_client_http_server": True,
        "client_http_port": 9301,
    }
    assert fresh.setup(**arguments, **more) == 0
    for name in arguments:
        with pytest.raises(TypeError, match=name):
            fresh.setup(**{k: v for k, v in arguments.items() if k != name})
    for name in ("global_segment_size", "local_buffer_size"):
        with pytest.raises(TypeError, match=name):
            fresh.setup(**{**arguments, name: "16MB"})
    with pytest.raises(TypeError, match="enable_something_new"):
        fresh.setup(**arguments, enable_something_new=1)
    parameters = inspect.signature(fresh.setup).parameters
    assert {*arguments, *more} <= set(parameters)


@pytest.mark.parametrize(
    "changed",
    [
        {"protocol": "rdma"},
        {"protocol": "TCP"},
        {"protocol": ""},
        {"client_http_port": 0},
        {"client_http_port": 65536},
        {"tenant_id": "_system"},
        {"tenant_id": "a\nb"},
        {"local_hostname": ""},
        {"metadata_server": ""},
        {"global_segment_size": -1},
        {"local_buffer_size": -1},
        {"enable_ssd_offload": True},
        {"master_server_addr": "etcd://a;b"},
    ],
)
def test_refused_arguments(fresh, cluster, changed):
    arguments = {
        "local_hostname": "localhost",
        "metadata_server": P2P,
        "global_segment_size": 0,
        "local_buffer_size": 1 << 20,
        "protocol": "tcp",
        "rdma_devices": "",
        "master_server_addr": cluster.address,
        **changed,
    }
    assert fresh.setup(**arguments) == -600
    assert fresh.health_check() == 1


def test_no_master(fresh, monkeypatch):
    monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "100")
    nobody = ("tcp", "", "127.0.0.1:1")
    assert fresh.setup("localhost:12345", P2P, 0, 0, *nobody) == -600
    assert fresh.setup("localhost", P2P, 0, 0, *nobody) == -1
    # After a failed setup as before one.
    assert fresh.put("k", b"v") == -600 and fresh.get_buffer("k") is None


def test_dict_setup(fresh, cluster):
    config = {
        "local_hostname": "localhost",
        "metadata_server": P2P,
        "global_segment_size": "1 mb",
        "local_buffer_size": "2.5MB",
        "master_server_addr": cluster.address,
        "tenant_id": "",
        "enable_ssd_offload": "maybe",
        "client_http_port": "9300",
        "unknown": object(),
    }
    assert fresh.setup(config) == 0
    assert fresh.put("dict", bytes(2 << 20)) == 0 and fresh.put("dict2", bytes(3 << 20)) == -600
    fresh.remove_all(True)
    assert fresh.setup(config=config) == 0
    for name in ("local_hostname", "metadata_server"):
        assert fresh.setup({**config, name: ""}) == -600
        assert fresh.setup({k: v for k, v in config.items() if k != name}) == -600
    for changed in (
        {"local_buffer_size": "50%"},
        {"global_segment_size": "1023"},
        {"global_segment_size": "-5"},
        {"local_buffer_size": "2TB"},
        {"client_http_port": "http"},
    ):
        assert fresh.setup({**config, **changed}) == -600


def test_sizes():
    def size(text):
        return from_dict(
            {"local_hostname": "h", "metadata_server": P2P, "global_segment_size": text}
        ).global_segment_size

    for text, expected in (
        ("16777216", 16 << 20),
        (16 << 20, 16 << 20),
        ("0", 0),
        ("4K", 4096),
        ("4kb", 4096),
        ("1.5 M", 3 << 19),
        ("3GB", 3 << 30),
        ("2t", 2 << 40),
        ("2048B", 2048),
    ):
        assert size(text) == expected, text
    assert size("infinite") > 1 << 60
    for text in ("", "x", "1 PB", "0x10", "1e3", "50%"):
        with pytest.raises(SetupRefused):
            size(text)
    defaults = from_dict({"local_hostname": "h", "metadata_server": P2P})
    assert defaults.global_segment_size == defaults.local_buffer_size == 16 << 20
    assert (defaults.protocol, defaults.master_server_addr) == ("tcp", "127.0.0.1:50051")


def test_ports(monkeypatch):
    for given in ("host:1234", "10.0.0.1:80", "[::1]:99"):
        assert HeldPort(given).name == given
    monkeypatch.setenv("MC_STORE_CLIENT_MIN_PORT", "23456")
    monkeypatch.setenv("MC_STORE_CLIENT_MAX_PORT", "23456")
    first = HeldPort("host")
    assert first.name == "host:23456"
    with pytest.raises(SetupRefused, match="no free port"):
        HeldPort("other")
    first.close()
    again = HeldPort("::1")
    assert again.name == "::1:23456"
    again.close()


def test_legacy_and_dummy(fresh):
    assert fresh.setup_dummy(1 << 20, 1 << 20, "127.0.0.1:1") == -1
    assert fresh.init_all("tcp", "", 1 << 20) == -600


def _outside(store):
    config = ReplicateConfig()
    return {
        "get": (store.get("k"), b""),
        "get_batch": (store.get_batch(["k", "l"]), [b""]),
        "get_buffer": (store.get_buffer("k"), None),
        "batch_get_buffer": (store.batch_get_buffer(["k"]), [None]),
        "put": (store.put("k", b"v"), -600),
        "put_parts": (store.put_parts("k", b"v"), -600),
        "put_batch": (store.put_batch(["k"], [b"v"]), -600),
        "put_from": (store.put_from("k", 1, 1), -600),
        "put_from_with_metadata": (store.put_from_with_metadata("k", 1, 1, 1, 1), -600),
        "batch_put_from": (store.batch_put_from(["k", "l"], [1, 1], [1, 1]), [-600, -600]),
        "multi": (store.batch_put_from_multi_buffers(["k"], [[1]], [[1]], config), []),
        "upsert": (store.upsert("k", b"v"), -600),
        "upsert_from": (store.upsert_from("k", 1, 1), -600),
        "upsert_batch": (store.upsert_batch(["k"], [b"v"]), -600),
        "batch_upsert_from": (store.batch_upsert_from(["k"], [1], [1]), [-600]),
        "get_into": (store.get_into("k", 1, 1), -600),
        "batch_get_into": (store.batch_get_into(["k"], [1], [1]), [-600]),
        "multi get": (store.batch_get_into_multi_buffers(["k"], [[1]], [[1]]), [-600]),
        "ranges": (store.get_into_ranges([1], [["k"]], [[[0]]], [[[0]]], [[[1]]]), [[[-600]]]),
        "is_exist": (store.is_exist("k"), -600),
        "batch_is_exist": (store.batch_is_exist(["k", "l"]), [-600, -600]),
        "get_size": (store.get_size("k"), -600),
        "remove": (store.remove("k"), -600),
        "batch_remove": (store.batch_remove(["k"]), [-600]),
        "remove_by_regex": (store.remove_by_regex("k"), -600),
        "remove_all": (store.remove_all(), -600),
        "register": (store.register_buffer(1, 1), -600),
        "unregister": (store.unregister_buffer(1), -600),
        "replicas": (store.get_replica_desc("k"), []),
        "batch replicas": (store.batch_get_replica_desc(["k"]), {}),
        "clear": (store.batch_replica_clear(["k"]), []),
        "session start": (store.batch_get_session_start(["k"]), []),
        "session end": (store.batch_get_session_end(["k"]), -1),
        "tensor": (store.get_tensor("k"), None),
        "put tensor": (store.put_tensor("k", None), -600),
        "health": (store.health_check(), 1),
        "close": (store.close(), 0),
    }


def test_before_setup_and_after_close(fresh, cluster):
    for answers in (_outside(fresh),):
        for method, (got, expected) in answers.items():
            assert got == expected, method
    assert fresh.setup("localhost", P2P, 0, 1 << 20, "tcp", "", cluster.address) == 0
    fresh.close()
    for method, (got, expected) in _outside(fresh).items():
        assert got == expected, method


def test_closing_under_calls(client, key):
    store = client()
    store.put(key, b"v" * 1000)
    stop = threading.Event()
    seen = []

    def read():
        while not stop.is_set():
            seen.append(store.get(key))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(seen) < 50:
        pass
    store.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert set(seen) <= {b"v" * 1000, b""}


def test_segments_of_a_client(client, key):
    lender = client(segment=32 << 20)
    name = lender.get_hostname()
    config = ReplicateConfig()
    config.preferred_segment = name
    assert lender.put(key, b"mine", config) == 0
    other = client()
    [replica] = other.get_replica_desc(key)
    assert replica.is_memory_replica() and not replica.is_disk_replica()
    assert not replica.is_local_disk_replica()
    described = replica.get_memory_descriptor().buffer_descriptor
    assert (described.size, described.transport_endpoint) == (4, name)
    with pytest.raises(RuntimeError):
        replica.get_disk_descriptor()
    assert other.get(key) == b"mine"
    # With its owner its only copy goes.
    lender.close()
    assert other.get(key) == b""


def test_lenders_are_reached_by_their_name(client, cluster, fresh):
    client(segment=16 << 20, host="127.0.0.2")
    client(segment=16 << 20, host="localhost")
    client(segment=16 << 20, host="127.0.0.3", protocol="rpc_only")
    nodes = cluster_status(cluster.target)["nodes"]
    served = {
        node["address"]["node_id"].partition(":")[0]: node["address"]["tcp_address"]
        for node in nodes
        if node["alive"] and node["objects_only"]
    }
    assert served["localhost"] == served["127.0.0.3"] == ""
    assert served["127.0.0.2"].startswith("127.0.0.2:")
    # A name that is none of this host's is said at once.
    nowhere = ("192.0.2.1:1", P2P, 1 << 20, 0, "tcp", "", cluster.address)
    assert fresh.setup(*nowhere) == -600


def test_mounted_segments(client, key):
    store = client()
    mounted = store.allocate_and_mount_segment(16 << 20)
    assert mounted["ret"] == 0 and mounted["allocated_size"] == 16 << 20
    [name] = mounted["segment_ids"]
    config = ReplicateConfig()
    config.preferred_segment = name
    assert store.put(key, b"there", config) == 0
    [replica] = store.get_replica_desc(key)
    assert replica.get_memory_descriptor().buffer_descriptor.transport_endpoint == name
    assert store.unmount_and_free_segment([name]) == 0
    assert store.unmount_and_free_segment([name]) == -101
    assert store.mount_segment("/tmp/x", 1 << 20) == {"ret": -1, "segment_ids": []}
    assert store.allocate_and_mount_segment(0)["ret"] == -1


def test_no_tasks(store, key):
    assert store.create_copy_task(key, ["a"]) == ((0, 0), -1012)
    assert store.create_move_task(key, "a", "b") == ((0, 0), -1012)
    assert store.query_task((1, 2)) == (None, -1400)
    assert store.alloc_from_mem_pool(10) == 0 and store.get_offload_rpc_read_count() == 0
    assert store.unmount_local_disk_segment() == -1012


def test_an_embedded_store(fresh, tmp_path):
    target = f"file://{tmp_path / 'store'}"
    assert fresh.setup("localhost", P2P, 1 << 20, 1 << 20, "tcp", "", target) == 0
    assert fresh.put("k", b"v" * 100) == 0 and fresh.get("k") == b"v" * 100
