"""End-to-end load of a whole model from a running cluster, against plain copies of its bytes."""

from __future__ import annotations

import torch
from end_to_end import (
    AnonymousPeak,
    arguments,
    interleave,
    model_tensors,
    plain_copies,
    report,
    write_json,
)
from mooncake.local_cluster import LocalCluster
from mooncake.reshard.adapters import (
    ParallelLayout,
    StateDictAdapter,
    TensorInfo,
    TensorRule,
    layout_placement,
)
from mooncake.reshard.weight import WeightIdentity, WeightStore, bind_tensors


def main() -> None:
    options = arguments(__doc__)
    source = model_tensors(options.gib)
    nbytes = sum(t.nbytes for t in source.values())
    identity = WeightIdentity("bench", "load", "r", 1)
    adapter = StateDictAdapter(identity)
    rows = []
    with LocalCluster(nodes=1, capacity=f"{int(options.gib) + 2}GiB") as cluster:
        with WeightStore(cluster.target) as store:
            with store.weight_put(source, adapter) as writer:
                for name, tensor in adapter.tensors(source):
                    writer.weight_put_tensor(name, tensor)
            targets = {name: torch.zeros_like(tensor) for name, tensor in source.items()}
            placement = adapter.placement(source)
            binding = bind_tensors(placement, "rank00000", targets)
            for threads in options.threads:
                plain = plain_copies(targets, source, threads)

                def load(verify: bool, threads: int = threads) -> None:
                    store.weight_get(identity, placement, binding, verify=verify, threads=threads)

                variants = {
                    "load, digests on": lambda: load(True),
                    "load, digests off": lambda: load(False),
                    **plain,
                }
                seconds = interleave(variants, options.rounds)
                rows += report("load", nbytes, threads, seconds, list(plain))
            for tensor in targets.values():
                tensor.fill_(-1)
            with AnonymousPeak() as memory:
                load(True)
            wrong = [n for n, t in targets.items() if not torch.equal(t, source[n])]
            print(f"\ncontent {'WRONG: ' + ', '.join(wrong) if wrong else 'equal'}")
            print(f"memory above targets and store while loading: {memory.peak / 2**20:.1f} MiB")
            rows.append({"case": "load", "peak_anonymous_bytes": memory.peak, "wrong": wrong})
            rows += strided(store, options, source, targets)
            rows += small(store, options)
    write_json(options.json, rows)


def strided(store, options, source, targets) -> list[dict]:
    """The same model cut by columns for rank 0 of TP2: each row of a tensor is a run of 8 KiB."""
    identity = WeightIdentity("bench", "load", "r", 1)
    infos = {name: TensorInfo(tuple(t.shape), "int32", 4) for name, t in source.items()}
    layout = ParallelLayout(tp=2, rules=(TensorRule(".*", 1),), layer_pattern="(?!)")
    placement = layout_placement(infos, layout, identity)
    halves = {name: t.view(-1)[: t.numel() // 2].view(4096, 2048) for name, t in targets.items()}
    binding = bind_tensors(placement, "dp0-pp0-tp0", halves)
    nbytes = sum(t.nbytes for t in halves.values())
    views = {name: t[:, :2048] for name, t in source.items()}
    rows = []
    for threads in options.threads:

        def load(verify: bool, threads: int = threads) -> None:
            store.weight_get(identity, placement, binding, verify=verify, threads=threads)

        def torch_copy(threads: int = threads) -> None:
            torch.set_num_threads(threads)
            for name, half in halves.items():
                half.copy_(views[name])

        variants = {
            "load, digests on": lambda: load(True),
            "load, digests off": lambda: load(False),
            "torch copy_": torch_copy,
        }
        seconds = interleave(variants, options.rounds)
        rows += report("load half of each row", nbytes, threads, seconds, ["torch copy_"])
    return rows


def small(store, options) -> list[dict]:
    """16,384 tensors of 16 KiB, which are stored in one pack: copies, and what fusing them gives.

    "apart": each target in memory of its own. "one buffer": all in one, in the order of their
    names. "as stored": all in one, in the order in which the pack has them.
    """
    identity = WeightIdentity("bench", "small", "r", 1)
    adapter = StateDictAdapter(identity)
    pattern = torch.arange(4096, dtype=torch.int32)
    source = {f"layers.{i:05d}.bias": pattern + i for i in range(16384)}
    with store.weight_put(source, adapter) as writer:
        for name, tensor in adapter.tensors(source):
            writer.weight_put_tensor(name, tensor)
    placement = adapter.placement(source)
    stored_order = [fragment.tensor_id for fragment in placement.parts[0].fragments]

    def in_one_buffer(names) -> dict[str, torch.Tensor]:
        return dict(zip(names, torch.zeros(len(source), 4096, dtype=torch.int32), strict=True))

    targets = {
        "apart": {name: torch.zeros_like(tensor) for name, tensor in source.items()},
        "one buffer": in_one_buffer(source),
        "as stored": in_one_buffer(stored_order),
    }
    bindings = {name: bind_tensors(placement, "rank00000", t) for name, t in targets.items()}
    nbytes = sum(tensor.nbytes for tensor in source.values())
    rows: list[dict] = []
    done = {}
    for threads in options.threads:

        def load(name: str, threads: int = threads) -> None:
            def progress(state) -> None:
                if state.done:
                    done[name] = (state.regions, state.copies)

            store.weight_get(
                identity, placement, bindings[name], threads=threads, progress=progress
            )

        def torch_copy(threads: int = threads) -> None:
            torch.set_num_threads(threads)
            for name, target in targets["apart"].items():
                target.copy_(source[name])

        variants = {name: lambda name=name: load(name) for name in targets}
        seconds = interleave({**variants, "torch copy_": torch_copy}, options.rounds)
        rows += report("load small tensors", nbytes, threads, seconds, ["torch copy_"])
    for name, (regions, copies) in done.items():
        wrong = [n for n, t in targets[name].items() if not torch.equal(t, source[n])]
        print(f"{name}: {regions} regions, {copies} copies{', WRONG' if wrong else ''}")
        rows.append(
            {"case": f"small, {name}", "regions": regions, "copies": copies, "wrong": wrong}
        )
    return rows


if __name__ == "__main__":
    main()
