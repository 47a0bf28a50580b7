"""The Master's HTTP port: a scraper beside real work, with real processes."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request

import pytest
from models import LAYOUTS, publish, transformer
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.weight import WeightIdentity, WeightStore
from mooncake.store import MooncakeDistributedStore
from polling import wait_until
from test_security import Secured

IDENTITY = WeightIdentity("team", "model", "r", 1)
LOCAL = ("localhost", "P2PHANDSHAKE", 0, 16 << 20, "tcp", "")
SAMPLE = re.compile(r"^(mooncake_\w+)(\{[^}]*\})? (\S+)$")


def page(url: str, token: str = "") -> str:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as reply:
        return reply.read().decode()


def metrics(cluster: LocalCluster, token: str = "") -> dict[str, float]:
    """Each sample's value under its name and labels as Prometheus writes them."""
    values = {}
    for line in page(f"{cluster.admin_url}/metrics", token).splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.match(line).groups()
        values[name + (labels or "")] = float(value)
    return values


def test_a_scraper_sees_what_happens(tmp_path):
    with LocalCluster(
        nodes=2,
        capacity="128MiB",
        prepare="0",
        folder=tmp_path / "cluster with blanks",
        log_level="warning",
        monitored=True,
    ) as cluster:
        written = (cluster.folder / "master" / "admin_url").read_text()
        assert written == cluster.admin_url + "\n"
        before = metrics(cluster)
        assert sum(v for k, v in before.items() if k.startswith("mooncake_node_alive{")) == 2
        capacities = [v for k, v in before.items() if k.startswith("mooncake_node_capacity_bytes")]
        assert capacities == [128 << 20] * 2
        assert before['mooncake_revisions{availability="READY"}'] == 0

        with WeightStore(cluster.target) as weights:
            publish(weights, transformer(), LAYOUTS["tp1"], IDENTITY)
            assert metrics(cluster)['mooncake_revisions{availability="READY"}'] == 1
        store = MooncakeDistributedStore()
        assert store.setup(*LOCAL, cluster.address) == 0
        assert store.put_batch([f"k{n}" for n in range(5)], [b"v" * 1000] * 5) == 0
        assert store.get("k1") == b"v" * 1000 and store.get("none") == b""
        member = f"weights/{IDENTITY.namespace}/{IDENTITY.resource_id}/r/1/manifest"
        assert store.put(member, b"x") < 0
        after = metrics(cluster)
        of_tenant = {
            name: after[f'mooncake_tenant_{name}{{tenant="default"}}']
            for name in ("objects", "puts_total", "lookups_found_total", "managed_skipped_total")
        }
        assert of_tenant["objects"] == 5 and of_tenant["puts_total"] == 5
        assert of_tenant["lookups_found_total"] >= 1 and of_tenant["managed_skipped_total"] >= 1
        lookups = after['mooncake_tenant_lookups_total{tenant="default"}']
        assert lookups > of_tenant["lookups_found_total"]
        # Slabs and arenas are what is used.
        used = sum(v for k, v in after.items() if k.startswith("mooncake_node_used_bytes"))
        slabs = sum(v for k, v in after.items() if k.startswith("mooncake_node_slab_bytes"))
        assert used > slabs > 0
        assert after["mooncake_log_sequence"] > before["mooncake_log_sequence"]

        status = json.loads(page(f"{cluster.admin_url}/status"))
        assert len(status["cluster"]["nodes"]) == 2
        [tenant] = [t for t in status["tenants"] if t["quota"]["tenant_id"] == "default"]
        assert tenant["object_count"] == "5"
        cluster.nodes[0].kill()
        wait_until(lambda: sum(v for k, v in metrics(cluster).items() if "node_alive" in k) == 1)
        store.close()
        assert cluster.master.stop() == 0
        with pytest.raises(urllib.error.URLError):
            page(f"{cluster.admin_url}/metrics")


def test_without_the_flag_there_is_no_port(tmp_path):
    stale = tmp_path / "cluster" / "master" / "admin_url"
    for monitored in (True, False):
        with LocalCluster(
            nodes=0, folder=tmp_path / "cluster", log_level="warning", monitored=monitored
        ) as cluster:
            assert bool(cluster.admin_url) == monitored == stale.exists()


def test_a_page_is_for_whom_the_master_serves(tmp_path, monkeypatch):
    secured = Secured(tmp_path)
    with secured.cluster(("--http-port", "0")) as cluster:
        with pytest.raises(urllib.error.HTTPError) as refused:
            metrics(cluster)
        assert refused.value.code == 401
        with pytest.raises(urllib.error.HTTPError) as refused:
            metrics(cluster, secured.tokens["node"])
        assert refused.value.code == 403
        for who in ("blue", "red"):
            monkeypatch.setenv("MOONCAKE_TOKEN", secured.tokens[who])
            store = MooncakeDistributedStore()
            assert store.setup(*LOCAL, cluster.address, tenant_id=who) == 0
            assert store.put("key", b"value") == 0
            store.close()
        operators = metrics(cluster, secured.tokens["operator"])
        blues = metrics(cluster, secured.tokens["blue"])
        for who in ("blue", "red"):
            assert operators[f'mooncake_tenant_objects{{tenant="{who}"}}'] == 1
        assert blues['mooncake_tenant_objects{tenant="blue"}'] == 1
        assert not any('tenant="red"' in name for name in blues)
