"""The connectors' call sequences (section 12), each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALLS = Path(__file__).with_name("connector_calls.py")
CONNECTORS = (
    "sglang_hicache",
    "sglang_direct_linker",
    "sglang_embedding_cache",
    "vllm",
    "lmcache",
    "vllm_ascend",
)


def _start(name, address):
    return subprocess.Popen(
        [sys.executable, str(CALLS), name, address],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("name", CONNECTORS)
def test_connector(cluster, name):
    process = _start(name, cluster.address)
    output, _ = process.communicate(timeout=120)
    # Also that the process ends well, its store closed or not.
    assert process.returncode == 0, output


def test_several_at_once(cluster):
    names = ["sglang_direct_linker", "lmcache", "sglang_embedding_cache", "vllm_ascend"]
    processes = [_start(name, cluster.address) for name in names]
    for name, process in zip(names, processes, strict=True):
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, f"{name}: {output}"
