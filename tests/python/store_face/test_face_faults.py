"""A Master, a node or a lender that goes away."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from mooncake.local_cluster import LocalCluster
from mooncake.store import MooncakeDistributedStore, ReplicateConfig
from payloads import Memory, payload


@pytest.fixture
def own_cluster():
    with LocalCluster(nodes=1, capacity="64MiB", prepare="0", log_level="warning") as running:
        yield running


@pytest.fixture
def store(own_cluster, monkeypatch):
    monkeypatch.setenv("MC_RPC_TIMEOUT_MS", "300")
    made = MooncakeDistributedStore()
    arguments = ("localhost", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", own_cluster.address)
    assert made.setup(*arguments) == 0
    yield made
    made.close()


def _wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)  # a poll with a deadline


def test_a_master_that_is_killed(own_cluster, store):
    content = payload(1, 1000)
    memory = Memory.of(content)
    assert store.put("k", content) == 0
    # Puts are acknowledged before they are on disk; what is removed, after, and with it all before.
    assert store.put("removed", content) == 0 and store.remove("removed") == 0
    own_cluster.master.kill()
    lost = (-900, -901)
    assert store.health_check() == 2
    assert store.put("new", b"v") in lost and store.upsert("k", b"v") in lost
    assert store.put_batch(["a", "b"], [b"v", b"v"]) in lost
    assert store.get("k") == b"" and store.get_buffer("k") is None
    assert store.get_into("k", memory.ptr, 1000) in lost
    assert all(code in lost for code in store.batch_get_into(["k", "l"], [memory.ptr] * 2, [8, 8]))
    assert all(code in lost for code in store.batch_put_from(["a"], [memory.ptr], [8]))
    assert store.is_exist("k") in lost
    assert all(code in lost for code in store.batch_is_exist(["k", "l"]))
    assert store.get_size("k") in lost and store.remove("k") in lost
    assert store.remove_all(True) in lost and store.remove_by_regex("k") in lost
    assert store.batch_get_session_start(["k"])[0] in lost
    assert store.get_replica_desc("k") == []
    # It comes back, and nothing has to be set up again.
    own_cluster.master.start()
    _wait_until(lambda: store.is_exist("k") == 1)
    assert (
        store.is_exist("removed") == 0 and store.get("k") == content and store.health_check() == 0
    )
    assert store.put("new", b"v") == 0 and store.get("new") == b"v"


def test_a_node_that_is_killed(own_cluster, store):
    assert store.put("k", payload(1, 100_000)) == 0
    [node] = own_cluster.nodes
    node.kill()
    assert store.get("k") in (b"", payload(1, 100_000))  # its memory may be mapped here still
    _wait_until(lambda: store.is_exist("k") == 0)
    assert store.get("k") == b"" and store.put("l", b"v") == -200
    node.start()
    _wait_until(lambda: store.put("l", b"v") == 0)
    assert store.get("l") == b"v" and store.get("k") == b""


LENDER = """
import sys
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("localhost:1", "P2PHANDSHAKE", 32 << 20, 0, "tcp", "", sys.argv[1]) == 0
print("lending", flush=True)
sys.stdin.read()
"""


def test_a_lender_that_is_killed(own_cluster, store):
    command = [sys.executable, "-c", LENDER, own_cluster.address]
    lender = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert lender.stdout.readline() == "lending\n"
        config = ReplicateConfig()
        config.preferred_segment = "localhost:1"
        content = payload(1, 50_000)
        assert store.put("there", content, config) == 0
        config.replica_num = 2
        assert store.put("both", content, config) == 0
        assert store.get("there") == content and len(store.get_replica_desc("both")) == 2
        lender.kill()
        lender.wait()
        _wait_until(lambda: store.is_exist("there") == 0)
        assert store.get("both") == content  # another copy
        _wait_until(lambda: store.put("there", b"again") == 0 and store.get("there") == b"again")
    finally:
        lender.kill()
        lender.wait()
