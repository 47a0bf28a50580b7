"""Stores to test against: a running cluster of real processes, and an embedded folder."""

from __future__ import annotations

import itertools

import pytest
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.weight import WeightIdentity, WeightStore

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster():
    with LocalCluster(nodes=2, capacity="512MiB", log_level="warning") as running:
        yield running


@pytest.fixture(params=["cluster", "embedded"])
def target(request, tmp_path):
    """The URI of a store, of either kind."""
    if request.param == "cluster":
        return request.getfixturevalue("cluster").target
    return f"file://{tmp_path / 'store'}"


@pytest.fixture
def store(target):
    with WeightStore(target, capacity_bytes=512 << 20) as opened:
        yield opened


@pytest.fixture
def identity():
    """An identity that no other test uses."""
    return WeightIdentity("tests", "model", f"r{next(_NUMBERS)}", 1)
