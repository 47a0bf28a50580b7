"""`mooncake tenants`, as an operator runs it, and that quotas hold for the Python face."""

from __future__ import annotations

import json
import subprocess
import sys

from mooncake.local_cluster import LocalCluster
from mooncake.store import MooncakeDistributedStore
from payloads import payload


def run(target: str, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mooncake.cli", "--store", target, "tenants", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


def test_quotas_are_set_seen_and_hold():
    with LocalCluster(nodes=1, capacity="256MiB", log_level="warning") as cluster:
        run(cluster.target, "set", "red", "--bytes", "64KiB", "--objects", "5")
        assert "expected a size" in run(cluster.target, "set", "red", "--bytes", "much", status=2)
        store = MooncakeDistributedStore()
        assert (
            store.setup(
                "localhost", "P2PHANDSHAKE", 0, 1 << 20, "tcp", "", cluster.address, tenant_id="red"
            )
            == 0
        )
        assert store.put("large", payload(1, 65 << 10)) == -1700
        for number in range(5):
            assert store.put(f"small {number}", payload(number, 1 << 10)) == 0
            assert store.is_exist(f"small {number}") == 1  # leased: not evicted for the next
        assert store.put("one more", payload(9, 1 << 10)) == -1700
        [red] = [
            one
            for one in json.loads(run(cluster.target, "list", "--json"))
            if one["tenant_id"] == "red"
        ]
        assert (red["objects"], red["objects_max"], red["bytes_max"]) == (5, 5, 64 << 10)
        assert red["refused_puts"] == 2 and red["known"]
        assert "64.0 KiB" in run(cluster.target, "list")
        assert "5 objects" in run(cluster.target, "rm", "red", status=1)
        assert store.remove_all(True) == 5
        run(cluster.target, "rm", "red")
        assert "red" not in run(cluster.target, "list")
        store.close()
