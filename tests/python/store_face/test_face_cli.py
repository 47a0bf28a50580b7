"""`mooncake store`, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from mooncake.store import MooncakeDistributedStore
from payloads import payload


@pytest.fixture(params=["cluster", "embedded"])
def target(request, tmp_path):
    if request.param == "embedded":
        return f"file://{tmp_path / 'store'}"
    running = request.getfixturevalue("cluster")
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", running.address) == 0
    store.remove_all(True)
    store.close()
    return running.target


@pytest.fixture
def mooncake(target):
    def run(*arguments, status=0, stdin=b"", text=True):
        done = subprocess.run(
            [sys.executable, "-m", "mooncake.cli", "--store", target, "store", *arguments],
            input=stdin,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == status, done.stdout + done.stderr
        out = done.stdout if status == 0 else done.stderr
        return out.decode() if text else out

    return run


def test_put_ls_stat_get_rm(mooncake, tmp_path):
    content = payload(1, 1_000_003)
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(content)
    assert "976.6 KiB" in mooncake("put", "dir/key", str(source))
    assert "--replace" in mooncake("put", "dir/key", str(source), status=1)
    mooncake("put", "dir/key", str(source), "--replace", "--pin")
    mooncake("put", "other", "-", stdin=b"from a pipe")
    listed = mooncake("ls")
    assert listed.index("dir/key") < listed.index("other") and "hard" in listed
    [only] = json.loads(mooncake("ls", "dir/", "--json"))
    assert (only["key"], only["bytes"]) == ("dir/key", len(content))
    assert "1000003 bytes" in mooncake("stat", "dir/key")
    assert json.loads(mooncake("stat", "dir/key", "--json"))["hard_pin"] is True
    mooncake("get", "dir/key", str(copy))
    assert copy.read_bytes() == content
    assert "exists" in mooncake("get", "dir/key", str(copy), status=1)
    mooncake("get", "other", str(copy), "--force")
    assert copy.read_bytes() == b"from a pipe"
    assert mooncake("get", "dir/key", "-", text=False) == content
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    assert "OBJECT_HAS_LEASE" in mooncake("rm", "dir/key", "other", status=1)
    assert "2 removed" in mooncake("rm", "dir/key", "other", "--force")
    assert "OBJECT_NOT_FOUND (-704)" in mooncake("rm", "dir/key", status=1)


def test_removing_many(mooncake):
    for key in ("a1", "a2", "b1"):
        mooncake("put", key, "-", stdin=b"v")
    assert "INVALID_PARAMS" in mooncake("rm", "--regex", "(", status=1)
    # Whoever read before a Master began anew is protected still, so all are.
    assert "2 removed" in mooncake("rm", "--regex", "^a", "--force")
    assert json.loads(mooncake("rm", "--all", "--force", "--json")) == {"removed": 1, "failed": {}}
    assert "what to remove" in mooncake("rm", status=1)
    assert "what to remove" in mooncake("rm", "k", "--all", status=1)


def test_clear_errors(mooncake, tmp_path):
    assert "OBJECT_NOT_FOUND" in mooncake("get", "none", str(tmp_path / "x"), status=1)
    assert "OBJECT_NOT_FOUND" in mooncake("stat", "none", status=1)
    assert "No such file" in mooncake("put", "k", str(tmp_path / "none"), status=1)
    assert "at least one byte" in mooncake("put", "k", "-", status=1)
    assert "--replicas" in mooncake("put", "k", "-", "--replicas", "0", status=1)
    assert "usage" in mooncake("--help") and "standard input" in mooncake("put", "--help")
    mooncake("put", "k", "-", "--tenant", "other", stdin=b"v")
    assert "OBJECT_NOT_FOUND" in mooncake("stat", "k", status=1)
    assert "1 bytes" in mooncake("stat", "k", "--tenant", "other")
    mooncake("rm", "k", "--tenant", "other", "--force")
