"""End-to-end publish of a whole model to a running cluster, against plain copies of its bytes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from functools import partial

import torch
from end_to_end import arguments, interleave, model_tensors, plain_copies, report, write_json
from mooncake.cli.status import cluster_status
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.adapters import (
    ParallelLayout,
    StateDictAdapter,
    TensorInfo,
    layout_placement,
)
from mooncake.reshard.weight import WeightIdentity, WeightPlacementManifest, WeightStore
from mooncake.reshard.weight.memory import dtype_name

_NOTE = """
Digests are always made on publish. "prepared": the node had made the memory ready since the
publish before, as it does in the half second after one; "not prepared": it makes each page while
the bytes arrive. "replicas": two ranks hold every tensor, so that one uploads it and the bytes of
the other one are digested too, or not. The plain copies write to memory that is there already."""


class TwoRanks:
    """An adapter of one process that acts for two ranks, which both hold every tensor."""

    def __init__(self, identity: WeightIdentity) -> None:
        self._identity = identity

    def identity(self, snapshot: dict[str, torch.Tensor]) -> WeightIdentity:
        return self._identity

    def placement(self, snapshot: dict[str, torch.Tensor]) -> WeightPlacementManifest:
        infos = {
            name: TensorInfo(tuple(tensor.shape), dtype_name(tensor.dtype), tensor.element_size())
            for name, tensor in snapshot.items()
        }
        return layout_placement(infos, ParallelLayout(tp=2), self._identity)

    def participants(self, snapshot: dict[str, torch.Tensor]) -> list[str]:
        return [part.participant_id for part in self.placement(snapshot).parts]

    def tensors(self, snapshot: dict[str, torch.Tensor]) -> Iterable[tuple[str, torch.Tensor]]:
        return snapshot.items()


def main() -> None:
    options = arguments(__doc__)
    source = model_tensors(options.gib)
    copies = {name: torch.zeros_like(tensor) for name, tensor in source.items()}
    generations = itertools.count(1)
    rows = []
    capacity = f"{2 * int(options.gib) + 2}GiB"
    with (
        LocalCluster(nodes=1, capacity=capacity, prepare=f"{int(options.gib) + 1}GiB") as prepared,
        LocalCluster(nodes=1, capacity=capacity, prepare="0B") as fresh,
    ):
        for threads in options.threads:
            with (
                WeightStore(prepared.target, threads=threads) as ready,
                WeightStore(fresh.target, threads=threads) as slow,
            ):
                kinds = {
                    "publish, prepared": (ready, StateDictAdapter, True),
                    "publish, not prepared": (slow, StateDictAdapter, True),
                    "replicas, prepared": (ready, TwoRanks, True),
                    "replicas, prepared, not compared": (ready, TwoRanks, False),
                }
                rows += measure(
                    prepared.target, kinds, threads, source, copies, generations, options.rounds
                )
    print(_NOTE)
    write_json(options.json, rows)


def measure(prepared, kinds, threads, source, copies, generations, rounds) -> list[dict]:
    published: list[tuple[WeightStore, WeightIdentity]] = []
    nbytes = sum(t.nbytes for t in source.values())

    def publish(store: WeightStore, kind: type, verify_replicas: bool) -> None:
        identity = WeightIdentity("bench", "publish", "r", next(generations))
        adapter = kind(identity)
        with store.weight_put(source, adapter, verify_replicas=verify_replicas) as writer:
            for name, tensor in adapter.tensors(source):
                writer.weight_put_tensor(name, tensor)
        published.append((store, identity))

    def drop() -> None:
        while published:
            store, identity = published.pop()
            store.weight_remove(identity)
        wait_until_prepared(prepared, nbytes)

    plain = plain_copies(copies, source, threads)
    publishes = {name: partial(publish, *how) for name, how in kinds.items()}
    seconds = interleave({**publishes, **plain}, rounds, before=drop)
    drop()
    return report("publish", nbytes, threads, seconds, list(plain))


def wait_until_prepared(target: str, nbytes: int) -> None:
    while cluster_status(target)["nodes"][0]["prepared_bytes"] < nbytes:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
