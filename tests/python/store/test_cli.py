"""The `mooncake` command, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from models import LAYOUTS, publish, transformer
from mooncake.reshard.adapters import layout_placement
from mooncake.reshard.weight import WeightIdentity, WeightStore, weight_placement_to_json
from safetensors.torch import load_file, save_file


def mooncake(*arguments, status=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "mooncake.cli", *map(str, arguments)],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture
def model_file(tmp_path):
    model = transformer()
    path = tmp_path / "model.safetensors"
    save_file({name: model.whole(name) for name in model.tensors}, str(path))
    return path


def test_put_list_show_get_rm(target, identity, model_file, tmp_path):
    out = mooncake("--store", target, "weights", "put", model_file, identity)
    assert "READY" in out
    assert "equal" in mooncake("--store", target, "weights", "put", model_file, identity)
    assert str(identity) in mooncake("--store", target, "weights", "list")
    listed = json.loads(mooncake("--store", target, "--json", "weights", "list"))
    assert listed == json.loads(mooncake("weights", "list", "--json", "--store", target))
    mine = [m for m in listed if m["identity"]["revision"] == identity.revision]
    assert mine[0]["availability"] == "ready" and mine[0]["payload_count"] == 3
    shown = mooncake("--store", target, "weights", "show", identity)
    assert "READY, HOT" in shown and mine[0]["manifest_sha256"] in shown
    copy = tmp_path / "copy.safetensors"
    mooncake("--store", target, "weights", "get", identity, copy)
    original, loaded = load_file(str(model_file)), load_file(str(copy))
    assert original.keys() == loaded.keys()
    assert all(torch.equal(original[name], loaded[name]) for name in original)
    assert "exists" in mooncake("--store", target, "weights", "get", identity, copy, status=1)
    assert "DELETED" in mooncake("--store", target, "weights", "rm", identity)
    assert "STALE_GENERATION" in mooncake(
        "--store", target, "weights", "put", model_file, identity, status=1
    )
    assert "NOT_FOUND" in mooncake("--store", target, "weights", "show", "tests/none/r/1", status=1)


def test_inspect_log_and_manifest(tmp_path, model_file):
    target = f"file://{tmp_path / 'store'}"
    identity = WeightIdentity("tests", "model", "r", 1)
    mooncake("--store", target, "weights", "put", model_file, identity)
    text = mooncake("inspect", "log", tmp_path / "store" / "master")
    assert "committed" in text and "import_begun" in text
    batches = json.loads(mooncake("--json", "inspect", "log", tmp_path / "store" / "master"))
    assert [b["sequence"] for b in batches] == list(range(1, len(batches) + 1))
    listing = mooncake("--store", target, "inspect", "manifest", identity)
    assert "layers.1.up.weight" in listing and "(1300, 256)" in listing
    raw = mooncake("--store", target, "inspect", "manifest", identity, "--raw")
    (tmp_path / "manifest.json").write_text(raw.rstrip("\n"))
    assert mooncake("inspect", "manifest", tmp_path / "manifest.json") == listing
    assert "no such" in mooncake("inspect", "log", tmp_path / "nowhere", status=1).lower()


def test_inspect_digests(tmp_path):
    target = f"file://{tmp_path / 'store'}"
    identity = WeightIdentity("tests", "model", "r", 1)
    with WeightStore(target, capacity_bytes=64 << 20) as store:
        publish(store, transformer(), LAYOUTS["tp2-pp2"], identity)
    files = sorted((tmp_path / "store").rglob("digests*"))
    assert len(files) == 4
    decoded = [json.loads(mooncake("--json", "inspect", "digests", path)) for path in files]
    assert all(payload["blocks"] for one in decoded for payload in one["payloads"])
    # The norms are on both tp ranks of their stage: one brings them, both fingerprint them.
    fingerprints = [f["fingerprint"] for one in decoded for f in one["fragments"]]
    assert len(fingerprints) == 6 and len(set(fingerprints)) == 3
    text = mooncake("inspect", "digests", files[0], "--blocks")
    assert "compared fragment" in text and "XXH3-128" in text
    damaged = tmp_path / "damaged"
    damaged.write_bytes(files[0].read_bytes()[:-1])
    assert "digests object" in mooncake("inspect", "digests", damaged, status=1)


def test_plan_explain(tmp_path, identity):
    model = transformer()
    files = {}
    for name in ("tp4-dp2", "tp2-pp2"):
        files[name] = tmp_path / f"{name}.json"
        placement = layout_placement(model.tensors, LAYOUTS[name], identity)
        files[name].write_text(weight_placement_to_json(placement))
    explain = ("plan", "explain", files["tp4-dp2"], files["tp2-pp2"])
    text = mooncake(*explain, "--tensors", "3")
    assert "dp0-pp0-tp0" in text and "most runs in one region" in text
    assert "bytes from (rows) to (columns)" in text and "copies [" in text
    assert "receives" in text and "... and 7 smaller tensors" in text
    plan = json.loads(mooncake("--json", "plan", "explain", files["tp4-dp2"], files["tp2-pp2"]))
    assert plan["bytes"] == sum(pair["bytes"] for pair in plan["pairs"])
    png = tmp_path / "matrix.png"
    balanced = json.loads(mooncake("--json", *explain, "--balance", "--png", png))
    assert balanced["bytes"] == plan["bytes"]
    assert len({p["source"] for p in balanced["pairs"]}) > len({p["source"] for p in plan["pairs"]})
    assert png.read_bytes().startswith(b"\x89PNG")
    with WeightStore(f"file://{tmp_path / 'store'}") as store:
        publish(store, model, LAYOUTS["tp4-dp2"], identity)
    stored = json.loads(
        mooncake(
            "--json",
            "--store",
            f"file://{tmp_path / 'store'}",
            "plan",
            "explain",
            identity,
            files["tp2-pp2"],
        )
    )
    assert stored["bytes"] == plan["bytes"]


def test_misuse(tmp_path):
    assert "which store" in mooncake("weights", "list", status=2)
    assert "namespace/resource" in mooncake("--store", "x", "weights", "show", "abc", status=2)
    assert "INVALID_ARGUMENT" in mooncake("--store", "ftp://x", "weights", "list", status=1)


def test_status(target, identity):
    assert "alive" in mooncake("--store", target, "status")
    status = json.loads(mooncake("--store", target, "--json", "status"))
    assert all(node["capacity_bytes"] > 0 and node["alive"] for node in status["nodes"])


def test_a_file_of_something_else_is_named(tmp_path, identity):
    good = tmp_path / "good.json"
    placement = layout_placement(transformer().tensors, LAYOUTS["tp2-pp2"], identity)
    good.write_text(weight_placement_to_json(placement))
    contents = (b"not json", b"\xff\xfe\x00", b"", b"[1, 2]", b"5", b'{"manifest_key": 1}', b"{}")
    for number, content in enumerate(contents):
        bad = tmp_path / f"bad{number}.json"
        bad.write_bytes(content)
        for arguments in (
            ("plan", "explain", bad, good),
            ("plan", "explain", good, bad),
            ("inspect", "manifest", bad),
        ):
            said = mooncake(*arguments, status=1)
            assert said.startswith(f"mooncake: {bad}: "), said
            assert "Traceback" not in said


def test_a_locale_without_the_names_letters_shows_them_escaped(tmp_path, model_file):
    target = f"file://{tmp_path / 'store'}"
    identity = WeightIdentity("tests", "mod\u00e8le", "r", 1)
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    assert "mod\\xe8le/r/1 READY" in mooncake(
        "--store", target, "weights", "put", model_file, identity, **ascii_only
    )
    assert "mod\\xe8le" in mooncake("--store", target, "weights", "list", **ascii_only)
    listed = json.loads(mooncake("--store", target, "--json", "weights", "list", **ascii_only))
    assert listed[0]["identity"]["resource_id"] == "mod\u00e8le"
    absent = tmp_path / "\u6a21\u578b"
    assert "\\u6a21" in mooncake(
        "--store", target, "weights", "put", absent, identity, status=1, **ascii_only
    )
    # What other programs read is the same bytes everywhere.
    raw = ("--store", target, "inspect", "manifest", identity, "--raw")
    assert mooncake(*raw, **ascii_only) == mooncake(*raw)
