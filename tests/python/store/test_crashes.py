"""SIGKILL of publisher, Master and node, at every step of a publish."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake.cli.status import cluster_status
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.adapters import layout_placement
from mooncake.reshard.weight import WeightAvailability, WeightIdentity, WeightStore, bind_tensors
from mooncake.reshard.weight.errors import (
    WeightBusyError,
    WeightCorruptError,
    WeightNotFoundError,
    WeightNotReadyError,
)
from polling import wait_until

HERE = Path(__file__).parent
STEPS = [
    "import.begun",
    "import.located",
    "import.arena_opened",
    "import.fragment_put",
    "import.digests_written",
    "import.receipt_accepted",
    "import.replicas_compared",
    "import.manifest_written",
    "import.affinity_written",
    "import.sealed",
    "import.committed",
]


def run_publisher(target, identity, step="none", count=1, pid=0, salt=0):
    return subprocess.run(
        [
            sys.executable,
            str(HERE / "publisher.py"),
            target,
            str(salt),
            identity.revision,
            str(identity.weight_generation),
            step,
            str(count),
            str(pid),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def space(target):
    """(used, releasing) bytes over all nodes, as the Master accounts them."""
    status = cluster_status(target)
    return (
        sum(node["used_bytes"] for node in status["nodes"]),
        sum(node["releasing_bytes"] for node in status["nodes"]),
    )


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_publisher_leaves_nothing(cluster, identity, step):
    model = transformer()
    with WeightStore(cluster.target) as store:
        wait_until(lambda: space(cluster.target)[1] == 0)
        before = space(cluster.target)
        killed = run_publisher(cluster.target, identity, step, count=2 if "put" in step else 1)
        assert killed.returncode == -9, killed.stderr
        if step == "import.committed":
            load_and_check(store, model, LAYOUTS["tp1"], identity)
        else:
            assert not store.weight_is_exist(identity)
            assert identity not in [v.identity for v in store.weight_list("tests")]
        again = run_publisher(cluster.target, identity)
        assert again.returncode == 0, again.stderr
        load_and_check(store, model, LAYOUTS["tp4-across"], identity)
        store.weight_remove(identity)
        wait_until(lambda: space(cluster.target) == before)


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_master_loses_nothing_acknowledged(tmp_path, step):
    model = transformer()
    first = WeightIdentity("tests", "model", "first", 1)
    second = WeightIdentity("tests", "model", "second", 1)
    with LocalCluster(nodes=1, capacity="256MiB", folder=tmp_path, log_level="warning") as cluster:
        with WeightStore(cluster.target) as store:
            publish(store, model, LAYOUTS["tp2-pp2"], first)
            address = cluster.address
            publisher = subprocess.Popen(
                [
                    sys.executable,
                    str(HERE / "publisher.py"),
                    cluster.target,
                    "0",
                    second.revision,
                    "1",
                    step,
                    "1",
                    str(cluster.master.pid),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            cluster.master.process.wait(60)
            assert cluster.master.start().group(1) == address
            output, errors = publisher.communicate(timeout=60)
            assert publisher.returncode == 0, errors
            load_and_check(store, model, LAYOUTS["tp3-unequal"], first)
            load_and_check(store, model, LAYOUTS["tp3-unequal"], second)
            assert store.weight_get_metadata(second).metadata.manifest_sha256 == output.strip()


def test_a_dead_node_makes_its_revisions_degraded(tmp_path, identity):
    model = transformer()
    with LocalCluster(nodes=1, capacity="256MiB", folder=tmp_path, log_level="warning") as cluster:
        with WeightStore(cluster.target, retry_ms=2000) as store:
            publish(store, model, LAYOUTS["tp1"], identity)
            cluster.nodes[0].kill()
            degraded = wait_until(
                lambda: (
                    (m := store.weight_get_metadata(identity).metadata).availability
                    is WeightAvailability.DEGRADED
                    and m
                )
            )
            assert "node" in degraded.state_reason
            assert not store.weight_is_exist(identity)
            with pytest.raises(WeightNotReadyError, match="node"):
                load_and_check(store, model, LAYOUTS["tp1"], identity)
            # A new process of the same node has none of the memory.
            cluster.nodes[0].start()
            other = WeightIdentity("tests", "model", "other", 1)
            publish(store, model, LAYOUTS["tp1"], other)
            load_and_check(store, model, LAYOUTS["tp2-pp2"], other)
            metadata = store.weight_get_metadata(identity).metadata
            assert metadata.availability is WeightAvailability.DEGRADED
            assert store.weight_remove(identity).availability is WeightAvailability.DELETED


def test_removal_while_a_reader_holds_a_lease_is_busy(store, identity):
    model = transformer()
    publish(store, model, LAYOUTS["tp1"], identity)
    placement = layout_placement(model.tensors, LAYOUTS["tp1"], identity)
    part = placement.parts[0]
    buffers = {f.tensor_id: torch.zeros(f.local_shape, dtype=torch.int32) for f in part.fragments}
    seen = []

    def remove_meanwhile(progress):
        if not progress.done:
            with pytest.raises(WeightBusyError, match="1"):
                store.weight_remove(identity)
            seen.append(progress.stage)

    store.weight_get(
        identity,
        placement,
        bind_tensors(placement, part.participant_id, buffers),
        progress=remove_meanwhile,
    )
    assert seen, "progress was never reported while copying"
    store.weight_remove(identity)
    with pytest.raises(WeightNotFoundError):
        store.weight_get_metadata(WeightIdentity("tests", "model", "never", 1))


def test_a_flipped_byte_is_found_and_named(tmp_path, identity):
    folder = tmp_path / "store"
    model = transformer()
    with WeightStore(f"file://{folder}") as store:
        publish(store, model, LAYOUTS["tp1"], identity)
    whole = model.whole("layers.1.up.weight").numpy().tobytes()
    hits = []
    for file in sorted(folder.rglob("*")):
        if file.is_file() and (at := file.read_bytes().find(whole)) >= 0:
            hits.append((file, at))
    assert len(hits) == 1, "the payload lies in exactly one file"
    file, at = hits[0]
    file.chmod(0o600)
    with open(file, "r+b") as stream:
        stream.seek(at + 700_001)
        byte = stream.read(1)
        stream.seek(at + 700_001)
        stream.write(bytes([byte[0] ^ 0x10]))
    with WeightStore(f"file://{folder}") as store:
        with pytest.raises(WeightCorruptError, match=r"block 10\b") as raised:
            load_and_check(store, model, LAYOUTS["tp1"], identity)
        assert "invalid" in str(raised.value)
        # A rank that needs none of the damaged block's bytes loads.
        placement = layout_placement(model.tensors, LAYOUTS["tp3-unequal"], identity)
        part = placement.parts[2]
        buffers = {
            f.tensor_id: torch.zeros(f.local_shape, dtype=torch.int32) for f in part.fragments
        }
        store.weight_get(identity, placement, bind_tensors(placement, part.participant_id, buffers))
