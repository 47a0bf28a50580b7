"""What the conformance tests share."""

from __future__ import annotations

import os

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "soak: takes minutes; runs where MOONCAKE_SOAK is set")


def pytest_collection_modifyitems(items):
    if os.environ.get("MOONCAKE_SOAK"):
        return
    skip = pytest.mark.skip(reason="takes minutes: set MOONCAKE_SOAK=1")
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(skip)
