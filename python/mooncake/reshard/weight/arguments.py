"""Arguments that cannot mean anything: INVALID_ARGUMENT with the argument's name and its value."""

from __future__ import annotations

import math
from typing import Any

from .errors import WeightInvalidArgumentError

__all__ = [
    "MS_MAX",
    "UINT64_MAX",
    "check_callback",
    "check_kind",
    "check_secret",
    "check_threads",
    "check_whole",
    "replica_scope",
    "timeout_seconds",
]

MS_MAX = 10**15
UINT64_MAX = 2**64 - 1
_THREADS_MAX = 1024


def check_whole(field: str, value: Any, least: int, most: int) -> None:
    """An int (no bool) in [least, most]."""
    if type(value) is not int or not least <= value <= most:
        raise WeightInvalidArgumentError(f"{field} must be {least} .. {most}, got {value!r}")


def check_threads(threads: Any) -> None:
    check_whole("threads", threads, 0, _THREADS_MAX)


def check_kind(field: str, value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise WeightInvalidArgumentError(
            f"{field} must be a {kind.__name__}, got {type(value).__name__} {value!r}"
        )


def check_secret(field: str, value: Any) -> None:
    """None, or a str that is not empty; never shown."""
    if value is not None and (not isinstance(value, str) or not value):
        raise WeightInvalidArgumentError(
            f"{field} must be a str that is not empty, got {type(value).__name__}"
        )


def check_callback(field: str, value: Any) -> None:
    """None, or something to call."""
    if value is not None and not callable(value):
        raise WeightInvalidArgumentError(f"{field} must be callable, got {value!r}")


def replica_scope(verify_replicas: Any) -> str:
    """`verify_replicas` as the core names it."""
    if verify_replicas is True:
        return "selected"
    if verify_replicas is False:
        return "none"
    if isinstance(verify_replicas, str) and verify_replicas == "all":
        return "all"
    raise WeightInvalidArgumentError(
        f'verify_replicas must be True, False or "all", got {verify_replicas!r}'
    )


def timeout_seconds(timeout: Any) -> float:
    """As the core takes it: negative for ever."""
    try:
        seconds = float(timeout)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if isinstance(timeout, (bool, str, bytes)) or math.isnan(seconds):
        raise WeightInvalidArgumentError(
            f"timeout must be a number of seconds (negative: for ever), got {timeout!r}"
        )
    return seconds if seconds < MS_MAX / 1000 else -1.0
