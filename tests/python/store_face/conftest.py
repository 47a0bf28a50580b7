"""A running cluster for the ordinary Store's face, and clients of it."""

from __future__ import annotations

import itertools

import pytest
from mooncake.local_cluster import LocalCluster
from mooncake.store import MooncakeDistributedStore

MIB = 1 << 20
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def cluster():
    with LocalCluster(nodes=1, capacity="256MiB", prepare="0", log_level="warning") as running:
        yield running


@pytest.fixture
def client(cluster):
    """Makes clients that are closed with the test: client(local_buffer=, segment=, ...)."""
    made = []

    def make(local_buffer=16 * MIB, segment=0, host="localhost", protocol="tcp", **more):
        store = MooncakeDistributedStore()
        made.append(store)
        arguments = (host, "P2PHANDSHAKE", segment, local_buffer, protocol, "", cluster.address)
        assert store.setup(*arguments, **more) == 0
        return store

    yield make
    for store in made:
        store.close()


@pytest.fixture
def store(client):
    """A client of an empty store."""
    made = client()
    made.remove_all(True)
    return made


@pytest.fixture
def key():
    """A key that no other test uses."""
    return f"test/{next(_NUMBERS)}"
