"""Snapshots of a running Master: taken, used by a restart, looked at, damaged."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys

import pytest
from models import LAYOUTS, load_and_check, publish, transformer
from mooncake import _core
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.weight import WeightAvailability, WeightIdentity, WeightStore
from polling import wait_until

EVERY = 8  # records


def snapshots_of(cluster):
    return sorted((cluster.folder / "master" / "snapshots").glob("*.snapshot"))


def first_sequence(cluster):
    with sqlite3.connect(f"file:{cluster.folder}/master/log.db?mode=ro", uri=True) as log:
        return log.execute("SELECT min(sequence) FROM log").fetchone()[0]


def inspect(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mooncake.cli", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def cluster(tmp_path):
    with LocalCluster(
        nodes=1,
        capacity="256MiB",
        folder=tmp_path,
        log_level="warning",
        master_arguments=("--snapshot-every-records", str(EVERY)),
    ) as cluster:
        yield cluster


def identity_of(generation):
    return WeightIdentity("tests", "model", "snapshots", generation)


def test_a_master_killed_at_any_moment_starts_from_its_snapshots(cluster):
    model = transformer()
    seed = random.SystemRandom().randrange(1 << 30)
    print("seed", seed)
    moments = random.Random(seed)
    with WeightStore(cluster.target) as store:
        for generation in range(1, 9):
            publish(store, model, LAYOUTS["tp1"], identity_of(generation))
            if generation > 2:
                store.weight_remove(identity_of(generation - 2))
            if moments.random() < 0.7:
                cluster.master.kill()
                cluster.master.start()
        wait_until(lambda: len(snapshots_of(cluster)) == 2)
        assert wait_until(lambda: first_sequence(cluster) > 1)
        cluster.master.kill()
        cluster.master.start()
        for generation in (7, 8):
            load_and_check(store, model, LAYOUTS["tp3-unequal"], identity_of(generation))
        listed = store.weight_list("tests")
        states = {v.identity.weight_generation: v.metadata.availability.value for v in listed}
        assert sorted(states) == [7, 8]
        gone = store.weight_get_metadata(identity_of(1)).metadata
        # Its tombstone is older than the log.
        assert gone.availability is WeightAvailability.DELETED


def test_snapshots_can_be_looked_at(cluster):
    model = transformer()
    with WeightStore(cluster.target) as store:
        for generation in (1, 2):
            publish(store, model, LAYOUTS["tp1"], identity_of(generation))
    newest = wait_until(lambda: snapshots_of(cluster))[-1]
    shown = inspect("inspect", "snapshot", str(newest), "--records", "--json")
    assert shown.returncode == 0, shown.stderr
    shown = json.loads(shown.stdout)
    assert shown["path"] == str(newest)
    assert int(shown["header"]["sequence"]) == int(newest.name.split(".")[0])
    assert set(shown["sections"]) == {"objects", "weight_metadata", "commands"}
    nodes = [r["record"]["node"] for r in shown["records"] if "node" in r["record"]]
    assert [node["capacity_bytes"] for node in nodes] == [str(256 << 20)]
    text = inspect("inspect", "snapshot", str(cluster.folder / "master"))
    assert text.returncode == 0, text.stderr
    assert "restored" in text.stdout and "weight_metadata" in text.stdout


def test_damage_is_named_and_an_older_snapshot_serves(cluster):
    model = transformer()
    with WeightStore(cluster.target) as store:
        for generation in range(1, 5):
            publish(store, model, LAYOUTS["tp1"], identity_of(generation))
        wait_until(lambda: len(snapshots_of(cluster)) == 2)
        wait_until(lambda: first_sequence(cluster) > 1)
        cluster.master.kill()
        older, newest = snapshots_of(cluster)
        content = bytearray(newest.read_bytes())
        content[len(content) // 2] ^= 4
        newest.write_bytes(content)
        shown = inspect("inspect", "snapshot", str(newest))
        assert shown.returncode != 0
        assert "damaged" in shown.stderr and str(newest) in shown.stderr
        with pytest.raises(_core.StoreError, match="damaged"):
            _core.read_snapshot(str(newest))
        cluster.master.start()
        load_and_check(store, model, LAYOUTS["tp1"], identity_of(4))
        # Without either, what came before is nowhere, and the Master says so.
        cluster.master.kill()
        for file in snapshots_of(cluster):
            file.unlink()
        with pytest.raises(RuntimeError, match="the log begins at sequence"):
            cluster.master.start()
