"""End-to-end publish of a whole model to a running cluster, against plain copies of its bytes."""

from __future__ import annotations

import itertools

import torch
from end_to_end import arguments, interleave, model_tensors, plain_copies, report, write_json
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.adapters import StateDictAdapter
from mooncake.reshard.weight import WeightIdentity, WeightStore

_NOTE = """
Digests are always made on publish. The store's memory is new each time: its pages are touched for
the first time while the bytes arrive; the plain copies write to memory that is there already."""


def main() -> None:
    options = arguments(__doc__)
    source = model_tensors(options.gib)
    copies = {name: torch.zeros_like(tensor) for name, tensor in source.items()}
    generations = itertools.count(1)
    rows = []
    with LocalCluster(nodes=1, capacity=f"{2 * int(options.gib) + 2}GiB") as cluster:
        for threads in options.threads:
            with WeightStore(cluster.target, threads=threads) as store:
                rows += measure(store, threads, source, copies, generations, options.rounds)
    print(_NOTE)
    write_json(options.json, rows)


def measure(store, threads, source, copies, generations, rounds) -> list[dict]:
    published: list[WeightIdentity] = []

    def publish() -> None:
        identity = WeightIdentity("bench", "publish", "r", next(generations))
        adapter = StateDictAdapter(identity)
        with store.weight_put(source, adapter) as writer:
            for name, tensor in adapter.tensors(source):
                writer.weight_put_tensor(name, tensor)
        published.append(identity)

    def drop() -> None:
        while published:
            store.weight_remove(published.pop())

    plain = plain_copies(copies, source, threads)
    seconds = interleave({"publish": publish, **plain}, rounds, before=drop)
    drop()
    nbytes = sum(t.nbytes for t in source.values())
    return report("publish", nbytes, threads, seconds, list(plain))


if __name__ == "__main__":
    main()
