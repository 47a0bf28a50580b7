"""Ordinary objects for clients of other hosts: over TCP alone, with real processes.

Such a client is made by telling it that it is somewhere else, and by taking the nodes' Unix sockets
away: what it gets can only have come over TCP.
"""

from __future__ import annotations

import functools
import subprocess

import numpy as np
import pytest
from mooncake import _core
from mooncake.local_cluster import LocalCluster, find_program
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from test_security import Secured, Tls

SIZES = (1, 7, 4096, 65_536, 1 << 20, (5 << 20) + 3)
# Every address of 127/8 is this host, and this one is not what "localhost" is.
HERE = "127.0.1.1"
OPEN = ("--listen", "0.0.0.0:0", "--advertise", HERE)


def payload(number: int, size: int) -> bytes:
    """Word i of payload `number` is number * 2^40 + i."""
    return (np.arange(-(-size // 8), dtype="<u8") + (number << 40)).tobytes()[:size]


@pytest.fixture(autouse=True)
def _no_credentials_around(monkeypatch):
    for name in ("TOKEN", "TOKEN_FILE", "NODE_TOKEN", "NODE_TOKEN_FILE", "TLS_CA"):
        monkeypatch.delenv(f"MOONCAKE_{name}", raising=False)


@pytest.fixture
def elsewhere(monkeypatch):
    """Stores that are opened in the test are on another host, as far as they know."""
    there = functools.partial(_core.ObjectStore, host_id="elsewhere")
    monkeypatch.setattr(_core, "ObjectStore", there)


@pytest.fixture
def open_store():
    """Makes stores that are closed with the test: open_store(cluster, lent bytes, own host)."""
    made = []

    def make(cluster, segment=0, host="localhost", tenant="default", status=0):
        store = MooncakeDistributedStore()
        made.append(store)
        arguments = (host, "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", cluster.address)
        assert store.setup(*arguments, tenant_id=tenant) == status
        return store

    yield make
    for store in made:
        store.close()


def take_sockets_away(cluster):
    sockets = list(cluster.folder.glob("node*/node.sock"))
    assert sockets
    for socket in sockets:
        socket.unlink()


def put_and_get(store, name):
    for number, size in enumerate(SIZES):
        assert store.put(f"{name}/{size}", payload(number, size)) == 0
    for number, size in enumerate(SIZES):
        assert store.get(f"{name}/{size}") == payload(number, size)
    keys = [f"{name}/b{number}" for number in range(40)]
    sources = [np.frombuffer(payload(n, 1000 * n + 1), np.uint8).copy() for n in range(40)]
    sizes = [s.size for s in sources]
    assert store.batch_put_from(keys, [s.ctypes.data for s in sources], sizes) == [0] * 40
    targets = [np.zeros(s.size, np.uint8) for s in sources]
    assert store.batch_get_into(keys, [t.ctypes.data for t in targets], sizes) == sizes
    for source, target in zip(sources, targets, strict=True):
        assert (source == target).all()
    memory = np.zeros(100, np.uint8)
    assert store.register_buffer(memory.ctypes.data, 100) == 0
    key = f"{name}/{SIZES[-1]}"
    read = store.get_into_ranges([memory.ctypes.data], [[key]], [[[10]]], [[[5_000_000]]], [[[80]]])
    assert read == [[[80]]]
    whole = payload(len(SIZES) - 1, SIZES[-1])
    assert memory[10:90].tobytes() == whole[5_000_000:5_000_080]
    assert store.batch_put_session_start([f"{name}/s"], [65_537]) == [0]
    source = sources[39]
    begin = source.ctypes.data
    for at, bytes_ in ((30_000, 9_001), (0, 30_000)):
        written = store.batch_put_from_multi_buffer_ranges(
            [f"{name}/s"], [[begin + at]], [[bytes_]], [[at]]
        )
        assert written == [bytes_]
    assert store.batch_put_session_end([f"{name}/s"]) == [0]
    assert store.get(f"{name}/s") == source.tobytes() + bytes(65_537 - 39_001)


def test_a_client_without_a_socket_to_the_node(tmp_path, elsewhere, open_store):
    with LocalCluster(
        nodes=2,
        capacity="128MiB",
        prepare="0",
        folder=tmp_path / "cluster",
        log_level="warning",
        node_arguments=(*OPEN, "--insecure"),
    ) as cluster:
        take_sockets_away(cluster)
        store = open_store(cluster)
        put_and_get(store, "one")
        both = ReplicateConfig()
        both.replica_num = 2
        content = payload(9, 3_000_000)
        assert store.put("both", content, both) == 0
        cluster.nodes[0].kill()
        assert store.get("both") == content


def test_without_an_address_for_others_there_is_no_way(
    tmp_path, elsewhere, open_store, monkeypatch
):
    monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "300")
    with LocalCluster(
        nodes=1, capacity="64MiB", prepare="0", folder=tmp_path / "cluster", log_level="warning"
    ) as cluster:
        take_sockets_away(cluster)
        store = open_store(cluster)
        assert store.put("k", b"v") == -800 and store.is_exist("k") == 0


def test_a_client_of_another_host_with_token_and_tls(tmp_path, elsewhere, open_store, monkeypatch):
    tls = Tls(tmp_path)
    with tls.tls_cluster(node=OPEN) as cluster:
        take_sockets_away(cluster)
        monkeypatch.setenv("MOONCAKE_TLS_CA", str(tls.authority.ca))
        open_store(cluster, status=-1)  # no token
        monkeypatch.setenv("MOONCAKE_TOKEN", "mooncake_unknown")
        open_store(cluster, status=-1)
        monkeypatch.setenv("MOONCAKE_TOKEN", tls.tokens["blue"])
        blue = open_store(cluster, tenant="blue")
        put_and_get(blue, "mine")
        # Another tenant's token neither reads nor names them.
        monkeypatch.setenv("MOONCAKE_TOKEN", tls.tokens["red"])
        red = open_store(cluster, tenant="red")
        assert red.get("mine/7") == b"" and red.get_size("mine/7") == -704
        assert red.put("mine/7", b"red's") == 0 and red.get("mine/7") == b"red's"
        assert blue.get("mine/7") == payload(1, 7)
        liar = open_store(cluster, tenant="blue")
        assert liar.get("mine/7") == b"" and liar.get_size("mine/7") == -601
        assert liar.put("k", b"v") == -601 and liar.remove("mine/7") == -601


@pytest.mark.parametrize("given", [(), ("--token-file",), ("--tls-ca",)])
def test_a_node_is_not_opened_to_other_hosts_by_accident(tmp_path, given):
    tls = Tls(tmp_path)
    files = {"--token-file": tls.file("node"), "--tls-ca": tls.authority.ca}
    arguments = [word for flag in given for word in (flag, files[flag])]
    # The Master is another host, which is never asked: this ends before.
    node = subprocess.run(
        [find_program("mooncake-node"), "--master", "master.invalid:7000", "--folder",
         tmp_path / "node", "--capacity", "64MiB", *OPEN, *arguments],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert node.returncode == 2 and not (tmp_path / "node").exists()
    missing = "--tls-ca" if "--token-file" in given else "--token-file"
    assert f"give {missing}" in node.stderr and "or say --insecure" in node.stderr


def test_memory_that_a_client_lends_to_other_hosts(tmp_path, open_store, monkeypatch):
    secured = Secured(tmp_path)
    cluster = LocalCluster(
        nodes=0,
        folder=tmp_path / "cluster",
        log_level="warning",
        master_arguments=("--token-file", str(secured.table)),
    )
    with cluster:
        # A lender holds bytes of every tenant: a client's token alone does not do.
        monkeypatch.setenv("MOONCAKE_TOKEN", secured.tokens["operator"])
        monkeypatch.setenv("MOONCAKE_NODE_TOKEN", secured.tokens["blue"])
        open_store(cluster, 64 << 20, HERE, status=-1)
        monkeypatch.setenv("MOONCAKE_NODE_TOKEN", secured.tokens["node"])
        lender = open_store(cluster, 64 << 20, HERE)
        assert lender.get_hostname().startswith(HERE + ":")
        monkeypatch.setenv("MOONCAKE_TOKEN", secured.tokens["blue"])
        there = functools.partial(_core.ObjectStore, host_id="elsewhere")
        monkeypatch.setattr(_core, "ObjectStore", there)
        blue = open_store(cluster, tenant="blue")
        put_and_get(blue, "lent")
        [copy] = blue.get_replica_desc("lent/7")
        descriptor = copy.get_memory_descriptor().buffer_descriptor
        assert descriptor.transport_endpoint == lender.get_hostname()
        # What was lent goes with who lent it.
        lender.close()
        assert blue.is_exist("lent/7") == 0 and blue.put("lent/7", b"v") == -200
