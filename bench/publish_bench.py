"""End-to-end publish of a whole model to a running cluster, against plain copies of its bytes."""

from __future__ import annotations

import itertools
import time
from functools import partial

import torch
from end_to_end import arguments, interleave, model_tensors, plain_copies, report, write_json
from mooncake.cli.status import cluster_status
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.adapters import StateDictAdapter
from mooncake.reshard.weight import WeightIdentity, WeightStore

_NOTE = """
Digests are always made on publish. "prepared": the node had made the memory ready since the publish
before, as it does in the half second after one; "not prepared": it makes each page while the bytes
arrive. The plain copies write to memory that is there already."""


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
                stores = {"publish, prepared": ready, "publish, not prepared": slow}
                rows += measure(
                    prepared.target, stores, threads, source, copies, generations, options.rounds
                )
    print(_NOTE)
    write_json(options.json, rows)


def measure(prepared, stores, threads, source, copies, generations, rounds) -> list[dict]:
    published: list[tuple[WeightStore, WeightIdentity]] = []
    nbytes = sum(t.nbytes for t in source.values())

    def publish(store: WeightStore) -> None:
        identity = WeightIdentity("bench", "publish", "r", next(generations))
        adapter = StateDictAdapter(identity)
        with store.weight_put(source, adapter) as writer:
            for name, tensor in adapter.tensors(source):
                writer.weight_put_tensor(name, tensor)
        published.append((store, identity))

    def drop() -> None:
        while published:
            store, identity = published.pop()
            store.weight_remove(identity)
        wait_until_prepared(prepared, nbytes)

    plain = plain_copies(copies, source, threads)
    publishes = {name: partial(publish, store) for name, store in stores.items()}
    seconds = interleave({**publishes, **plain}, rounds, before=drop)
    drop()
    return report("publish", nbytes, threads, seconds, list(plain))


def wait_until_prepared(target: str, nbytes: int) -> None:
    while cluster_status(target)["nodes"][0]["prepared_bytes"] < nbytes:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
