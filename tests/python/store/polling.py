"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 30.0) -> T:
    """Polls until `condition()` is true and returns it; its last value fails the test in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {seconds} s"
        time.sleep(0.02)  # a poll with a deadline
