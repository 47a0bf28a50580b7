"""`mooncake doctor`: a healthy folder is left as it is, and every kind of damage is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from models import LAYOUTS, publish, transformer
from mooncake.reshard.weight import WeightIdentity, WeightStore

GOLDEN = Path(__file__).parents[2] / "golden" / "formats" / "v1"
GOLDEN_SEQUENCE = int((GOLDEN / "master" / "state.txt").read_text().split()[1])


def doctor(folder, *options, status):
    done = subprocess.run(
        [sys.executable, "-m", "mooncake.cli", "doctor", str(folder), *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def problems(folder):
    """(severity, what, where below `folder`) of everything that is wrong with it."""
    report = json.loads(doctor(folder, "--json", status=1))
    assert not report["healthy"]
    found = [f for f in report["findings"] if f["severity"] in ("warning", "error")]
    assert all(f["advice"] for f in found)
    return [(f["severity"], f["what"], os.path.relpath(f["where"], folder)) for f in found]


def only_problem(folder):
    found = problems(folder)
    assert len(found) == 1, found
    return found[0]


def content_of(folder):
    return {str(p): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def flip(path, near=None):
    content = bytearray(path.read_bytes())
    at = len(content) // 2 if near is None else content.index(near)
    content[at] ^= 4
    path.write_bytes(content)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor") / "store"
    with WeightStore(f"file://{folder}", capacity_bytes=512 << 20) as store:
        publish(store, transformer(), LAYOUTS["tp1"], WeightIdentity("tests", "model", "doctor", 1))
    return folder


@pytest.fixture
def store(published, tmp_path):
    """An embedded store's folder with one revision, to be damaged."""
    return Path(shutil.copytree(published, tmp_path / "store"))


@pytest.fixture
def master(tmp_path):
    """A Master's folder with a log and a snapshot."""
    folder = tmp_path / "master"
    (folder / "snapshots").mkdir(parents=True)
    shutil.copy(GOLDEN / "master" / "log.db", folder)
    shutil.copy(GOLDEN / "master" / "state.snapshot", snapshot_of(folder))
    return folder


def snapshot_of(folder):
    return folder / "snapshots" / f"{GOLDEN_SEQUENCE:020}.snapshot"


def metadata_of(store):
    return next((store / "node" / "metadata").glob("*/manifest"))


def test_healthy_folders_are_left_as_they_are(store, master):
    for folder, kind in (
        (store, "embedded store"),
        (master, "Master folder"),
        (store / "node", "node folder"),
        (GOLDEN / "node", "node folder"),
    ):
        before = content_of(folder)
        report = json.loads(doctor(folder, "--json", status=0))
        assert report["kind"] == kind and report["healthy"]
        assert {f["severity"] for f in report["findings"]} <= {"ok", "note"}
        assert content_of(folder) == before
    text = doctor(store, status=0)
    assert text.endswith("healthy\n")
    for part in ("sequences 1 to", "agrees with itself: 1 nodes, 1 revisions", "METADATA files"):
        assert part in text
    assert f"the state after sequence {GOLDEN_SEQUENCE}" in doctor(master, status=0)


def test_a_folder_in_use_is_checked_as_far_as_that_goes(store):
    with WeightStore(f"file://{store}", capacity_bytes=512 << 20):
        text = doctor(store, status=0)
    assert f"in use by process {os.getpid()}" in text
    assert "sequences 1 to" in text and "arenas have the sizes" not in text


def test_the_folder_of_a_killed_process_is_healthy(published, tmp_path):
    code = """
import os, sys
from mooncake.reshard.weight import WeightIdentity, WeightStore
store = WeightStore(sys.argv[1], capacity_bytes=512 << 20)
store.weight_remove(WeightIdentity("tests", "model", "doctor", 1))
os._exit(0)  # closes nothing
"""
    folder = shutil.copytree(published, tmp_path / "store")
    subprocess.run([sys.executable, "-c", code, f"file://{folder}"], check=True, timeout=120)
    text = doctor(folder, status=0)
    assert "are in its write-ahead file" in text and "no process has it open" in text


def test_what_is_no_store_is_misuse(tmp_path):
    assert "is no folder of a Master" in doctor(tmp_path, status=2)
    assert "is no folder of a Master" in doctor(tmp_path / "nowhere", status=2)


def test_a_damaged_log(master):
    flip(master / "log.db", near=b"rank0")
    severity, what, where = only_problem(master)
    assert (severity, where) == ("error", "log.db")
    assert "is damaged: expected checksum" in what


def test_a_removed_log(store, master):
    (store / "master" / "log.db").unlink()
    severity, what, where = only_problem(store)
    assert (severity, where) == ("error", "master/log.db")
    assert "there is no log" in what
    (master / "log.db").unlink()
    assert "there is no log" in only_problem(master)[1]
    assert not (master / "log.db").exists()


def test_a_damaged_snapshot(master):
    flip(snapshot_of(master))
    severity, what, where = only_problem(master)
    assert (severity, where) == ("warning", f"snapshots/{GOLDEN_SEQUENCE:020}.snapshot")
    assert "the snapshot is damaged" in what


def test_a_snapshot_of_another_time(master):
    snapshot_of(master).rename(master / "snapshots" / f"{GOLDEN_SEQUENCE + 1:020}.snapshot")
    found = problems(master)
    assert any("the log does not continue the snapshot" in what for _, what, _ in found)
    assert any("a Master would not start" in what for _, what, _ in found)


def test_a_damaged_metadata_file(store):
    flip(metadata_of(store))
    severity, what, where = only_problem(store)
    assert severity == "error" and where.endswith("/manifest")
    assert "expected content with SHA-256" in what


def test_a_missing_metadata_file(store):
    metadata_of(store).unlink()
    severity, what, where = only_problem(store)
    assert severity == "error" and where.endswith("/manifest")
    assert "the METADATA object manifest is missing" in what


def test_a_quarantined_metadata_file(store):
    flip(metadata_of(store))
    with WeightStore(f"file://{store}", capacity_bytes=512 << 20):
        pass
    found = problems(store)
    assert any(s == "warning" and w.startswith("node/quarantine/") for s, _, w in found), found


@pytest.mark.parametrize("file", ["node_id", "instance_id"])
def test_a_missing_id(store, file):
    (store / "node" / file).unlink()
    assert only_problem(store) == ("error", f"{file} is missing beside data", f"node/{file}")


def test_a_damaged_id(store):
    (store / "node" / "node_id").write_bytes(b"\x00")
    severity, what, where = only_problem(store)
    assert (severity, where) == ("error", "node/node_id")
    assert "without control characters" in what


def test_a_foreign_cluster(store):
    (store / "node" / "cluster_id").write_text("f" * 32 + "\n")
    severity, what, where = only_problem(store)
    assert (severity, where) == ("error", "node/cluster_id")
    assert f"of cluster {'f' * 32}, the log of cluster" in what


def test_an_import_that_the_log_has_yet_to_give(store):
    (store / "node" / "metadata" / "999").mkdir()
    severity, what, where = only_problem(store)
    assert (severity, where) == ("error", "node/metadata/999")
    assert "import 999 is of the future" in what


def test_an_arena_that_was_cut_or_lost(store):
    arena = next(p for p in (store / "node" / "arenas").rglob("*") if p.is_file())
    size = arena.stat().st_size
    os.truncate(arena, size - 1)
    severity, what, where = only_problem(store)
    assert (severity, where) == ("error", os.path.relpath(arena, store))
    assert what == f"an arena of {size} bytes is expected, it has {size - 1}"
    arena.unlink()
    assert only_problem(store)[1] == f"an arena of {size} bytes is missing"
