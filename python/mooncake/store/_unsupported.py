"""Names of the ordinary Store's module that this store does not have: using one says so."""

from __future__ import annotations

from typing import Any

__all__ = ["EngramStore", "EngramStoreConfig", "MooncakeDistributedNoFRegister", "not_supported"]


def not_supported(name: str, why: str) -> NotImplementedError:
    return NotImplementedError(f"mooncake.store.{name} is not supported: {why}")


class MooncakeDistributedNoFRegister:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise not_supported("MooncakeDistributedNoFRegister", "there are no NVMe-oF segments")


class EngramStoreConfig:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise not_supported("EngramStoreConfig", "EngramStore is not built")


class EngramStore:
    def __init__(self, *_: Any, **__: Any) -> None:
        raise not_supported("EngramStore", "it is not built")


def bind_to_numa_node(node: int) -> None:
    """Runs the calling thread on the CPUs of a NUMA node. ValueError: there is no such node."""
    import os

    try:
        with open(f"/sys/devices/system/node/node{int(node)}/cpulist") as listed:
            text = listed.read().strip()
    except OSError:
        raise ValueError(f"this host has no NUMA node {node}") from None
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    os.sched_setaffinity(0, cpus)


def get_alloc_func_addr() -> int:
    raise not_supported("get_alloc_func_addr", "there is no allocator for torch's memory pools")


def get_free_func_addr() -> int:
    raise not_supported("get_free_func_addr", "there is no allocator for torch's memory pools")
